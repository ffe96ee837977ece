"""Cleanup that a crash leaves undone."""

from __future__ import annotations

from collections.abc import Iterator

from brokerctl.lint.rule import Hit, rule
from brokerctl.lint.subject import Subject


@rule(
    "warning",
    why="ExecStop= does not run when the main process fails or is killed; ExecStopPost= always does",
    source="SYSTEMD.md 57, 58, P1",
    mend="move it to ExecStopPost=",
)
def check(unit: Subject) -> Iterator[Hit]:
    if unit.value("Type") == "oneshot" or unit.commands("ExecStopPost"):
        return
    for command, each in unit.stops():
        if each.name in {"rm", "umount", "unlink", "rmdir"}:
            yield Hit(command, f"{each.name} runs only if the main process is still there, or has ended well")
