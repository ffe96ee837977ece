"""Who waits for whom, and for how long: the culprits of a slow stop, and what a stuck one hangs on."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nlargest

import msgspec

from brokerctl.model.lifecycle import STOPPING, State
from brokerctl.model.signals import TERMINATING
from brokerctl.records import Asked, Ended, Exit, Line, Moved, Served, Signal, Start, Waiting

# What is over is kept for the longest only: an instance of many ranks waits for hundreds of thousands of things.
OVER_MAX = 100

# Every follower in RUN says so; whether its leader is to be stopped, the leader's own wait tells.
PARENT_STOPS = "its parent to stop"

# A worker is there to run; when it is waited for, its stop says so.
WORKER = "worker."


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
        # The lines that began what a rank still waits for: small, where hundreds of thousands of ranks wait at once.
        self._open: dict[int, tuple[Line, ...]] = {}
        self._over: list[Culprit] = []
        self._stopping: dict[int, int] = {}  # rank → since when

    def see(self, line: Line) -> None:
        """One more line."""
        what, rank = line.what, line.rank
        self._now_ns = line.t_ns
        if rank < 0:
            return  # a unit's processes are told by its own states
        if isinstance(what, Moved):
            if what.old == State.LOAD_BUILTINS:  # a new life waits for nothing yet
                self._open.pop(rank, None)
                self._stopping.pop(rank, None)
            elif rank not in self._stopping and what.new in STOPPING:
                self._stopping[rank] = line.t_ns
        elif _begins(line):
            self._open[rank] = (*self._open.get(rank, ()), line)
        elif isinstance(what, Ended):
            self._close(line, what.run, None, what.rc)
        elif isinstance(what, Served):
            self._close(line, what.who, what.on, 0)
        elif isinstance(what, Exit):
            self._open.pop(rank, None)
        elif (isinstance(what, Signal) and what.signum in TERMINATING) or (
            isinstance(what, Asked) and what.what == "shutdown"
        ):
            self._stopping.setdefault(rank, line.t_ns)

    def _close(self, line: Line, who: str, on: str | None, rc: int) -> None:
        rank = line.rank
        lines = self._open.get(rank, ())
        for begun in lines:
            about = _about(begun)
            if about[0] == who and (on is None or on == about[1]):
                break
        else:
            return
        if len(lines) == 1:
            del self._open[rank]
        else:
            self._open[rank] = tuple(one for one in lines if one is not begun)
        held_ns = line.t_ns - max(begun.t_ns, self._stopping.get(rank, line.t_ns))
        if held_ns:  # else it waited for the stop
            self._over.append(Culprit(rank, *about, held_ns, ended=True, rc=rc))
            if len(self._over) > 2 * OVER_MAX:
                self._over = _longest(self._over)

    def waiting(self) -> list[Culprit]:
        """What is waited for at this line, the longest first."""
        return _longest(
            Culprit(rank, *_about(one), self._now_ns - max(one.t_ns, self._stopping.get(rank, 0)), ended=False)
            for rank, lines in self._open.items()
            for one in lines
        )

    def culprits(self) -> list[Culprit]:
        """What held up the stop, the longest first; what is still waited for comes before all that ended."""
        waiting = self.waiting()
        if self._stopping:
            waiting = [one for one in waiting if one.rank in self._stopping]
        return [*waiting, *_longest(self._over)]


def _begins(line: Line) -> bool:
    """Something is waited for from here on."""
    what = line.what
    if isinstance(what, Start):
        return not what.run.startswith(WORKER)
    return isinstance(what, Waiting) and not (line.rank and what.on == PARENT_STOPS)


def _about(line: Line) -> tuple[str, str]:
    """Who waits, and on what."""
    what = line.what
    if isinstance(what, Start):
        return what.run, what.command.text
    assert isinstance(what, Waiting)
    return what.who, what.on


def _longest(culprits: Iterable[Culprit]) -> list[Culprit]:
    return nlargest(OVER_MAX, culprits, key=lambda culprit: culprit.held_ns)
