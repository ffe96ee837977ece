"""What a reader of traces is, and what it finds."""

from __future__ import annotations

from typing import Protocol

import msgspec

from brokerctl.records import Line


class Finding(msgspec.Struct, frozen=True):
    """Something that should not be: which rule, one line of text (expected and got), and where in the trace."""

    name: str
    text: str
    t_ns: int = 0
    rank: int = 0


class Reader(Protocol):
    """Sees a trace line by line, and says at its end what it found."""

    def see(self, line: Line) -> None:
        """One more line, in order."""

    def finish(self) -> list[Finding]:
        """The trace is at its end."""
