"""A watchdog that is fed by a loop beside the work."""

from __future__ import annotations

from collections.abc import Iterator

from brokerctl.lint.rule import Hit, rule
from brokerctl.lint.subject import Subject
from brokerctl.unit.invocations import invocations


@rule(
    "warning",
    why="a ping from a child or a loop of its own proves that the loop lives, not that the service works",
    source="SYSTEMD.md 85, ManageIQ#20840",
    mend="ping from the loop that does the work, and keep NotifyAccess=main",
)
def check(unit: Subject) -> Iterator[Hit]:
    if not unit.settings_record.watchdog_ns:
        return
    for _, command in unit.all_commands():
        for each in invocations(command):
            if each.name == "systemd-notify" and "WATCHDOG=1" in each.arguments:
                yield Hit(command, "systemd-notify WATCHDOG=1 from a shell: the work itself may hang unseen")
                return
    if unit.broker is None and unit.value("NotifyAccess") == "all":
        yield Hit(unit.last("NotifyAccess"), "NotifyAccess=all: any child can feed the watchdog")
