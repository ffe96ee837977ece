"""A KillMode that leaves processes behind."""

from __future__ import annotations

from collections.abc import Iterator

from brokerctl.lint.rule import Hit, rule
from brokerctl.lint.subject import Subject


@rule(
    "warning",
    why="what the service has started survives its stop, and is found again at the next start",
    source="SYSTEMD.md 76, systemd.kill(5)",
    mend="set KillMode=mixed; say why with an ignore where survivors are wanted",
)
def check(unit: Subject) -> Iterator[Hit]:
    # With PAMName= it is refused: unit-refused.
    if unit.value("KillMode") in {"process", "none"} and unit.last("PAMName") is None:
        yield Hit(unit.last("KillMode"), "all but the main process survive the stop")
