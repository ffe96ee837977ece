"""What must hold in every trace of every world: a name, a one-line statement, a streaming reader each.

Under the faithful policy some are known to fail, where FLUX.md says that Flux itself falls short; a scenario says so
(`violates`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from brokerctl.check import job_invariants
from brokerctl.check.deadlock import NoDeadlock
from brokerctl.check.reader import Finding, Reader, Wants
from brokerctl.check.stored import NothingStoredIsLost
from brokerctl.durations import as_short
from brokerctl.model import bounds
from brokerctl.model.lifecycle import State
from brokerctl.model.signals import TERMINATING
from brokerctl.model.tree import Tree
from brokerctl.records import Booted, Ended, Exit, Fired, Hangup, Kill, Line, Lost, Moved, Signal, Start
from brokerctl.settings import Rung, Settings

# From a terminating signal in these on, a stop is one that a signal asked for; elsewhere it comes too late.
_HEARD = frozenset(State) - {State.LOAD_BUILTINS, State.GOODBYE, State.UNLOAD_BUILTINS, State.EXIT}

# A run that a rank does for the leader: the leader's action answers for it, or the eventlog of a job.
_FOR_OTHERS = ("rexec.", "job.")


class BoundsHeld:
    """Every state of a stop ends within the bound that `model.bounds` promises for it.

    A ladder without an end (Flux's single SIGHUP) promises nothing; an administrator reads the attribute as a promise
    all the same, so here the limits count without it.
    """

    NAME = "bounds-held"
    wants: Wants = frozenset({Moved, Exit, Signal})

    def __init__(self, settings: Settings, tree: Tree) -> None:
        if bounds.ladder_ns(settings) is None:
            settings = msgspec.structs.replace(settings, ladder=(Rung(1, 0),))
        self._settings, self._tree = settings, tree
        self._states: dict[int, str] = {}
        self._since: dict[int, int] = {}  # when the bound of that state begins to count
        self._signalled: set[int] = set()
        self._findings: list[Finding] = []

    def see(self, line: Line) -> None:
        """One more line."""
        what, rank = line.what, line.rank
        if isinstance(what, Moved):
            now_ns = line.t_ns
            if what.old == State.LOAD_BUILTINS:  # a new life; what became of the last one says nothing of this
                self._since.pop(rank, None)
                self._signalled.discard(rank)
            if now_ns - self._since.get(rank, now_ns) > bounds.SLACK_NS:  # which every bound includes
                self._left(rank, now_ns)
            self._states[rank], self._since[rank] = what.new, now_ns
        elif isinstance(what, Exit):
            self._states.pop(rank, None)
            self._since.pop(rank, None)
        elif isinstance(what, Signal) and what.signum in TERMINATING:
            state = self._states.get(rank)
            if state in _HEARD and rank not in self._signalled:
                self._signalled.add(rank)
                if state in {State.CLEANUP, State.FINALIZE}:
                    self._since[rank] = line.t_ns  # the bound counts from the signal

    def _bound(self, rank: int) -> int | None:
        state, signalled = State(self._states[rank]), rank in self._signalled
        return bounds.state_ns(state, self._settings, self._tree, rank, signalled=signalled)

    def _left(self, rank: int, t_ns: int) -> None:
        bound_ns, held_ns = self._bound(rank), t_ns - self._since[rank]
        if bound_ns is not None and held_ns > bound_ns:
            state, limit = self._states[rank], as_short(bound_ns)
            text = f"{state} of rank {rank} lasted {as_short(held_ns)}; expected at most {limit}"
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
    """Exit 0 implies that no action and no required worker failed or was cut off."""

    NAME = "honest-exit"
    wants: Wants = frozenset({Booted, Ended, Exit})

    def __init__(self, settings: Settings, _tree: Tree) -> None:
        self._optional = {f"worker.{worker.name}" for worker in settings.workers if not worker.required}
        self._failed: dict[int, Ended] = {}
        self._findings: list[Finding] = []

    def see(self, line: Line) -> None:
        """One more line."""
        what, rank = line.what, line.rank
        if isinstance(what, Ended) and what.rc and not what.run.startswith(_FOR_OTHERS):
            if what.run in self._optional:
                return
            self._failed.setdefault(rank, what)
        elif isinstance(what, Booted):
            self._failed.pop(rank, None)
        elif isinstance(what, Exit):
            failed = self._failed.get(rank)
            if what.code or failed is None:
                return
            text = f"rank {rank} exited with 0 although {failed.run} ended with {failed.rc}"
            self._findings.append(Finding(self.NAME, text, line.t_ns, rank))

    def finish(self) -> list[Finding]:
        """What was found."""
        return self._findings


class StartsEnd:
    """Every action that a broker started has ended, or was told as still running, before the broker exits.

    Of one that was killed nothing is known.
    """

    NAME = "starts-end"
    wants: Wants = frozenset({Booted, Start, Ended, Exit})

    def __init__(self, _settings: Settings, _tree: Tree) -> None:
        self._open: dict[int, set[str]] = {}
        self._findings: list[Finding] = []

    def see(self, line: Line) -> None:
        """One more line."""
        what, rank = line.what, line.rank
        if isinstance(what, Start):
            self._open.setdefault(rank, set()).add(what.run)
        elif isinstance(what, Ended):
            self._open.get(rank, set()).discard(what.run)
        elif isinstance(what, Booted):
            self._open.pop(rank, None)
        elif isinstance(what, Exit):
            for run in sorted(self._open.pop(rank, ())):
                text = f"rank {rank} exited while {run} had not ended"
                self._findings.append(Finding(self.NAME, text, line.t_ns, rank))

    def finish(self) -> list[Finding]:
        """What was found."""
        return self._findings


class TheDeadAreSpared:
    """No worker is signalled after its end: its pid may be another process's by then."""

    NAME = "the-dead-are-spared"

    def __init__(self, settings: Settings, _tree: Tree) -> None:
        self._workers = {f"worker.{worker.name}" for worker in settings.workers}
        self.wants: Wants = frozenset({Start, Ended, Kill} if self._workers else ())
        self._over: set[str] = set()
        self._findings: list[Finding] = []

    def see(self, line: Line) -> None:
        """One more line."""
        what = line.what
        if isinstance(what, Ended) and what.run in self._workers:
            self._over.add(what.run)
        elif isinstance(what, Start):
            self._over.discard(what.run)
        elif isinstance(what, Kill) and what.run in self._over:
            self._findings.append(Finding(self.NAME, f"{what.run} was signalled after its end", line.t_ns, line.rank))

    def finish(self) -> list[Finding]:
        """What was found."""
        return self._findings


class NothingAfterAbort:
    """After the abort of a list none of its actions starts, essential ones apart.

    A list is aborted where a signal, or its timeout, is answered by a `Kill`: at the same time of the same rank.
    """

    NAME = "nothing-after-abort"
    wants: Wants = frozenset({Booted, Signal, Fired, Kill, Start})
    _ABORTS = frozenset({"cleanup-timeout", "finalize-timeout"})

    def __init__(self, settings: Settings, _tree: Tree) -> None:
        lists = (*settings.rc1, *settings.rc2, *settings.cleanup, *settings.rc3)
        self._essential = {action.command.text for action in lists if action.essential}
        self._cause: dict[int, int] = {}  # rank → when it last had a reason to abort
        self._aborted: set[tuple[int, str]] = set()
        self._findings: list[Finding] = []

    def see(self, line: Line) -> None:
        """One more line."""
        what, rank = line.what, line.rank
        if isinstance(what, Signal) or (isinstance(what, Fired) and what.timer in self._ABORTS):
            self._cause[rank] = line.t_ns
        elif isinstance(what, Kill) and self._cause.get(rank) == line.t_ns and not what.run.startswith("job."):
            self._aborted.add((rank, what.run.partition(".")[0]))
        elif self._aborted and isinstance(what, Booted):
            self._aborted = {one for one in self._aborted if one[0] != rank}
        elif self._aborted and isinstance(what, Start) and what.command.text not in self._essential:
            name = what.run.partition(".")[0]
            if (rank, name) in self._aborted:
                text = f"{what.run} of rank {rank} was started after {name} was aborted"
                self._findings.append(Finding(self.NAME, text, line.t_ns, rank))

    def finish(self) -> list[Finding]:
        """What was found."""
        return self._findings


class LeavesToRoot:
    """A broker runs rc3 only when its connected children said goodbye, are lost or shed, or its bound ended.

    A child is connected when its parent has answered it (it leaves JOIN); its own states tell when it has come to its
    goodbye. A bound is an excuse for the parent alone: a child that it left behind, and that begins rc3 after it, had a
    bound that was no shorter than its parent's. FLUX.md 7.
    """

    NAME = "leaves-to-root"
    wants: Wants = frozenset({Moved, Lost, Hangup, Fired})
    _SEEN = frozenset({State.JOIN, State.CONFIG_SYNC, State.FINALIZE, State.GOODBYE, State.UNLOAD_BUILTINS, State.EXIT})

    def __init__(self, _settings: Settings, tree: Tree) -> None:
        self._tree = tree
        self._connected: set[int] = set()  # children that their parent waits for
        self._bound_ended: set[int] = set()
        self._left_behind: set[int] = set()
        self._findings: list[Finding] = []

    def see(self, line: Line) -> None:
        """One more line."""
        what, rank = line.what, line.rank
        if isinstance(what, Moved):
            if what.new in self._SEEN:
                self._moved(line, what)
        elif isinstance(what, Lost | Hangup):
            peer = what.peer if isinstance(what, Lost) else what.neighbour
            if self._tree.parents[peer] == rank:  # a child that is lost to its parent, or was hung up on
                self._connected.discard(peer)
        elif isinstance(what, Fired) and what.timer == "shutdown-timeout":
            self._bound_ended.add(rank)
            self._left_behind.update(self._connected.intersection(self._tree.children[rank]))

    def _moved(self, line: Line, what: Moved) -> None:
        rank = line.rank
        match what.new:
            case State.JOIN:  # a new life knows nobody
                self._bound_ended.discard(rank)
                self._left_behind.discard(rank)
                self._connected.difference_update(self._tree.children[rank])
            case State.CONFIG_SYNC if rank:
                self._connected.add(rank)
            case State.FINALIZE:
                self._finalize(line)
            case State.GOODBYE | State.UNLOAD_BUILTINS | State.EXIT:
                self._connected.discard(rank)

    def _finalize(self, line: Line) -> None:
        rank = line.rank
        if rank in self._left_behind:
            text = f"rank {rank} ran rc3 after rank {self._tree.parents[rank]}, its parent, whose bound had ended"
            self._findings.append(Finding(self.NAME, text, line.t_ns, rank))
        if not self._tree.children[rank] or rank in self._bound_ended:
            return
        early = [child for child in self._tree.children[rank] if child in self._connected]
        if early:
            text = f"rank {rank} ran rc3 before {self._tree.describe(early)} had said goodbye"
            self._findings.append(Finding(self.NAME, text, line.t_ns, rank))

    def finish(self) -> list[Finding]:
        """What was found."""
        return self._findings


class WellFormed:
    """Lines of a rank are numbered without gaps, time never goes back, and nothing follows its exit."""

    NAME = "well-formed"
    wants: Wants = None

    def __init__(self, _settings: Settings, _tree: Tree) -> None:
        self._next: dict[int, int] = {}
        self._now: dict[int, int] = {}
        self._exited: set[int] = set()
        self._findings: list[Finding] = []

    def see(self, line: Line) -> None:
        """One more line."""
        rank = line.rank
        if isinstance(line.what, Booted):
            self._exited.discard(rank)  # a service manager has started it again
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


_ABOUT_JOBS = (
    job_invariants.OneJobACore,
    job_invariants.EpilogsApart,
    job_invariants.JobsInOrder,
    job_invariants.StartsFinish,
    job_invariants.DrainedAreSpared,
    job_invariants.ReleasesAddUp,
    job_invariants.QuietServices,
)
ABOUT_JOBS = frozenset(made.NAME for made in _ABOUT_JOBS)
INVARIANTS: Mapping[str, Callable[[Settings, Tree], Reader]] = {
    made.NAME: made
    for made in (
        BoundsHeld,
        HonestExit,
        StartsEnd,
        TheDeadAreSpared,
        NothingAfterAbort,
        LeavesToRoot,
        WellFormed,
        NoDeadlock,
        NothingStoredIsLost,
        *_ABOUT_JOBS,
    )
}
