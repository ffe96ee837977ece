"""A script of a job whose environment may be missing."""

from __future__ import annotations

from collections.abc import Iterator

from brokerctl.lint.rule import Hit, rule
from brokerctl.lint.subject import Subject


@rule(
    "warning",
    why="with - in front a missing or unreadable file is no error: the script runs without FLUX_JOB_ID",
    source="SYSTEMD.md 103, 111, 114, H3",
    mend="remove the - from EnvironmentFile=",
)
def check(unit: Subject) -> Iterator[Hit]:
    for setting in unit.entries("EnvironmentFile"):
        if unit.role and setting.value.startswith("-"):
            yield Hit(setting, f"the {unit.role} runs without its environment where the file is missing")
