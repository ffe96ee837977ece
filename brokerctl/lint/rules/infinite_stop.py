"""A stop without a limit."""

from __future__ import annotations

from collections.abc import Iterator

from brokerctl.lint.rule import Hit, rule
from brokerctl.lint.subject import Subject


@rule(
    "warning",
    why=(
        "a stop that hangs then hangs for ever, and a reboot with it, until somebody kills it; 0 means the "
        "same as infinity"
    ),
    source="SYSTEMD.md 33, systemd#11452",
    mend="set TimeoutStopSec= above the sum that lint --chain shows; where only the start is long, TimeoutStartSec=",
)
def check(unit: Subject) -> Iterator[Hit]:
    found = unit.last("TimeoutStopSec") or unit.last("TimeoutSec")
    if unit.stop_limit_ns is None:
        yield Hit(found, f"{found.key if found else 'TimeoutStopSec'}={found.value if found else ''}: no limit at all")
