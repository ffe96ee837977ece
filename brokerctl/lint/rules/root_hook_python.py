"""A hook that runs Python as root in the home of a user."""

from __future__ import annotations

import re
from collections.abc import Iterator

from brokerctl.lint.rule import Hit, rule
from brokerctl.lint.subject import Subject
from brokerctl.unit.invocations import invocations

_ISOLATED = re.compile(r"-[A-Za-z]*I[A-Za-z]*")


@rule(
    "error",
    why=(
        "the hook runs as root, but $HOME is that of User=: Python runs a usercustomize.py that the user has put there"
    ),
    source="SYSTEMD.md 23, later findings",
    mend="call an absolute python3 -I -m …, not a console script or env",
)
def check(unit: Subject) -> Iterator[Hit]:
    for key, command in unit.all_commands():
        if not unit.value("User") or not unit.as_root(key, command):
            continue
        for each in invocations(command):
            isolated = any(_ISOLATED.fullmatch(word) for word in each.arguments[:3])
            if each.name == "brokerctl" or (each.python and not isolated):
                yield Hit(command, f"{key}= runs {each.name} as root with the HOME of User={unit.value('User')}")
