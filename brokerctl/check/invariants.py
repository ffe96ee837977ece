"""What must hold in every trace of every world: a name, a one-line statement, a streaming reader each.

Under the faithful policy some are known to fail, where FLUX.md says that Flux itself falls short; a scenario says so
(`violates`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from brokerctl.check.reader import Finding, Reader
from brokerctl.durations import as_short
from brokerctl.model import bounds
from brokerctl.model.lifecycle import State
from brokerctl.model.signals import TERMINATING
from brokerctl.model.tree import Tree
from brokerctl.records import Ended, Exit, Fired, Kill, Line, Moved, Signal, Start
from brokerctl.settings import Rung, Settings

# In these a terminating signal is heard; elsewhere it is ignored (FLUX.md 9).
_HEARD = frozenset({State.JOIN, State.CONFIG_SYNC, State.INIT, State.QUORUM, State.RUN, State.CLEANUP, State.FINALIZE})


class BoundsHeld:
    """Every state of a stop ends within the bound that `model.bounds` promises for it.

    A ladder without an end (Flux's single SIGHUP) promises nothing; an administrator reads the attribute as a promise
    all the same, so here the limits count without it.
    """

    NAME = "bounds-held"

    def __init__(self, settings: Settings, tree: Tree) -> None:
        if bounds.ladder_ns(settings) is None:
            settings = msgspec.structs.replace(settings, ladder=(Rung(1, 0),))
        self._settings, self._tree = settings, tree
        self._states: dict[int, State] = {}
        self._since: dict[int, int] = {}
        self._signalled: set[int] = set()
        self._findings: list[Finding] = []

    def see(self, line: Line) -> None:
        """One more line."""
        what, rank = line.what, line.rank
        if isinstance(what, Moved):
            self._left(rank, line.t_ns)
            self._states[rank], self._since[rank] = State(what.new), line.t_ns
        elif isinstance(what, Exit):
            self._states.pop(rank, None)
        elif isinstance(what, Signal) and what.signum in TERMINATING:
            state = self._states.get(rank)
            if state in _HEARD and rank not in self._signalled:
                self._signalled.add(rank)
                if state in {State.CLEANUP, State.FINALIZE}:
                    self._since[rank] = line.t_ns  # the bound counts from the signal (DESIGN 5)

    def _bound(self, rank: int) -> int | None:
        state = self._states[rank]
        signalled = rank in self._signalled
        return bounds.state_ns(state, self._settings, self._tree, rank, signalled=signalled)

    def _left(self, rank: int, t_ns: int) -> None:
        if rank not in self._states:
            return
        bound_ns, held_ns = self._bound(rank), t_ns - self._since[rank]
        if bound_ns is not None and held_ns > bound_ns:
            state = self._states[rank]
            text = f"{state} of rank {rank} lasted {as_short(held_ns)}; expected at most {as_short(bound_ns)}"
            self._findings.append(Finding(self.NAME, text, t_ns, rank))

    def finish(self) -> list[Finding]:
        """States that were never left count too."""
        for rank, state in self._states.items():
            bound_ns = self._bound(rank)
            if bound_ns is not None:
                text = f"{state} of rank {rank} never ended; expected at most {as_short(bound_ns)}"
                self._findings.append(Finding(self.NAME, text, self._since[rank], rank))
        return self._findings


class HonestExit:
    """Exit 0 implies that no action failed or was cut off."""

    NAME = "honest-exit"

    def __init__(self, _settings: Settings, _tree: Tree) -> None:
        self._failed: dict[int, Ended] = {}
        self._findings: list[Finding] = []

    def see(self, line: Line) -> None:
        """One more line."""
        what, rank = line.what, line.rank
        if isinstance(what, Ended) and what.rc:
            self._failed.setdefault(rank, what)
        elif isinstance(what, Exit) and what.code == 0 and rank in self._failed:
            failed = self._failed[rank]
            text = f"rank {rank} exited with 0 although {failed.run} ended with {failed.rc}"
            self._findings.append(Finding(self.NAME, text, line.t_ns, rank))

    def finish(self) -> list[Finding]:
        """What was found."""
        return self._findings


class StartsEnd:
    """Every action that a broker started has ended, or was told as still running, before the broker exits."""

    NAME = "starts-end"

    def __init__(self, _settings: Settings, _tree: Tree) -> None:
        self._open: set[tuple[int, str]] = set()
        self._findings: list[Finding] = []

    def see(self, line: Line) -> None:
        """One more line."""
        what, rank = line.what, line.rank
        if isinstance(what, Start):
            self._open.add((rank, what.run))
        elif isinstance(what, Ended):
            self._open.discard((rank, what.run))
        elif isinstance(what, Exit):
            for owner, run in sorted(self._open):
                if owner == rank:
                    text = f"rank {rank} exited while {run} had not ended"
                    self._findings.append(Finding(self.NAME, text, line.t_ns, rank))

    def finish(self) -> list[Finding]:
        """What was found."""
        return self._findings


class NothingAfterAbort:
    """After the abort of a list none of its actions starts, essential ones apart."""

    NAME = "nothing-after-abort"
    _ABORTS = frozenset({"cleanup-timeout", "finalize-timeout"})

    def __init__(self, settings: Settings, _tree: Tree) -> None:
        lists = (*settings.rc1, *settings.rc2, *settings.cleanup, *settings.rc3)
        self._essential = {action.command.text for action in lists if action.essential}
        self._aborting = False
        self._aborted: set[tuple[int, str]] = set()
        self._findings: list[Finding] = []

    def see(self, line: Line) -> None:
        """One more line."""
        what, rank = line.what, line.rank
        if line.dir == "<":
            timer = what.timer if isinstance(what, Fired) else ""
            self._aborting = isinstance(what, Signal) or timer in self._ABORTS
        elif isinstance(what, Kill) and self._aborting:
            self._aborted.add((rank, what.run.partition(".")[0]))
        elif isinstance(what, Start) and what.command.text not in self._essential:
            name = what.run.partition(".")[0]
            if (rank, name) in self._aborted:
                text = f"{what.run} of rank {rank} was started after {name} was aborted"
                self._findings.append(Finding(self.NAME, text, line.t_ns, rank))

    def finish(self) -> list[Finding]:
        """What was found."""
        return self._findings


class WellFormed:
    """Lines of a rank are numbered without gaps, time never goes back, and nothing follows its exit."""

    NAME = "well-formed"

    def __init__(self, _settings: Settings, _tree: Tree) -> None:
        self._next: dict[int, int] = {}
        self._now: dict[int, int] = {}
        self._exited: set[int] = set()
        self._findings: list[Finding] = []

    def see(self, line: Line) -> None:
        """One more line."""
        rank = line.rank
        expected = self._next.get(rank, 0)
        if line.n != expected:
            self._found(line, f"line {line.n} of rank {rank}; expected number {expected}")
        if line.t_ns < self._now.get(rank, line.t_ns):
            self._found(line, f"time of rank {rank} went back at line {line.n}")
        if rank in self._exited:
            self._found(line, f"line {line.n} of rank {rank} came after its exit")
        self._next[rank], self._now[rank] = line.n + 1, line.t_ns
        if isinstance(line.what, Exit):
            self._exited.add(rank)

    def _found(self, line: Line, text: str) -> None:
        self._findings.append(Finding(self.NAME, text, line.t_ns, line.rank))

    def finish(self) -> list[Finding]:
        """What was found."""
        return self._findings


INVARIANTS: Mapping[str, Callable[[Settings, Tree], Reader]] = {
    made.NAME: made for made in (BoundsHeld, HonestExit, StartsEnd, NothingAfterAbort, WellFormed)
}
