"""An unescaped instance name inside a shell's text."""

from __future__ import annotations

import re
from collections.abc import Iterator

from brokerctl.lint.rule import Hit, rule
from brokerctl.lint.subject import Subject
from brokerctl.unit.invocations import shell_text
from brokerctl.unit.specifiers import UNESCAPED

INSTANCE = re.compile(rf"(?<!%)%[{UNESCAPED}]")


@rule(
    "error",
    why=(
        "the name is put into the text before the shell reads it: an instance with quotes in it runs as a "
        "command, as root where no User= says otherwise"
    ),
    source="SYSTEMD.md 108",
    mend="hand it over as an argument, or use %i outside of the shell's text",
)
def check(unit: Subject) -> Iterator[Hit]:
    if not unit.template:
        return
    for _, command in unit.all_commands():
        script = shell_text(command)
        if script is not None and (found := INSTANCE.search(script)) is not None:
            place = command.setting.value.find(found[0], command.words[0].start)
            yield Hit(command.setting.place(max(place, 0)), f"{found[0]} in the text of a shell")
