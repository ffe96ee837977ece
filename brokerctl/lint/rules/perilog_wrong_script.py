"""A unit that runs the script of another one."""

from __future__ import annotations

from collections.abc import Iterator

from brokerctl.lint.rule import Hit, rule
from brokerctl.lint.subject import ROLES, Subject


@rule(
    "error",
    why="a prolog unit that runs the epilog leaves the node unprepared and undoes what it should do",
    source="FLUX.md 67",
    mend="name the script that the unit is for",
)
def check(unit: Subject) -> Iterator[Hit]:
    others = set(ROLES) - {unit.role, ""}
    for command in unit.commands("ExecStart") if unit.role else ():
        words = [word.rpartition("/")[2].removeprefix("flux-run-") for word in command.argv]
        if unit.role not in words and (wrong := next((word for word in words if word in others), None)):
            yield Hit(command, f"a {unit.role} unit that runs the {wrong}")
