"""An ExecStop line that needs $MAINPID."""

from __future__ import annotations

from collections.abc import Iterator

from brokerctl.lint.rule import Hit, rule
from brokerctl.lint.rules import execstop_asynchronous, second_sigterm
from brokerctl.lint.subject import Subject
from brokerctl.unit.invocations import invocations, shell_text

# How a script looks before it kills, or does not care.
_GUARDS = ("-n ", "-z ", "[ ", "${MAINPID:", "|| true", "|| :", "|| exit 0")


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
    # A line that had better not be there needs no test.
    wrong = {hit.at for other in (execstop_asynchronous, second_sigterm) for hit in other.check.check(unit)}
    for command in unit.commands("ExecStop"):
        if command.ignores_failure or "MAINPID" not in command.source or command in wrong:
            continue
        script = shell_text(command)
        guarded = script is not None and any(word in script for word in _GUARDS)
        kills = any(each.name == "kill" and "-0" not in each.arguments for each in invocations(command))
        if not guarded and kills:
            yield Hit(command, "kill without a process id, where the main process has ended before")
