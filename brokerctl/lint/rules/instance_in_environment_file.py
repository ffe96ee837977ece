"""An unescaped instance name in the path of EnvironmentFile=."""

from __future__ import annotations

from collections.abc import Iterator

from brokerctl.lint.rule import Hit, rule
from brokerctl.lint.rules.instance_in_shell import INSTANCE
from brokerctl.lint.subject import Subject


@rule(
    "error",
    why="the path is a pattern, and a dash in the name becomes a slash: another job's file is read, or none",
    source="SYSTEMD.md 103, 107, H1",
    mend="use %i, which is always a plain file name",
)
def check(unit: Subject) -> Iterator[Hit]:
    for setting in unit.entries("EnvironmentFile"):
        if (found := INSTANCE.search(setting.value)) is not None:
            yield Hit(setting.place(found.start()), f"{found[0]} in the path of EnvironmentFile=")
        elif (at := next((i for i, char in enumerate(setting.value) if char in "*?["), -1)) >= 0 and unit.role:
            yield Hit(setting.place(at), "a pattern: the files of other jobs are read as well")
