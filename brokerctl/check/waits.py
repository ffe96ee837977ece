"""Who waits for whom, and for how long: the culprits of a slow stop, and what a stuck one hangs on."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from brokerctl.model.lifecycle import STOPPING, State
from brokerctl.records import Asked, Ended, Exit, Line, Moved, Served, Signal, Start, Waiting


class Culprit(msgspec.Struct, frozen=True):
    """Something that a rank waited for during its stop: an action (`on` is its command) or a neighbour.

    `held_ns` is how long; of what never came, up to the trace's last line. `rc` is an action's code.
    """

    rank: int
    who: str
    on: str
    held_ns: int
    ended: bool
    rc: int = 0


class Waits:
    """A streaming reader; the trace of any world will do."""

    def __init__(self) -> None:
        self._now_ns = 0
        self._open: dict[tuple[int, str], tuple[str, int]] = {}  # (rank, who) → (on, since)
        self._over: list[Culprit] = []
        self._states: dict[int, str] = {}
        self._stopping: set[int] = set()

    def see(self, line: Line) -> None:
        """One more line."""
        self._now_ns = max(self._now_ns, line.t_ns)
        what, rank = line.what, line.rank
        if isinstance(what, Start):
            self._open[rank, what.run] = (what.command.text, line.t_ns)
        elif isinstance(what, Waiting):
            self._open[rank, what.who] = (what.on, line.t_ns)
        elif isinstance(what, Ended):
            self._close(line, what.run, what.rc)
        elif isinstance(what, Served):
            self._close(line, what.who, 0)
        elif isinstance(what, Moved):
            self._states[rank] = what.new
            if what.new in STOPPING:
                self._stopping.add(rank)
        elif isinstance(what, Signal) or (isinstance(what, Asked) and what.what == "shutdown"):
            self._stopping.add(rank)
        elif isinstance(what, Exit):
            for key in [key for key in self._open if key[0] == rank]:
                del self._open[key]

    def _close(self, line: Line, who: str, rc: int) -> None:
        on, since_ns = self._open.pop((line.rank, who), ("", 0))
        if on and line.rank in self._stopping:
            self._over.append(Culprit(line.rank, who, on, line.t_ns - since_ns, ended=True, rc=rc))

    def waiting(self) -> list[Culprit]:
        """What is waited for at this line, the longest first."""
        return _longest(
            Culprit(rank, who, on, self._now_ns - since_ns, ended=False)
            for (rank, who), (on, since_ns) in self._open.items()
        )

    def culprits(self) -> list[Culprit]:
        """What held up the stop, the longest first; what is still waited for comes before all that ended."""
        return [*self.waiting(), *_longest(self._over)]

    def state(self, rank: int) -> str:
        """The state that a rank was in last."""
        return self._states.get(rank, str(State.LOAD_BUILTINS))


def _longest(culprits: Iterable[Culprit]) -> list[Culprit]:
    return sorted(culprits, key=lambda culprit: -culprit.held_ns)
