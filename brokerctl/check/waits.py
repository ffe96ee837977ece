"""Who waits for whom, and for how long: the culprits of a slow stop, and what a stuck one hangs on."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nlargest

import msgspec

from brokerctl.model.lifecycle import STOPPING
from brokerctl.model.signals import TERMINATING
from brokerctl.records import Asked, Ended, Exit, Line, Moved, Served, Signal, Start, Waiting

# What is over is kept for the longest only: an instance of many ranks waits for hundreds of thousands of things.
OVER_MAX = 100


class Culprit(msgspec.Struct, frozen=True):
    """Something that a rank waited for during its stop: an action (`on` is its command) or a neighbour.

    `held_ns` is how long, counted from the stop's beginning on that rank at the earliest; of what never came, up to
    the trace's last line. `rc` is an action's code.
    """

    rank: int
    who: str
    on: str
    held_ns: int
    ended: bool
    rc: int = 0


class Waits:
    """A streaming reader; the trace of any world will do."""

    wants: frozenset[type] = frozenset({Start, Ended, Waiting, Served, Moved, Signal, Asked, Exit})

    def __init__(self) -> None:
        self._now_ns = 0
        self._open: dict[int, dict[tuple[str, str], tuple[str, int]]] = {}  # rank → who, on (of a run "") → (on, since)
        self._over: list[Culprit] = []
        self._stopping: dict[int, int] = {}  # rank → since when

    def see(self, line: Line) -> None:
        """One more line."""
        what, rank = line.what, line.rank
        self._now_ns = line.t_ns
        if isinstance(what, Moved):
            if rank not in self._stopping and what.new in STOPPING:
                self._stopping[rank] = line.t_ns
        elif isinstance(what, Start):
            self._open.setdefault(rank, {})[what.run, ""] = (what.command.text, line.t_ns)
        elif isinstance(what, Waiting):
            self._open.setdefault(rank, {})[what.who, what.on] = (what.on, line.t_ns)
        elif isinstance(what, Ended):
            self._close(line, what.run, "", what.rc)
        elif isinstance(what, Served):
            self._close(line, what.who, what.on, 0)
        elif isinstance(what, Exit):
            self._open.pop(rank, None)
        elif (isinstance(what, Signal) and what.signum in TERMINATING) or (
            isinstance(what, Asked) and what.what == "shutdown"
        ):
            self._stopping.setdefault(rank, line.t_ns)

    def _close(self, line: Line, who: str, key: str, rc: int) -> None:
        on, since_ns = self._open.get(line.rank, {}).pop((who, key), ("", 0))
        stopping_ns = self._stopping.get(line.rank)
        if not on or stopping_ns is None:
            return
        held_ns = line.t_ns - max(since_ns, stopping_ns)
        if held_ns:  # else it waited for the stop
            self._over.append(Culprit(line.rank, who, on, held_ns, ended=True, rc=rc))
            if len(self._over) > 2 * OVER_MAX:
                self._over = _longest(self._over)

    def waiting(self) -> list[Culprit]:
        """What is waited for at this line, the longest first."""
        return _longest(
            Culprit(rank, who, on, self._now_ns - max(since_ns, self._stopping.get(rank, 0)), ended=False)
            for rank, waits in self._open.items()
            for (who, _key), (on, since_ns) in waits.items()
        )

    def culprits(self) -> list[Culprit]:
        """What held up the stop, the longest first; what is still waited for comes before all that ended."""
        waiting = self.waiting()
        if self._stopping:
            waiting = [one for one in waiting if one.rank in self._stopping]
        return [*waiting, *_longest(self._over)]


def _longest(culprits: Iterable[Culprit]) -> list[Culprit]:
    return nlargest(OVER_MAX, culprits, key=lambda culprit: culprit.held_ns)
