"""WatchdogSec= around a program that never pings."""

from __future__ import annotations

from collections.abc import Iterator

from brokerctl.lint.rule import Hit, rule
from brokerctl.lint.subject import Subject


@rule(
    "error",
    why="Flux sends no WATCHDOG=1, so systemd aborts it again and again, without a dump",
    source="SYSTEMD.md 82",
    mend="remove WatchdogSec=",
)
def check(unit: Subject) -> Iterator[Hit]:
    broker = unit.broker
    if broker is not None and broker.kind == "flux" and unit.settings_record.watchdog_ns:
        yield Hit(unit.last("WatchdogSec"), "WatchdogSec= is set, but Flux never pings: SIGABRT after each period")
