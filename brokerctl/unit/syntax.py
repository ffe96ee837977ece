"""The syntax of one unit file: bytes in, settings and comments with their places out (systemd.syntax(7)).

What systemd says about a line, and goes on after, is a `Problem`; where it gives up the whole file, so does `parse`,
and that problem is `fatal`. Nothing is raised, whatever the bytes are.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator

import msgspec

# systemd's own limit on a line, continuations included; beyond it the whole file is refused.
LINE_MAX = 1 << 20
BLANKS = " \t\n\r"
_COMMENT = ("#", ";")
_BOM = "\ufeff"
_EOL = re.compile(rb"\r\n|\n\r|\n|\r")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_SHOWN_MAX = 60


class Place(msgspec.Struct, frozen=True, order=True):
    """Where something stands; lines and columns count from 1, columns in characters."""

    path: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}"


class Mark(msgspec.Struct, frozen=True):
    """The text from `offset` on stands at this line and column."""

    offset: int
    line: int
    column: int


class Setting(msgspec.Struct, frozen=True):
    """One `Key=value`; the value is one line, each continuation a blank, as systemd joins them."""

    section: str
    key: str
    value: str
    at: Place
    marks: tuple[Mark, ...]

    def place(self, offset: int = 0) -> Place:
        """Where that character of the value stands in the file."""
        mark = self.marks[max(0, bisect_right(self.marks, offset, key=lambda mark: mark.offset) - 1)]
        return Place(self.at.path, mark.line, mark.column + max(0, offset - mark.offset))


class Problem(msgspec.Struct, frozen=True):
    """What systemd can't read: it ignores the line, or, where it is fatal, the unit."""

    at: Place
    text: str
    fatal: bool = False


class UnitFile(msgspec.Struct, frozen=True):
    """One file as read; `lines` are those of the file, for messages. `comments` has each comment's line and text."""

    path: str
    settings: tuple[Setting, ...]
    sections: tuple[str, ...]
    problems: tuple[Problem, ...]
    comments: tuple[tuple[int, str], ...]
    lines: tuple[str, ...]


class _Logical(msgspec.Struct, frozen=True):
    """A line with its continuations, and where its parts come from."""

    text: str
    marks: tuple[Mark, ...]


def parse(data: bytes, path: str) -> UnitFile:
    """Read a unit file."""
    return _Reader(path).read(data)


class _Reader:
    def __init__(self, path: str) -> None:
        self.path = path
        self.settings: list[Setting] = []
        self.sections: list[str] = []
        self.problems: list[Problem] = []
        self.comments: list[tuple[int, str]] = []
        self.section: str | None = None

    def read(self, data: bytes) -> UnitFile:
        lines: tuple[str, ...] = ()
        if (nul := data.find(b"\0")) >= 0:
            self.problem(1 + len(_EOL.findall(data, 0, nul)), 1, "has a NUL byte: a binary, no unit file", fatal=True)
        else:
            raw = _EOL.split(data)
            # An invalid byte becomes a surrogate, which marks it for the line that it is in.
            lines = tuple(line.decode(errors="surrogateescape") for line in raw[: -1 if not raw[-1] else None])
            for logical in self.logical(lines):
                if not self.line(logical):
                    break
        shown = tuple(line.encode(errors="surrogateescape").decode(errors="replace") for line in lines)
        return UnitFile(
            self.path,
            tuple(self.settings),
            tuple(self.sections),
            tuple(self.problems),
            tuple(self.comments),
            shown,
        )

    def problem(self, line: int, column: int, text: str, *, fatal: bool = False) -> None:
        self.problems.append(Problem(Place(self.path, line, column), text, fatal))

    def logical(self, lines: tuple[str, ...]) -> Iterator[_Logical]:
        r"""Lines joined over a `\` at their end. Comments in between are skipped; an empty line ends it."""
        parts: list[str] = []
        marks: list[Mark] = []
        offset = 0
        for number, line in enumerate(lines, 1):
            text = line.removeprefix(_BOM) if number == 1 else line
            if text.lstrip(BLANKS).startswith(_COMMENT):
                self.comments.append((number, text.strip(BLANKS)))
                continue
            if offset + len(text) > LINE_MAX:
                self.problem(number, 1, "a line is longer than 1 MiB: no unit file", fatal=True)
                return
            marks.append(Mark(offset, number, 1 + len(line) - len(text)))
            offset += len(text)
            continued = (len(text) - len(text.rstrip("\\"))) % 2 == 1
            parts.append(text[:-1] + " " if continued else text)
            if not continued:
                yield _Logical("".join(parts), tuple(marks))
                parts, marks, offset = [], [], 0
        if parts:
            yield _Logical("".join(parts), tuple(marks))

    def line(self, logical: _Logical) -> bool:
        """Take one logical line; False where systemd reads no further."""
        text = logical.text.strip(BLANKS)
        if not text:
            return True
        lead = len(logical.text) - len(logical.text.lstrip(BLANKS))
        start = _at(logical.marks, lead)
        if (bad := next((i for i, char in enumerate(logical.text) if "\ud800" <= char <= "\udfff"), -1)) >= 0:
            where = _at(logical.marks, bad)
            self.problem(where.line, where.column, "is not UTF-8: systemd refuses the whole file", fatal=True)
            return False
        if text.startswith("["):
            return self.header(text, start)
        if self.section is None:
            if not self.problems:
                self.problem(start.line, start.column, f"{_shown(text)} stands before any [Section]; it is ignored")
            return True
        key, equals, _ = text.partition("=")
        if not equals or not key.strip(BLANKS):
            missing = "has no '='" if not equals else "has no key before its '='"
            self.problem(start.line, start.column, f"{_shown(text)} {missing}; systemd ignores the line")
            return True
        value_at = lead + len(key) + 1
        rest = logical.text[value_at:]
        value_at += len(rest) - len(rest.lstrip(BLANKS))
        value = rest.strip(BLANKS)
        marks = _from(logical.marks, min(value_at, len(logical.text)))
        at = Place(self.path, start.line, start.column)
        self.settings.append(Setting(self.section, key.strip(BLANKS), value, at, marks))
        return True

    def header(self, text: str, start: Mark) -> bool:
        if not text.endswith("]") or _CONTROL.search(text) or any(char in text for char in "\"'\\"):
            self.problem(
                start.line, start.column, f"{_shown(text)} is no [Section]; systemd refuses the file", fatal=True
            )
            return False
        self.section = text[1:-1]
        self.sections.append(self.section)
        return True


def _at(marks: tuple[Mark, ...], offset: int) -> Mark:
    mark = marks[max(0, bisect_right(marks, offset, key=lambda mark: mark.offset) - 1)]
    return Mark(offset, mark.line, mark.column + offset - mark.offset)


def _from(marks: tuple[Mark, ...], start: int) -> tuple[Mark, ...]:
    """The marks of the text that begins at `start`."""
    first = _at(marks, start)
    later = (Mark(mark.offset - start, mark.line, mark.column) for mark in marks if mark.offset > start)
    return (Mark(0, first.line, first.column), *later)


def _shown(text: str) -> str:
    """The text in one short line."""
    clean = _CONTROL.sub("?", text.encode(errors="replace").decode())
    return repr(clean if len(clean) <= _SHOWN_MAX else clean[:_SHOWN_MAX] + "…")
