"""Eventlogs as Flux keeps them: one JSON object a line, with `timestamp`, `name` and perhaps `context` (RFC 18)."""

from __future__ import annotations

from typing import Any

import msgspec

from brokerctl.durations import S
from brokerctl.errors import TraceError


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One event; `t_ns` is CLOCK_REALTIME."""

    t_ns: int
    name: str
    context: dict[str, Any]


class _Json(msgspec.Struct, frozen=True, gc=False):
    timestamp: float
    name: str
    context: dict[str, Any] = {}


_decode = msgspec.json.Decoder(_Json).decode


def parse_line(text: str) -> Entry:
    """One line of an eventlog; TraceError where it is none."""
    try:
        found = _decode(text)
    except msgspec.MsgspecError as error:
        raise TraceError(f"no event of an eventlog: {error}") from None
    return Entry(round(found.timestamp * S), found.name, found.context)


def parse(text: str) -> list[Entry]:
    """A whole eventlog; a last line without an end is one that is still being written, and left out."""
    return [parse_line(line) for line in text.split("\n")[:-1] if line]
