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
    mend="set broker.cleanup-timeout, and TimeoutStopSec= or broker.sd-stop-timeout above it",
)
def check(unit: Subject) -> Iterator[Hit]:
    row = chain.row(unit, "cleanup")
    if row is not None and row.verdict == "cut":
        yield Hit(row.at, chain.told(row))
