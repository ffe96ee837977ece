"""Replay: a trace's inputs, fed to a fresh model, must give its outputs, at the same times.

Where they do, the trace holds all that the model has learned and done: no world hid an input or made up an output.
Only the ranks that the trace has lines of are built.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import msgspec

from brokerctl.errors import TraceError
from brokerctl.model.node import Node
from brokerctl.model.stopper import Stopper
from brokerctl.model.tree import Tree
from brokerctl.model.unit import Unit
from brokerctl.records import Aimed, Booted, Event, Exit, UnitSettings
from brokerctl.records.base import UNIT, WRAPPER
from brokerctl.settings import StopSettings
from brokerctl.trace import header

if TYPE_CHECKING:
    from collections.abc import Iterable

    from brokerctl.model.desk import Desk
    from brokerctl.records import Effect, Line
    from brokerctl.trace import Header

# Pseudo-ranks that are models too.
_OTHERS = frozenset({UNIT, WRAPPER})


class Difference(msgspec.Struct, frozen=True):
    """The first line that a fresh model would not have written.

    `index` counts the trace's lines from 0, without the header; it is one beyond the last where the trace ends too
    early. `expected` is what was recorded, `got` what the model does there.
    """

    index: int
    expected: str
    got: str


class _Rank:
    """One rank's fresh model, and what of its effects has not been seen in the trace yet."""

    def __init__(self, model: Desk | Unit, number: int) -> None:
        self.model = model
        self.now_ns = 0
        self.next = number  # of its next line
        self.effects: deque[Effect] = deque()
        self.exited = False

    def pending(self) -> str:
        return f"> {self.effects[0]!r} at {self.now_ns} ns" if self.effects else "no output"

    def see(self, line: Line) -> str:
        """What the model does instead of this line; "" where it does just that."""
        if line.n != self.next:
            return f"number {self.next} of rank {line.rank}"
        self.next += 1
        return self._feed(line) if line.dir == "<" else self._compare(line)

    def _feed(self, line: Line) -> str:
        if self.effects:
            return self.pending()
        if not isinstance(line.what, Event):
            return "an input: this is an output"
        if self.exited:
            return f"nothing: rank {line.rank} has exited"
        made: list[Effect] = []
        self.now_ns = line.t_ns
        try:
            self.model.handle(line.t_ns, line.what, made)
        except Exception as error:  # noqa: BLE001 - an input that was never given may break any rule of the model
            return f"an input that cannot be here: {type(error).__name__}: {error}"
        self.effects.extend(made)
        return ""

    def _compare(self, line: Line) -> str:
        if not self.effects or line.t_ns != self.now_ns or not _equal(line.what, self.effects[0]):
            return self.pending()
        self.exited |= isinstance(self.effects.popleft(), Exit)
        return ""


def _equal(recorded: object, made: object) -> bool:
    # An answer's body may hold what is another type, but the same text, after JSON (tuples and lists).
    return recorded == made or msgspec.json.encode(recorded) == msgspec.json.encode(made)


def check_header(head: Header, where: str) -> None:
    """TraceError where a header can't be of a real trace; `where` names the file."""
    parents, hosts = head.topology.parents, head.topology.hosts
    if header(head.settings, head.topology).settings_hash != head.settings_hash:
        raise TraceError(f"{where}:1: the settings are not those that the trace was written with (settings_hash)")
    if len(hosts) != len(parents) or parents[:1] != (-1,):
        raise TraceError(f"{where}:1: no topology; expected a parent and a host for each rank, -1 for the leader")
    if any(not 0 <= parent < rank for rank, parent in enumerate(parents) if rank):
        raise TraceError(f"{where}:1: no topology; expected each parent to have a lower rank than its children")


def _model(rank: int, head: Header, tree: Tree) -> Desk | Unit:
    """The fresh model of a rank; of a service unit and of the wrapper of a stop, at their pseudo-ranks."""
    if rank == UNIT:
        return Unit(head.unit or UnitSettings())
    if rank == WRAPPER:
        return Stopper(head.stop or StopSettings())
    return Node(rank, head.settings, tree)


def first_difference(head: Header, lines: Iterable[Line]) -> Difference | None:
    """The first line where a fresh model differs; None where it gives exactly this trace."""
    tree = Tree(head.topology)
    ranks: dict[int, _Rank] = {}
    count = 0
    for index, line in enumerate(lines):
        if not (0 <= line.rank < tree.size or line.rank in _OTHERS):
            return Difference(index, f"a line of rank {line.rank}", f"{tree.size} ranks")
        rank = ranks.get(line.rank)
        if rank is None or (isinstance(line.what, Booted | Aimed) and not rank.effects):
            # The first life of this rank, or a new one after a crash; its lines are numbered on.
            rank = ranks[line.rank] = _Rank(_model(line.rank, head, tree), rank.next if rank else 0)
        got = rank.see(line)
        if got:
            recorded = f"{line.dir} {line.what!r} at {line.t_ns} ns"
            return Difference(index, recorded if got != recorded else f"{recorded}, number {line.n}", got)
        count = index + 1
    for number, rank in sorted(ranks.items()):
        if rank.effects:
            return Difference(count, "the end of the trace", f"rank {number} {rank.pending()}")
    return None
