"""STOPPING=1 from a hook or a wrapper script."""

from __future__ import annotations

from collections.abc import Iterator

from brokerctl.lint.rule import Hit, rule
from brokerctl.lint.subject import Subject
from brokerctl.unit.invocations import invocations


@rule(
    "warning",
    why=(
        "after STOPPING=1 the whole stop has one TimeoutStopSec=, no ExecStop= runs and no signal is sent "
        "before SIGKILL"
    ),
    source="SYSTEMD.md 44, 45, P14",
    mend="leave STOPPING=1 out",
)
def check(unit: Subject) -> Iterator[Hit]:
    for key, command in unit.all_commands():
        for each in invocations(command):
            told = each.name == "systemd-notify" and ("--stopping" in each.arguments or "STOPPING=1" in each.arguments)
            if told and not key.startswith("ExecStop"):
                yield Hit(command, f"{key}= sends STOPPING=1: ExecStop= will not run")
