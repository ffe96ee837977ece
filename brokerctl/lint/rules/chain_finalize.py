"""rc3 whose own limit is beyond systemd's clock."""

from __future__ import annotations

from collections.abc import Iterator

from brokerctl.lint import chain
from brokerctl.lint.rule import Hit, rule
from brokerctl.lint.subject import Subject


@rule(
    "error",
    why="systemd kills the broker before rc3 is at its own limit, and what it saves is saved in part",
    source="FLUX.md 32, SYSTEMD.md 27",
    mend="let TimeoutStopSec= cover the sum of the phases, or let the broker extend its deadline",
)
def check(unit: Subject) -> Iterator[Hit]:
    row = chain.cut(unit, "finalize")
    if row is not None:
        yield Hit(row.at, chain.told(row), chain.mend(unit, row))
