"""An attribute whose value the broker refuses."""

from __future__ import annotations

from collections.abc import Iterator

from brokerctl.lint.rule import Hit, rule
from brokerctl.lint.rules.stop_timeout_overflow import overflows
from brokerctl.lint.subject import Subject


@rule(
    "error",
    why="the broker refuses to start, or goes on with its default",
    source="flux-broker-attributes(7), RFC 23",
    mend="write a value that flux-broker-attributes(7) has",
)
def check(unit: Subject) -> Iterator[Hit]:
    for attribute, error in unit.broker.wrong if unit.broker else ():
        if not overflows(attribute):
            yield Hit(attribute.at, f"{attribute.name}: {error}")
