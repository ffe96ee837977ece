"""What a command line of a unit runs in the end: through `sh -c '…'`, `env`, `exec` and the like."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

import msgspec

from brokerctl.unit.execline import ExecCommand

SHELLS = frozenset({"sh", "bash", "dash", "ksh", "zsh"})
_SEPARATORS = frozenset({";", "&", "&&", "||", "|", "(", ")", "\n", ";;"})
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_KEYWORDS = frozenset({"if", "then", "else", "elif", "while", "until", "do", "!", "{", "time"})
# Programs that run another one: how many words, options apart, stand between.
_CARRIERS = {"timeout": 1, "flock": 1} | dict.fromkeys(
    ("env", "exec", "nohup", "setsid", "command", "nice", "ionice", "sudo", "systemd-cat"), 0
)
_PYTHON = re.compile(r"python(?:3(?:\.\d+)?)?")


class Invocation(msgspec.Struct, frozen=True):
    """One program that is run, with its words; in a shell it may be left behind (`&`), or take its place (`exec`)."""

    words: tuple[str, ...]
    in_shell: bool = False
    background: bool = False
    replaces: bool = True

    @property
    def name(self) -> str:
        """The program's name without its directory."""
        return PurePosixPath(self.words[0]).name

    @property
    def arguments(self) -> tuple[str, ...]:
        """The words after the program."""
        return self.words[1:]

    def brokerctl(self) -> tuple[str, ...] | None:
        """The words after `brokerctl`, or after `python … -m brokerctl`; None where it is another program."""
        if self.name == "brokerctl":
            return self.arguments
        words = self.arguments
        if _PYTHON.fullmatch(self.name):
            for index, word in enumerate(words):
                if word in {"-m", "-Im"} and words[index + 1 : index + 2] == ("brokerctl",):
                    return words[index + 2 :]
                if not word.startswith("-"):
                    break
        return None

    def systemctl(self) -> tuple[str, ...]:
        """The verb and the units of a `systemctl` that waits for its job; ("",) for any other program."""
        if self.name != "systemctl" or "--no-block" in self.arguments:
            return ("",)
        return tuple(word for word in self.arguments if not word.startswith("-")) or ("",)

    @property
    def python(self) -> bool:
        """Whether it is a Python interpreter."""
        return _PYTHON.fullmatch(self.name) is not None


def invocations(command: ExecCommand) -> tuple[Invocation, ...]:
    """All that a command runs, as far as its text tells."""
    return tuple(_of(_environment_expanded(command)))


def shell_text(command: ExecCommand) -> str | None:
    """The text that a shell is given with `-c`; None where there is none."""
    return _script(command.argv)


def _environment_expanded(command: ExecCommand) -> tuple[str, ...]:
    # `$$` is systemd's way of writing `$`.
    return tuple(word.replace("$$", "$") for word in command.argv)


def _script(words: Sequence[str]) -> str | None:
    if not words or PurePosixPath(words[0]).name not in SHELLS:
        return None
    for index, word in enumerate(words[1:], 1):
        if not word.startswith("-"):
            return None
        if not word.startswith("--") and "c" in word:
            return words[index + 1] if index + 1 < len(words) else None
    return None


def _of(words: tuple[str, ...]) -> Iterator[Invocation]:
    script = _script(words)
    if script is None:
        if carried := _carried(words):
            yield from _of(carried) if _script(carried) is not None else [Invocation(carried)]
        return
    parts = list(_parts(script))
    for part, background in parts:
        words_of = list(part)
        while words_of and (words_of[0] in _KEYWORDS or _ASSIGNMENT.match(words_of[0])):
            words_of.pop(0)
        carried = _carried(tuple(words_of))
        if not carried:
            continue
        # A shell with one command, or told to, becomes it: the process that systemd knows is the program.
        replaces = "exec" in part or (len(parts) == 1 and not background)
        if _script(carried) is not None:
            for inner in _of(carried):
                yield msgspec.structs.replace(inner, in_shell=True, background=background, replaces=False)
        else:
            yield Invocation(carried, in_shell=True, background=background, replaces=replaces)


def _parts(script: str) -> Iterator[tuple[list[str], bool]]:
    """The simple commands of a shell's text, each with whether it is left in the background."""
    lexer = shlex.shlex(script.replace("\\\n", " ").replace("\n", " ; "), posix=True, punctuation_chars=";&|()")
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        tokens = list(lexer)
    except ValueError:
        tokens = script.split()
    part: list[str] = []
    for each in [*tokens, ";"]:
        if each not in _SEPARATORS:
            part.append(each)
            continue
        if part:
            yield part, each == "&"
        part = []


def _carried(words: tuple[str, ...]) -> tuple[str, ...]:
    """The words from the program on that is really run."""
    while words and (skip := _CARRIERS.get(PurePosixPath(words[0]).name)) is not None:
        rest = list(words[1:])
        while rest and (rest[0].startswith("-") or _ASSIGNMENT.match(rest[0])):
            rest.pop(0)
        words = tuple(rest[skip:])
    return words
