"""A hook that waits for a unit which waits for this one."""

from __future__ import annotations

from collections.abc import Iterator

from brokerctl.lint.rule import Hit, rule
from brokerctl.lint.subject import Subject
from brokerctl.unit.invocations import invocations

# Whether the unit is being stopped, and what is asked of the other one: the ordering that makes the other one wait.
_ORDER = {(False, "start"): "Before", (True, "stop"): "After"}


@rule(
    "error",
    why=(
        "systemd runs the other unit's job only when this one's is done, and the hook waits for it: a "
        "deadlock until the timeout"
    ),
    source="systemd.unit(5) Before=, systemd#7324",
    mend="use --no-block, or drop the ordering",
)
def check(unit: Subject) -> Iterator[Hit]:
    for key, command in unit.all_commands():
        for each in invocations(command):
            verb, *names = each.systemctl()
            order = _ORDER.get((key.startswith("ExecStop"), verb), "")
            waiting = {name if "." in name else f"{name}.service" for name in names} & set(unit.words(order))
            if waiting:
                name = min(waiting)
                yield Hit(command, f"waits for {name}, which {order}={name} makes wait for this unit")
