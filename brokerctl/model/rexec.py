"""Actions on other ranks: one command, sent down the tree, run on each rank, its results gathered on the way up.

Each rank keeps what is pending behind each child: when a child is lost, the ranks behind it that have not answered fail
with EHOSTUNREACH at once (FLUX.md 45), whoever waits for them. Results of equal kind go up together, in batches. A
remote process ends by the ladder of its own rank, also when its parent is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from brokerctl.durations import MS, S
from brokerctl.ids import parse_idset
from brokerctl.model import bounds
from brokerctl.model.run import ERR, INFO, Run
from brokerctl.model.words import EHOSTUNREACH, error_text
from brokerctl.records import Abort, AnyMessage, Command, Ended, Exec, Results, Send, Served, Unreachable, Waiting

if TYPE_CHECKING:
    from brokerctl.model.node import Node

RESULT_BATCH_NS = 10 * MS
# How long the leader waits for answers after an abort where the ladder itself has no end (FLUX.md 37: rexec's 5 s).
ABORT_GRACE_NS = 5 * S
RC_LOST = 68  # EX_NOHOST of sysexits(3)
RC_SILENT = 137
UNREACHABLE = error_text(EHOSTUNREACH)


class _Pending:
    """One remote run on one rank: the local process, and who is awaited behind each child."""

    __slots__ = ("answered", "local", "over", "results", "run", "targets", "waiting")

    def __init__(self, run: str, targets: frozenset[int] | None, over: Callable[[], None]) -> None:
        self.run = run
        self.targets = targets  # None is every rank
        self.local: Run | None = None
        self.waiting: dict[int, int] = {}  # child → how many ranks behind it have not answered
        self.answered: dict[int, list[int]] = {}
        self.results: dict[tuple[int, str], list[int]] = {}  # (rc, how) → ranks, not sent up yet
        self.over = over

    def wanted(self, ranks: list[int]) -> list[int]:
        """Those of the ranks that the run is meant for."""
        return ranks if self.targets is None else [rank for rank in ranks if rank in self.targets]

    def add(self, rc: int, how: str, ranks: Iterable[int]) -> None:
        """These ranks have answered so."""
        self.results.setdefault((rc, how), []).extend(ranks)

    def is_over(self) -> bool:
        """Nobody is awaited any more."""
        return not self.waiting and self.local is None


_NOTHING: dict[str, _Pending] = {}


class Rexec:
    """The remote runs that pass through one rank."""

    __slots__ = ("_node", "_pending", "_when_idle")

    def __init__(self, node: Node) -> None:
        self._node = node
        self._pending = _NOTHING  # most ranks never run anything for others
        self._when_idle: Callable[[], None] | None = None

    def received(self, peer: int, message: AnyMessage) -> None:
        """A neighbour's message about a remote run."""
        match message:
            case Exec(run, command, targets):
                pending = _Pending(run, frozenset(targets) or None, lambda: self._send_up(pending))
                self.begin(pending, command)
            case Abort(run, hurry):
                self.abort(run, hurry=hurry)
            case Results(run, results) if run in self._pending:
                self._gather(self._pending[run], peer, results)
            case _:
                pass  # of a run that is over

    def begin(self, pending: _Pending, command: Command) -> None:
        """Start it here and hand it on to the children; ranks behind a child that is not there fail at once."""
        node, targets = self._node, pending.targets
        if self._pending is _NOTHING:
            self._pending = {}
        self._pending[pending.run] = pending
        for child in node.tree.children[node.rank]:
            ranks = pending.wanted(node.tree.subtree(child))
            if ranks and child in node.overlay.peers:
                pending.waiting[child] = len(ranks)
                pending.answered[child] = []
                node.emit(Send(child, Exec(pending.run, command, () if targets is None else tuple(ranks))))
            else:
                self._unreachable(pending, ranks)
        if targets is None or node.rank in targets:

            def done(rc: int, how: str) -> None:
                pending.local = None
                pending.add(rc, how, (node.rank,))
                self._flush(pending)
                if self._when_idle is not None and not self.running():
                    self._when_idle()

            pending.local = Run(node, f"rexec.{pending.run}", command, done)
            pending.local.begin()
        else:
            self._flush(pending)

    def _gather(self, pending: _Pending, peer: int, results: tuple[tuple[int, str, tuple[int, ...]], ...]) -> None:
        if peer not in pending.waiting:
            return
        for rc, how, ranks in results:
            pending.answered[peer] += ranks
            pending.waiting[peer] -= len(ranks)
            pending.add(rc, how, ranks)
        if not pending.waiting[peer]:
            del pending.waiting[peer], pending.answered[peer]
        self._flush(pending)

    def lost(self, child: int) -> None:
        """A child is lost: the ranks behind it that have not answered never will."""
        for pending in tuple(self._pending.values()):
            if child in pending.waiting:
                self._unreachable(pending, self._silent(pending, child))
                self._flush(pending)

    def _silent(self, pending: _Pending, child: int) -> list[int]:
        """The ranks behind a child that have not answered; they are awaited no more."""
        answered = set(pending.answered.pop(child))
        del pending.waiting[child]
        return [rank for rank in pending.wanted(self._node.tree.subtree(child)) if rank not in answered]

    def _unreachable(self, pending: _Pending, ranks: list[int]) -> None:
        if ranks:
            self._node.emit(Unreachable(ranks[0], f"{pending.run} on {self._node.tree.describe(ranks)}"))
            pending.add(RC_LOST, UNREACHABLE, ranks)

    def _flush(self, pending: _Pending) -> None:
        """Nobody is awaited: it is over here. Else what has come goes up soon, together with what comes meanwhile."""
        timer = f"rexec {pending.run}"
        if pending.is_over():
            self._node.cancel(timer)
            del self._pending[pending.run]
            pending.over()
        elif self._node.rank and not self._node.is_armed(timer):
            self._node.arm(timer, RESULT_BATCH_NS, lambda: self._send_up(pending))

    def _send_up(self, pending: _Pending) -> None:
        if pending.results:
            results = tuple((rc, how, tuple(ranks)) for (rc, how), ranks in pending.results.items())
            pending.results = {}
            self._node.overlay.to_parent(Results(pending.run, results))

    # ---- the end by force

    def abort(self, run: str, *, hurry: bool) -> None:
        """End that run by the ladder on every rank that has not answered."""
        pending = self._pending.get(run)
        if pending is None:
            return
        for child in pending.waiting:
            self._node.emit(Send(child, Abort(run, hurry)))
        if pending.local is not None and hurry:
            pending.local.hurry()
        elif pending.local is not None:
            pending.local.abort()

    def abort_local(self) -> None:
        """The parent is gone: what runs here for others ends by the ladder."""
        for pending in tuple(self._pending.values()):
            if pending.local is not None:
                pending.local.abort()

    def stop(self, when_idle: Callable[[], None]) -> None:
        """The broker is about to end: end what runs here, and say when nothing does any more."""
        self._when_idle = when_idle
        self.abort_local()

    def abandon(self) -> None:
        """Forget what runs here; nothing of it is waited for any more."""
        for pending in self._pending.values():
            if pending.local is not None:
                pending.local.abandon()
        self._pending.clear()
        self._when_idle = None

    def running(self) -> bool:
        """Something runs here for others."""
        return any(pending.local is not None for pending in self._pending.values())

    def give_up(self, run: str) -> None:
        """Whoever has not answered by now counts as silent."""
        pending = self._pending[run]
        for child in tuple(pending.waiting):
            pending.add(RC_SILENT, "no answer", self._silent(pending, child))
        self._flush(pending)


class RemoteRun:
    """An action that the leader runs on other ranks; to its list it is a run like any other."""

    __slots__ = ("_aborted", "_command", "_done", "_node", "_pending", "_ranks", "_started_ns", "name")

    def __init__(self, node: Node, name: str, command: Command, ranks: str, done: Callable[[int, str], None]) -> None:
        self._node = node
        self.name = name
        self._command = command
        self._ranks = ranks
        self._done = done
        self._started_ns = node.now_ns
        self._aborted = False
        targets = None if ranks == "all" else frozenset(parse_idset(ranks))
        self._pending = _Pending(name, targets, self._over)

    def begin(self) -> None:
        """Send it out."""
        self._node.emit(Waiting(self.name, f"ranks {self._ranks}"))
        self._node.rexec.begin(self._pending, self._command)

    def abort(self) -> None:
        """End it on every rank; those that don't answer within the ladder's time are given up."""
        if not self._aborted:
            self._end_by_force(hurry=False)

    def hurry(self) -> None:
        """One rung further on every rank."""
        self._end_by_force(hurry=True)

    def _end_by_force(self, *, hurry: bool) -> None:
        node = self._node
        node.rexec.abort(self.name, hurry=hurry)
        if not self._aborted:
            self._aborted = True
            ladder_ns = bounds.ladder_ns(node.settings)
            grace_ns = (ABORT_GRACE_NS if ladder_ns is None else ladder_ns) + bounds.REMOTE_SLACK_NS
            node.arm(f"silent {self.name}", grace_ns, lambda: node.rexec.give_up(self.name))

    def _over(self) -> None:
        """Every rank has answered, is lost, or was given up: one line a kind of result, not one a rank."""
        node, results = self._node, self._pending.results
        node.cancel(f"silent {self.name}")
        rc = max((rc for rc, _how in results), default=0)
        if rc:
            for (each, how), ranks in sorted(results.items()):
                where = node.tree.describe(sorted(ranks))
                node.log("broker", ERR if each else INFO, f"{self.name}: {where}: {how} (rc={each})")
        hows = {how for each, how in results if each == rc}
        how = hows.pop() if len(hows) == 1 else "Failed"
        node.emit(Served(self.name, f"ranks {self._ranks}"))
        node.emit(Ended(self.name, self._command.text, rc, how, node.now_ns - self._started_ns))
        self._done(rc, how)

    def about(self) -> dict[str, Any]:
        """What `status` says of it."""
        node, pending = self._node, self._pending
        silent = [
            rank
            for child, answered in pending.answered.items()
            for rank in set(pending.wanted(node.tree.subtree(child))).difference(answered)
        ]
        return {
            "run": self.name,
            "command": self._command.text,
            "for_ns": node.now_ns - self._started_ns,
            "exited": False,
            "signals": [],
            "ranks": self._ranks,
            "waits": node.tree.describe(sorted(silent)) if silent else "",
        }
