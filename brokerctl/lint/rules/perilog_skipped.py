"""A condition that skips the script of a job."""

from __future__ import annotations

from collections.abc import Iterator

from brokerctl.lint.rule import Hit, rule
from brokerctl.lint.subject import Subject


@rule(
    "warning",
    why=("systemctl start succeeds where a condition fails: the script has not run, and the job goes on as if it had"),
    source="SYSTEMD.md 59, 101, H7",
    mend="test for it in the script",
)
def check(unit: Subject) -> Iterator[Hit]:
    if not unit.role:
        return
    for setting in unit.settings():
        if setting.section == "Unit" and setting.key.startswith("Condition") and setting.value:
            yield Hit(setting.at, f"{setting.key}= can skip the {unit.role} without a word")
    for command in unit.commands("ExecCondition"):
        yield Hit(command, f"ExecCondition= can skip the {unit.role} without a word")
