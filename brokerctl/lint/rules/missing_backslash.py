"""A command over several lines whose continuation breaks off."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from brokerctl.lint.rule import Hit, rule
from brokerctl.lint.subject import Subject
from brokerctl.unit import keys
from brokerctl.unit.syntax import Place, UnitFile

_KEY = re.compile(r"(?:X-)?[A-Za-z][A-Za-z0-9]*")


class Lack(msgspec.Struct, frozen=True):
    """Where the backslash is missing, and the lines (path, number) that are astray because of it."""

    at: Place
    text: str
    claimed: frozenset[tuple[str, int]]


@rule(
    "error",
    why=(
        "one missing backslash cuts the command there: quotes stay open, options are lost, and the unit "
        "starts otherwise or not at all"
    ),
    source="systemd.syntax(7), flux-core#3995",
    mend="end every line of the command but the last with a backslash, and nothing after it",
)
def check(unit: Subject) -> Iterator[Hit]:
    for lack in lacks(unit):
        yield Hit(lack.at, lack.text)


def lacks(unit: Subject) -> list[Lack]:
    """Each place where a command breaks off."""
    return [lack for file in unit.files for lack in _of_file(file)]


def _of_file(file: UnitFile) -> Iterator[Lack]:
    comments = {number for number, _ in file.comments}
    commands = {setting.at.line for setting in file.settings if setting.key in keys.EXEC}
    begun = 0  # the line at which the command began that may break off
    last = 0  # the last line of it
    for number, text in enumerate(file.lines, 1):
        if number in comments or not (text.strip() or file.lines[last - 1].endswith("\\")):
            continue
        if number in commands:
            begun = last = number
        elif not begun or file.lines[last - 1].endswith("\\"):
            last = number
        elif _astray(text):
            yield _lack(file, begun, last, number)
            begun = 0
        else:
            begun = 0


def _astray(text: str) -> bool:
    key, equals, _ = text.partition("=")
    return not text.lstrip().startswith("[") and not (equals and _KEY.fullmatch(key.strip()))


def _lack(file: UnitFile, begun: int, last: int, astray: int) -> Lack:
    line = file.lines[last - 1]
    end = astray
    while end < len(file.lines) and (file.lines[end - 1].endswith("\\") or _astray(file.lines[end])):
        end += 1
    text = "the command ends here without a backslash"
    if line.rstrip().endswith("\\"):
        text = "the blank after the backslash ends the command"
    elif not line.strip():
        text = "the empty line ends the command"
    return Lack(
        Place(file.path, last, len(line.rstrip()) + 1),
        f"{text}, and line {astray} is no setting",
        frozenset((file.path, number) for number in range(begun, end + 1)),
    )
