"""A script whose exit status nobody keeps."""

from __future__ import annotations

from collections.abc import Iterator

from brokerctl.lint.rule import Hit, rule
from brokerctl.lint.subject import Subject


@rule(
    "warning",
    why="the unit is unloaded as soon as it fails: what is left is that it failed, not how",
    source="SYSTEMD.md 91, H7",
    mend="keep $SERVICE_RESULT, $EXIT_CODE and $EXIT_STATUS in an ExecStopPost= line",
)
def check(unit: Subject) -> Iterator[Hit]:
    if unit.role and unit.value("CollectMode", "Unit") == "inactive-or-failed" and not unit.commands("ExecStopPost"):
        yield Hit(unit.last("CollectMode", "Unit"), "CollectMode=inactive-or-failed without ExecStopPost=")
