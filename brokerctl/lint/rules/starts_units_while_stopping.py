"""An ExecStop line that starts another unit."""

from __future__ import annotations

from collections.abc import Iterator

from brokerctl.lint.rule import Hit, rule
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
        if verb in {"start", "restart"} and not {unit.name, "%n"} & set(names) and not command.ignores_failure:
            yield Hit(command, f"systemctl {verb} in ExecStop= fails while the machine goes down")
