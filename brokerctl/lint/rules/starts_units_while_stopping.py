"""An ExecStop line that starts another unit."""

from __future__ import annotations

from collections.abc import Iterator

from brokerctl.lint.rule import Hit, rule
from brokerctl.lint.rules import systemctl_ordered
from brokerctl.lint.subject import Subject


@rule(
    "warning",
    why=(
        "at a reboot nothing can be started any more: systemctl start fails at once with code 4, and the hook with it"
    ),
    source="SYSTEMD.md 71, P9",
    mend="run the program itself instead of starting a unit for it",
)
def check(unit: Subject) -> Iterator[Hit]:
    for command, each in unit.stops():
        verb, *names = each.systemctl()
        if verb not in {"start", "restart"} or command.ignores_failure or {unit.name, "%n"} & set(names):
            continue
        # Of those that are ordered systemctl-ordered tells: they never start at all.
        if not any(systemctl_ordered.waiting(unit, each, stopping=True)):
            yield Hit(command, f"systemctl {verb} in ExecStop= fails while the machine goes down")
