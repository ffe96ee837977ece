"""A line that systemd ignores, or for which it refuses the unit."""

from __future__ import annotations

from collections.abc import Iterator

from brokerctl.lint.rule import Hit, rule
from brokerctl.lint.rules import missing_backslash
from brokerctl.lint.subject import Subject


@rule(
    "error",
    why="systemd goes on without what it cannot read, so a limit or a policy silently is its default",
    source="systemd.syntax(7), systemd.service(5)",
    mend="write the value as systemd.service(5) has it; a comment stands on a line of its own",
)
def check(unit: Subject) -> Iterator[Hit]:
    claimed = {place for lack in missing_backslash.lacks(unit) for place in lack.claimed}
    for problem in unit.problems:
        if (problem.at.path, problem.at.line) not in claimed:
            yield Hit(problem.at, problem.text)
