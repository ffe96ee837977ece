r"""What the core of a stop and its helper say to each other: JSON lines over two pipes, bounded and versioned.

    {"v":1,"id":7,"ask":"shed","words":["3"],"within_ns":5000000000}\n          core → helper
    {"v":1,"id":7,"answer":{"type":"Sheds","ranks":[{"type":"ShedRank","rank":3}]}}\n
    {"v":1,"id":7,"error":"flux: not found"}\n                                   helper → core

A question is answered once, in any order, at best within its time. The core trusts nothing of it: an unknown id is
ignored, a line that is no answer or too long ends the helper. The helper ends when its questions end (end of file).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from brokerctl.model.stopper.manager import STATUS_PREFIX
from brokerctl.records.stops import AnyAnswer, Ask

__all__ = ["LINE_MAX", "STATUS_PREFIX", "VERSION", "Question", "Reply", "encode", "question", "reply"]

VERSION = 1
# 16,384 ranks that hold SHUTDOWN, each with its host, are 2 MB; a report is bounded in itself.
LINE_MAX = 4 << 20

_T = TypeVar("_T", "Question", "Reply")


class Question(msgspec.Struct, frozen=True):
    """One question of the core."""

    id: int
    ask: Ask
    words: tuple[str, ...] = ()
    within_ns: int = 0
    v: int = VERSION


class Reply(msgspec.Struct, frozen=True):
    """One answer of the helper; `error` in its place says in words why there is none."""

    id: int
    answer: AnyAnswer | None = None
    error: str = ""
    v: int = VERSION


_encode = msgspec.json.Encoder().encode
_decode_question = msgspec.json.Decoder(Question).decode
_decode_reply = msgspec.json.Decoder(Reply).decode


def encode(message: Question | Reply) -> bytes:
    """One line, with its end."""
    return _encode(message) + b"\n"


def question(line: bytes) -> Question:
    """A question from its line; ValueError where it is none."""
    return _checked(_decoded(_decode_question, line))


def reply(line: bytes) -> Reply:
    """An answer from its line; ValueError where it is none."""
    return _checked(_decoded(_decode_reply, line))


def _decoded(decode: Callable[[bytes], _T], line: bytes) -> _T:
    try:
        return decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(str(error)) from None


def _checked(message: _T) -> _T:
    if message.v != VERSION:
        raise ValueError(f"version {message.v}; expected {VERSION}")
    return message
