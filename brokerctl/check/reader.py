"""What a reader of traces is, what it finds, and how each line reaches only those readers that want its kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec

from brokerctl.records import Line

# The kinds of record that a reader goes by; None is every line.
Wants = frozenset[type] | None
See = Callable[[Line], None]


class Finding(msgspec.Struct, frozen=True):
    """Something that should not be: which rule, one line of text (expected and got), and where in the trace."""

    name: str
    text: str
    t_ns: int = 0
    rank: int = 0


class Watch(Protocol):
    """Sees a trace line by line."""

    @property
    def wants(self) -> Wants:
        """The kinds that it goes by; it may be shown others too."""

    def see(self, line: Line) -> None:
        """One more line, in order."""


class Reader(Watch, Protocol):
    """Sees a trace line by line, and says at its end what it found."""

    @property
    def NAME(self) -> str:  # noqa: N802 - a constant of each class
        """The rule's name, as `violates` writes it."""

    def finish(self) -> list[Finding]:
        """The trace is at its end."""


class Dispatch:
    """Hands each line to those who want its kind, in the order in which they are given.

    `wants` is what all of them together need: a world need not make other lines.
    """

    def __init__(self, readers: Iterable[tuple[Wants, See]]) -> None:
        self._readers = tuple(readers)
        kinds = [wants for wants, _see in self._readers]
        self.wants: Wants = None if None in kinds else frozenset().union(*(each for each in kinds if each is not None))
        self._by_kind: dict[type, tuple[See, ...]] = {}

    def see(self, line: Line) -> None:
        """One more line of the trace."""
        kind = type(line.what)
        readers = self._by_kind.get(kind)
        if readers is None:
            readers = tuple(see for wants, see in self._readers if wants is None or kind in wants)
            self._by_kind[kind] = readers
        for see in readers:
            see(line)
