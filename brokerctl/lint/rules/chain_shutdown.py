"""A wait for peers that outlasts systemd's clock."""

from __future__ import annotations

from collections.abc import Iterator

from brokerctl.lint import chain
from brokerctl.lint.rule import Hit, rule
from brokerctl.lint.subject import Subject


@rule(
    "error",
    why=(
        "nothing moves the deadline while the broker waits for a stuck peer, so systemd kills it first: rc3 "
        "does not run, the dump is lost"
    ),
    source="FLUX.md letter p, 98, 106; SYSTEMD.md 38, 39",
    mend="set broker.shutdown-timeout=5m, and then TimeoutStopSec= above the sum that lint --chain shows",
)
def check(unit: Subject) -> Iterator[Hit]:
    row = chain.cut(unit, "shutdown")
    if row is not None:
        yield Hit(row.at, chain.told(row), chain.mend(unit, row))
