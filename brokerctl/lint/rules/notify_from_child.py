"""Type=notify with a shell that stays between systemd and the program."""

from __future__ import annotations

from collections.abc import Iterator

from brokerctl.lint.rule import Hit, rule
from brokerctl.lint.subject import Subject
from brokerctl.unit.invocations import invocations


@rule(
    "warning",
    why=(
        "dash, and bash before 5.1, stays the main process: what the program says then comes from a child, is "
        "refused, and the start times out"
    ),
    source="SYSTEMD.md 35, systemd#24516",
    mend="begin the last command with exec, or start the program without a shell",
)
def check(unit: Subject) -> Iterator[Hit]:
    if unit.value("Type") != "notify" or unit.settings_record.notify_access != "main":
        return
    for command in unit.commands("ExecStart"):
        runs = invocations(command)
        if runs and not any(each.replaces for each in runs) and not any(each.name == "systemd-notify" for each in runs):
            yield Hit(command, f"{runs[-1].name} is a child of the shell that systemd takes for the main process")
