"""The part of TOML that the settings need: tables, strings, booleans, arrays of those. Pure.

The standard library's reader takes longer to import than the rest of the helper takes to run. What this one accepts
means what it means in TOML; everything else is refused, with its line.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn, TypeAlias

    Value: TypeAlias = "str | bool | list[Value]"

_BARE = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
_ESCAPES = {'"': '"', "\\": "\\", "n": "\n", "t": "\t"}
_CONTROLS = frozenset(map(chr, [*range(32), 127])) - {"\t", "\n"}
_DEPTH_MAX = 8


def parse(text: str) -> dict[str, dict[str, Value]]:
    """The tables of a text, by name; ValueError with the line of what can't be read."""
    return _Reader(text.replace("\r\n", "\n")).tables()


class _Reader:
    """A text, and how far it has been read."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        for at, char in enumerate(text):
            if char in _CONTROLS:
                self._at = at
                self._wrong("a control character")

    def tables(self) -> dict[str, dict[str, Value]]:
        tables: dict[str, dict[str, Value]] = {}
        table: dict[str, Value] | None = None
        while self._skip(" \t\n"):
            if self._take("["):
                name = self._key("a table's name")
                self._expect("]")
                if name in tables:
                    self._wrong(f"a second [{name}]")
                table = tables[name] = {}
            else:
                name = self._key("a key")
                if table is None:
                    self._fail("a [table] first")
                self._expect("=")
                if name in table:
                    self._wrong(f"a second {name}")
                table[name] = self._value(0)
            self._end_of_line()
        return tables

    def _value(self, depth: int) -> Value:
        self._skip(" \t")
        if self._take('"'):
            return self._basic()
        if self._take("'"):
            return self._until("'")
        if self._take("[") and depth < _DEPTH_MAX:
            return self._array(depth + 1)
        for word, value in (("true", True), ("false", False)):
            if self._take(word):
                return value
        return self._fail('a string, true, false or an array of those, as in "30m" or ["a", "b"]')

    def _array(self, depth: int) -> list[Value]:
        values: list[Value] = []
        while True:
            self._skip(" \t\n")
            if self._take("]"):
                return values
            if values:
                self._expect(",")
                self._skip(" \t\n")
                if self._take("]"):
                    return values
            values.append(self._value(depth))

    def _basic(self) -> str:
        parts: list[str] = []
        while True:
            char = self._text[self._at : self._at + 1]
            self._at += 1
            if char == '"':
                return "".join(parts)
            if char in {"", "\n"}:
                self._at -= 1
                self._fail('a closing "')
            if char == "\\":
                char = _ESCAPES.get(self._text[self._at : self._at + 1], "")
                self._at += 1
                if not char:
                    self._fail(r"one of \" \\ \n \t after a backslash")
            parts.append(char)

    def _until(self, end: str) -> str:
        stop = self._text.find(end, self._at)
        value = self._text[self._at : stop]
        if stop < 0 or "\n" in value:
            self._fail(f"a closing {end}")
        self._at = stop + 1
        return value

    def _key(self, what: str) -> str:
        self._skip(" \t")
        start = self._at
        while self._text[self._at : self._at + 1] in _BARE:
            self._at += 1
        if start == self._at:
            self._fail(what)
        return self._text[start : self._at]

    def _end_of_line(self) -> None:
        self._skip(" \t")
        if self._text[self._at : self._at + 1] not in {"", "\n"}:
            self._fail("the end of the line")

    def _expect(self, char: str) -> None:
        self._skip(" \t")
        if not self._take(char):
            self._fail(char)

    def _take(self, word: str) -> bool:
        if not self._text.startswith(word, self._at):
            return False
        self._at += len(word)
        return True

    def _skip(self, blanks: str) -> bool:
        """Over blanks and comments; False at the end of the text."""
        while self._at < len(self._text):
            if self._text[self._at] == "#":
                end = self._text.find("\n", self._at)
                self._at = len(self._text) if end < 0 else end
            elif self._text[self._at] in blanks:
                self._at += 1
            else:
                return True
        return False

    def _fail(self, expected: str) -> NoReturn:
        self._wrong(f"expected {expected}")

    def _wrong(self, what: str) -> NoReturn:
        line = self._text.count("\n", 0, self._at) + 1
        raise ValueError(f"line {line}: {what}")
