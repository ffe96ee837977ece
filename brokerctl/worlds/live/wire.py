"""What neighbours in a tree of brokers write to each other: JSON lines over a UNIX socket.

    ⇄ {"brokerctl-tbon": 1, "rank": 3}         the first line each way
    ⇄ {"type": "Goodbye"}                      a message (records.Message)
    ⇄                                          an empty line: a heartbeat

Whatever comes is checked here before the model sees it: its type, who may say it, and the ranks that it speaks for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from brokerctl.model.lifecycle import State
from brokerctl.records import (
    Abort,
    AnyMessage,
    ConfigGet,
    ConfigIs,
    Disconnect,
    EventThere,
    EventWanted,
    Exec,
    Forward,
    Goodbye,
    GoodbyeOk,
    Hello,
    Message,
    Offline,
    Online,
    Results,
    Said,
    Shed,
    ShellFailed,
    StateIs,
)
from brokerctl.trace import LINE_SIZE_MAX

if TYPE_CHECKING:
    from collections.abc import Collection

# Who has not said who it is may not fill much memory; who has may send what a trace may hold.
FIRST_LINE_MAX = 256
LINE_MAX = LINE_SIZE_MAX
HEARTBEAT = b"\n"
EXIT_CODE_MAX = 255
STATUS_MAX = 0xFFFF  # of wait(2)

_FROM_CHILD = frozenset({Hello, ConfigGet, Online, Offline, Results, Said, ShellFailed, EventWanted, Goodbye})
_FROM_PARENT = frozenset({StateIs, ConfigIs, Disconnect, Shed, Exec, Abort, Forward, EventThere, GoodbyeOk})
_STATES = frozenset(State)


class NonsenseError(Exception):
    """Raised for what no neighbour says; the text says in a few words why."""


class _First(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: Literal[1] = msgspec.field(name="brokerctl-tbon")
    rank: int


_encode = msgspec.json.Encoder().encode
_decode_first = msgspec.json.Decoder(_First).decode
_decode: msgspec.json.Decoder[AnyMessage] = msgspec.json.Decoder(AnyMessage)


def first_line(rank: int) -> bytes:
    """The first line of a connection."""
    return _encode(_First(1, rank)) + b"\n"


def line(message: Message) -> bytes:
    """A message."""
    return _encode(message) + b"\n"


def parse_first(data: bytes) -> int:
    """The rank that a first line names; NonsenseError where it is none."""
    try:
        return _decode_first(data).rank
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise NonsenseError("no first line of a broker, or of another version") from None


def parse(data: bytes) -> AnyMessage:
    """A message; NonsenseError where it is none."""
    try:
        return _decode.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise NonsenseError("no message") from None


def check_child(message: AnyMessage, subtree: Collection[int]) -> None:
    """NonsenseError where a child that stands for these ranks can't say that."""
    if type(message) not in _FROM_CHILD:
        raise NonsenseError(f"{type(message).__name__} from a child")
    if isinstance(message, Online | Offline):
        _check_ranks(message.ranks, subtree)
    elif isinstance(message, Results):
        for status, rc, _how, ranks in message.results:
            _check_ranks(ranks, subtree)
            if not (0 <= rc <= EXIT_CODE_MAX and 0 <= status <= STATUS_MAX):
                raise NonsenseError(f"exit code {rc}, status {status}")
    elif isinstance(message, Said | ShellFailed | EventWanted):
        _check_ranks((message.rank,), subtree)


def check_parent(message: AnyMessage, subtree: Collection[int]) -> None:
    """NonsenseError where the parent of the rank that stands for these can't say that."""
    if type(message) not in _FROM_PARENT:
        raise NonsenseError(f"{type(message).__name__} from the parent")
    if isinstance(message, StateIs) and message.state not in _STATES:
        raise NonsenseError("a state that is none")
    if isinstance(message, Exec):
        _check_ranks(message.targets, subtree)
        if not message.command.argv:
            raise NonsenseError("a command without words")
    elif isinstance(message, Shed | EventThere):
        _check_ranks((message.rank,), subtree)


def _check_ranks(ranks: Collection[int], subtree: Collection[int]) -> None:
    if not all(rank in subtree for rank in ranks):
        raise NonsenseError("ranks that are not below it")


class Splitter:
    """Cuts what comes into lines, and keeps the beginning of the next one, up to a limit: a small one for the first."""

    __slots__ = ("_limit", "_rest")

    def __init__(self) -> None:
        self._rest = bytearray()
        self._limit = FIRST_LINE_MAX

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that are complete now; NonsenseError where one is too long."""
        *lines, rest = data.split(b"\n")
        if lines:
            lines[0] = bytes(self._rest) + lines[0]
            self._rest = bytearray()
        self._rest += rest
        for line in (*lines, self._rest):
            if len(line) > self._limit:
                raise NonsenseError("a line that is too long")
            self._limit = LINE_MAX if lines else self._limit
        return lines
