"""Command lines of `Exec…=`: prefixes, quoting, escapes, `;` (systemd.service(5), "Command lines")."""

from __future__ import annotations

import re

import msgspec

from brokerctl.records.base import Command
from brokerctl.records.units import ExecLine
from brokerctl.unit.specifiers import expand
from brokerctl.unit.syntax import BLANKS, Setting

_SIMPLE = {"a": 7, "b": 8, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11, "\\": 92, '"': 34, "'": 39, "s": 32}
_CODED = re.compile(r"x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-7]{3})")
# `+`, `!` and `!!` exclude each other.
_PRIVILEGED = "+!"


class ExecError(ValueError):
    """Raised where systemd refuses a command line; `offset` is where in the value, `fatal` whether the unit as well."""

    def __init__(self, text: str, offset: int, *, fatal: bool = True) -> None:
        super().__init__(text)
        self.offset = offset
        self.fatal = fatal


class Word(msgspec.Struct, frozen=True):
    """One word after unquoting; `start` and `end` are offsets in the setting's value."""

    text: str
    start: int
    end: int


class ExecCommand(msgspec.Struct, frozen=True):
    """One command of an `Exec…=` line. `words` has the program first, without its prefixes."""

    setting: Setting
    prefixes: str
    words: tuple[Word, ...]

    @property
    def argv(self) -> tuple[str, ...]:
        """The words as text."""
        return tuple(word.text for word in self.words)

    @property
    def program(self) -> str:
        """The program's path as written."""
        return self.words[0].text

    @property
    def ignores_failure(self) -> bool:
        """Whether it has the prefix `-`."""
        return "-" in self.prefixes

    @property
    def source(self) -> str:
        """The text of this command as it stands in the unit."""
        return self.setting.value[self.words[0].start : self.words[-1].end]

    def record(self, unit_name: str) -> ExecLine:
        """The command as the model has it, with specifiers put in. `@` takes the second word as argv[0]."""
        argv = tuple(expand(word, unit_name) for word in self.argv)
        if "@" in self.prefixes:
            argv = argv[:1] + argv[2:]
        argv = (_simplified(argv[0]), *argv[1:])
        prefixes = self.prefixes.replace("-", "")
        return ExecLine(Command(" ".join(argv), argv), self.ignores_failure, prefixes)


def commands(setting: Setting) -> tuple[ExecCommand, ...]:
    """The commands of one line; several are separated by a `;` that stands alone. ExecError where it can't be read."""
    value = setting.value
    found: list[ExecCommand] = []
    at = _skip(value, 0)
    while at < len(value):
        first = _word(value, at)
        at = _skip(value, first.end)
        if first.text == ";":
            continue
        prefixes = _prefixes(first.text)
        program = first.text[len(prefixes) :]
        _check(program, first, fatal="-" not in prefixes)
        # Where prefixes are quoted, a caret points at the quote.
        lead = len(prefixes) if value.startswith(prefixes, first.start) else 0
        words = [Word(program, first.start + lead, first.end)]
        while at < len(value):
            if value[at] == ";" and (at + 1 == len(value) or value[at + 1] in BLANKS):
                at = _skip(value, at + 1)
                break
            if value.startswith("\\;", at) and (at + 2 == len(value) or value[at + 2] in BLANKS):
                words.append(Word(";", at, at + 2))
            else:
                words.append(_word(value, at))
            at = _skip(value, words[-1].end)
        if "@" in prefixes and len(words) == 1:
            raise ExecError("has the prefix @ but no second word for argv[0]", first.start, fatal="-" not in prefixes)
        found.append(ExecCommand(setting, prefixes, tuple(words)))
    return tuple(found)


def _prefixes(word: str) -> str:
    taken = ""
    for char in word:
        doubled = char == "!" and taken.count("!") == 1 and "+" not in taken
        # `|` is of systemd 257.
        fresh = char in "-@:|" and char not in taken
        privileged = char in _PRIVILEGED and not any(each in taken for each in _PRIVILEGED)
        if not (fresh or privileged or doubled):
            break
        taken += char
    return taken


def _check(program: str, word: Word, *, fatal: bool) -> None:
    if not program:
        raise ExecError("names no program", word.start, fatal=fatal)
    if program.endswith("/"):
        raise ExecError(f"{program!r} is a directory; expected a program", word.start, fatal=fatal)
    if not program.startswith(("/", "%")) and ("/" in program or program in {".", ".."}):
        raise ExecError(
            f"{program!r} is no absolute path and no plain name; systemd refuses it", word.start, fatal=fatal
        )


def _simplified(path: str) -> str:
    """`/bin//sh` is `/bin/sh`, as systemd shows it."""
    return re.sub(r"(?<!^)(?:/\.)*/+(?=[^/])|//+", "/", path) if path.startswith("/") else path


def _skip(value: str, at: int) -> int:
    while at < len(value) and value[at] in BLANKS:
        at += 1
    return at


def _word(value: str, start: int) -> Word:
    """The word that begins there: quotes may begin and end anywhere in it."""
    out = bytearray()
    quote = ""
    opened = at = start
    while at < len(value):
        char = value[at]
        if char == "\\":
            data, at = _escape(value, at)
            out += data
            continue
        if quote:
            if char == quote:
                quote = ""
            else:
                out += char.encode(errors="surrogatepass")
        elif char in "\"'":
            quote, opened = char, at
        elif char in BLANKS:
            break
        else:
            out += char.encode(errors="surrogatepass")
        at += 1
    if quote:
        raise ExecError(f"the quote {quote} is never closed", opened)
    return Word(out.decode(errors="surrogateescape"), start, at)


def _escape(value: str, at: int) -> tuple[bytes, int]:
    """What a backslash and what follows stand for, and where it ends; unknown ones stand for themselves."""
    following = value[at + 1 : at + 2]
    if following in _SIMPLE and following:
        return bytes((_SIMPLE[following],)), at + 2
    match = _CODED.match(value, at + 1)
    if match is not None:
        code = int(match[1] or match[2] or match[3] or match[4], 8 if match[4] else 16)
        if code:
            if (match[1] or match[4]) and code <= 0xFF:
                return bytes((code,)), match.end()
            if (match[2] or match[3]) and code <= 0x10FFFF and not 0xD800 <= code <= 0xDFFF:
                return chr(code).encode(), match.end()
    return b"\\" + following.encode(errors="surrogatepass"), at + 1 + len(following)
