"""An ExecStop line that needs $MAINPID."""

from __future__ import annotations

from collections.abc import Iterator

from brokerctl.lint.rule import Hit, rule
from brokerctl.lint.subject import Subject
from brokerctl.unit.invocations import invocations, shell_text

# How a script looks before it kills.
_GUARDS = ("-n ", "-z ", "[ ", "${MAINPID:", "|| true", "|| :")


@rule(
    "warning",
    why=(
        "ExecStop also runs when the main process has ended by itself: $MAINPID is empty then, kill fails, "
        "and a clean end becomes a failure"
    ),
    source="SYSTEMD.md 20, 55, 56, systemd#11744",
    mend="test for it first, or begin the line with -",
)
def check(unit: Subject) -> Iterator[Hit]:
    if unit.value("Type") == "oneshot":
        return
    for command in unit.commands("ExecStop"):
        if command.ignores_failure or "MAINPID" not in command.source:
            continue
        script = shell_text(command)
        guarded = script is not None and any(word in script for word in _GUARDS)
        if not guarded and any(each.name == "kill" for each in invocations(command)):
            yield Hit(command, "kill without a process id, where the main process has ended before")
