"""Site actions of the wrapper that outlast the unit's limit."""

from __future__ import annotations

from collections.abc import Iterator

from brokerctl.lint import chain
from brokerctl.lint.rule import Hit, rule
from brokerctl.lint.subject import Subject


@rule(
    "error",
    why=(
        "the wrapper gets SIGTERM before the broker has begun its stop, and the whole stop has to fit into what is left"
    ),
    source="SYSTEMD.md 26, P6",
    mend="raise TimeoutStopSec= above the sum that lint --chain shows",
)
def check(unit: Subject) -> Iterator[Hit]:
    row = chain.cut(unit, "site actions")
    if row is not None:
        yield Hit(unit.last("TimeoutStopSec"), chain.told(row), chain.mend(unit, row))
