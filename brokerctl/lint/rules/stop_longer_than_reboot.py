"""A stop that may take longer than a reboot waits."""

from __future__ import annotations

from collections.abc import Iterator

from brokerctl.durations import as_text
from brokerctl.lint import chain
from brokerctl.lint.rule import Hit, rule
from brokerctl.lint.subject import Subject


@rule(
    "warning",
    why="reboot.target and poweroff.target use force after 30 minutes, on all services alike",
    source="systemd.special(7), SYSTEMD.md 71",
    mend="keep TimeoutStopSec= below 30min",
)
def check(unit: Subject) -> Iterator[Hit]:
    limit_ns = unit.stop_limit_ns
    if limit_ns is not None and limit_ns >= chain.REBOOT_NS:
        found = unit.last("TimeoutStopSec") or unit.last("TimeoutSec")
        yield Hit(found, f"{as_text(limit_ns)}: a reboot uses force after 30m")
