"""A comment that takes a rule out, but names none or says no reason."""

from __future__ import annotations

from collections.abc import Iterator

from brokerctl.lint import engine
from brokerctl.lint.rule import Hit, rule, rules
from brokerctl.lint.subject import Subject


@rule(
    "warning",
    why="an exception without a reason outlives it, and one with a wrong name does nothing",
    source="docs/lint.md",
    mend="write # brokerctl: ignore=RULE and why it is right here",
)
def check(unit: Subject) -> Iterator[Hit]:
    for each in engine.ignores(unit):
        if each.rule not in rules():
            yield Hit(each.at, f"there is no rule {each.rule!r}")
        elif not each.reason:
            yield Hit(each.at, f"says no reason, so {each.rule} is not ignored")
