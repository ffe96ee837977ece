"""CLEANUP that outlasts systemd's clock."""

from __future__ import annotations

from collections.abc import Iterator

from brokerctl.lint import chain
from brokerctl.lint.rule import Hit, rule
from brokerctl.lint.subject import Subject


@rule(
    "error",
    why=(
        "systemd kills the broker while it cancels jobs: rc3 does not run, the dump is lost, running jobs are forgotten"
    ),
    source="SYSTEMD.md 27, 119, 120",
    mend="set broker.cleanup-timeout=45, and then TimeoutStopSec= above the sum that lint --chain shows",
)
def check(unit: Subject) -> Iterator[Hit]:
    row = chain.cut(unit, "cleanup")
    # That a requested stop has no cleanup-timeout is what flux-shutdown-in-execstop says.
    if row is not None and not any(chain.is_request(each) for _, each in unit.stops()):
        yield Hit(row.at, chain.told(row), chain.mend(unit, row))
