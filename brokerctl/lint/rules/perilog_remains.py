"""A unit of a job that stays active."""

from __future__ import annotations

from collections.abc import Iterator

from brokerctl.lint.rule import Hit, rule
from brokerctl.lint.subject import Subject


@rule(
    "error",
    why="a start of a unit that is active does nothing and succeeds: the script does not run again",
    source="SYSTEMD.md 100",
    mend="remove RemainAfterExit=",
)
def check(unit: Subject) -> Iterator[Hit]:
    if unit.role and unit.value("RemainAfterExit"):
        yield Hit(unit.last("RemainAfterExit"), f"after the first run the {unit.role} of that name is never run again")
