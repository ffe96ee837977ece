"""Commands on other ranks: sent down the tree, run on each rank, their results gathered on the way up.

Each rank keeps what is pending behind each child: when a child is lost or has left, the ranks behind it that have not
answered fail with EHOSTUNREACH at once (FLUX.md 45), whoever waits for them. Results of equal kind go up together, in
batches. A remote process ends by the ladder that came with its command, else by that of its own rank, also when its
parent is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Literal

from brokerctl.durations import MS, S
from brokerctl.model.run import CRIT, ERR, Run
from brokerctl.model.words import EHOSTUNREACH, error_text
from brokerctl.records import (
    Abort,
    AnyMessage,
    Command,
    Exec,
    Forward,
    Results,
    Said,
    Send,
    ShellFailed,
    Unreachable,
)
from brokerctl.settings import Rung

if TYPE_CHECKING:
    from brokerctl.model.node import Node

RESULT_BATCH_NS = 10 * MS
RC_LOST = 68  # EX_NOHOST of sysexits(3)
RC_SILENT = 137
UNREACHABLE = error_text(EHOSTUNREACH)
NO_ANSWER = "no answer"
# Processes of jobs that are left when the broker ends get SIGTERM, and this later SIGKILL (FLUX.md 55).
JOB_GRACE_NS = 5 * S
TIMED_OUT = "Connection timed out"
JOB = "job."  # how the names of runs of jobs begin: what became of them is told by the leader, not by each broker

Answer = tuple[int, int, str]  # wait status, rc, how


class Pending:
    """One remote run on one rank: the local process, and who is awaited behind each child.

    `over` is called when nobody is awaited any more, `progress(answer, ranks)` as answers come.
    """

    __slots__ = ("answered", "local", "over", "progress", "results", "run", "rungs", "said", "targets", "waiting")

    def __init__(
        self,
        run: str,
        targets: frozenset[int] | None,
        over: Callable[[], None],
        rungs: tuple[Rung, ...] = (),
        progress: Callable[[Answer, tuple[int, ...]], None] | None = None,
        said: Callable[[int, Literal["out", "err"], str], None] | None = None,
    ) -> None:
        self.run = run
        self.targets = targets  # None is every rank
        self.rungs = rungs
        self.local: Run | None = None
        self.waiting: dict[int, int] = {}  # child → how many ranks behind it have not answered
        self.answered: dict[int, list[int]] = {}
        self.results: dict[Answer, list[int]] = {}  # not sent up yet
        self.over = over
        self.progress = progress
        self.said = said

    def wanted(self, ranks: list[int]) -> list[int]:
        """Those of the ranks that the run is meant for."""
        return ranks if self.targets is None else [rank for rank in ranks if rank in self.targets]

    def add(self, answer: Answer, ranks: Iterable[int]) -> None:
        """These ranks have answered so."""
        ranks = tuple(ranks)
        self.results.setdefault(answer, []).extend(ranks)
        if self.progress is not None:
            self.progress(answer, ranks)

    def is_over(self) -> bool:
        """Nobody is awaited any more."""
        return not self.waiting and self.local is None

    def forget(self) -> None:
        """Nobody wants to know of it any more."""
        self.progress = self.said = None
        self.over = _nothing


_NOTHING: dict[str, Pending] = {}


class Rexec:
    """The remote runs that pass through one rank."""

    __slots__ = ("_node", "_pending", "_when_idle")

    def __init__(self, node: Node) -> None:
        self._node = node
        self._pending = _NOTHING  # most ranks never run anything for others
        self._when_idle: Callable[[], None] | None = None

    def received(self, peer: int, message: AnyMessage) -> None:
        """A neighbour's message about a remote run; nothing comes of one about a run that is over."""
        match message:  # what comes most stands first
            case Results():
                pending = self._pending.get(message.run)
                if pending is not None:
                    self._gather(pending, peer, message.results)
            case Exec():
                self._received_exec(message)
            case Abort():
                self.abort(message.run, hurry=message.hurry)
            case Forward():
                self.forward(message.run, message.signum)
            case Said(run, rank, stream, text):
                self._said(run, rank, stream, text)
            case ShellFailed():
                self._shell_failed(message.run, message.rank)
            case _:
                pass

    def _received_exec(self, message: Exec) -> None:
        rungs = tuple(Rung(signum, wait_ns) for signum, wait_ns in message.ladder)
        targets = frozenset(message.targets) or None
        pending = Pending(message.run, targets, lambda: self._send_up(pending), rungs)
        self.begin(pending, message.command)

    def begin(self, pending: Pending, command: Command) -> None:
        """Start it here and hand it on to the children; ranks behind a child that is not there fail at once."""
        node, targets = self._node, pending.targets
        if self._pending is _NOTHING:
            self._pending = {}
        self._pending[pending.run] = pending
        ladder = tuple((rung.signum, rung.wait_ns) for rung in pending.rungs)
        for child, ranks in self._by_child(targets):
            if child in node.overlay.peers:
                pending.waiting[child] = len(ranks)
                pending.answered[child] = []
                node.emit(Send(child, Exec(pending.run, command, () if targets is None else tuple(ranks), ladder)))
            else:
                self._unreachable(pending, ranks)
        if targets is None or node.rank in targets:
            self._start(pending, command)
        else:
            self._flush(pending)

    def _by_child(self, targets: frozenset[int] | None) -> list[tuple[int, list[int]]]:
        """The ranks that are meant behind each child."""
        tree, rank = self._node.tree, self._node.rank
        if targets is None:
            return [(child, tree.subtree(child)) for child in tree.children[rank]]
        found: dict[int, list[int]] = {}
        for target in sorted(targets):
            child = tree.hop(rank, target)
            if child >= 0:
                found.setdefault(child, []).append(target)
        return sorted(found.items())

    def _start(self, pending: Pending, command: Command) -> None:
        node, job = self._node, pending.run.startswith(JOB)

        def done(rc: int, how: str) -> None:
            assert pending.local is not None
            status, pending.local = pending.local.status, None
            pending.add((status, rc, how), (node.rank,))
            self._flush(pending)
            if self._when_idle is not None and not self.running():
                self._when_idle()

        def said(stream: Literal["out", "err"], text: str) -> None:
            self._said(pending.run, node.rank, stream, text)

        name = pending.run if job else f"rexec.{pending.run}"
        pending.local = Run(node, name, command, done, rungs=pending.rungs, said=said if job else None)
        pending.local.begin()

    def _said(self, run: str, rank: int, stream: Literal["out", "err"], text: str) -> None:
        """A run of a job wrote a line: the leader logs it."""
        if self._node.rank:
            self._node.overlay.to_parent(Said(run, rank, stream, text))
            return
        pending = self._pending.get(run)
        if pending is not None and pending.said is not None:
            pending.said(rank, stream, text)

    def _gather(self, pending: Pending, peer: int, results: tuple[tuple[int, int, str, tuple[int, ...]], ...]) -> None:
        if peer not in pending.waiting:
            return
        for status, rc, how, ranks in results:
            pending.answered[peer] += ranks
            pending.waiting[peer] -= len(ranks)
            pending.add((status, rc, how), ranks)
        if not pending.waiting.get(peer, 1):
            del pending.waiting[peer], pending.answered[peer]
        self._flush(pending)

    def lost(self, child: int) -> None:
        """A child is lost, or has left: the ranks behind it that have not answered never will."""
        for pending in tuple(self._pending.values()):
            if child in pending.waiting:
                self._unreachable(pending, self._silent(pending, child))
                self._flush(pending)

    def _silent(self, pending: Pending, child: int) -> list[int]:
        """The ranks behind a child that have not answered; they are awaited no more."""
        answered = set(pending.answered.pop(child))
        del pending.waiting[child]
        ranks = self._node.tree.subtree(child)
        return [rank for rank in pending.wanted(ranks) if rank not in answered]

    def _unreachable(self, pending: Pending, ranks: list[int]) -> None:
        if ranks:
            if not pending.run.startswith(JOB):
                self._node.emit(Unreachable(ranks[0], f"{pending.run} on {self._node.tree.describe(ranks)}"))
            pending.add((RC_LOST << 8, RC_LOST, UNREACHABLE), ranks)

    def _flush(self, pending: Pending) -> None:
        """Nobody is awaited: it is over here. Else what has come goes up soon, together with what comes meanwhile."""
        if self._pending.get(pending.run) is not pending:
            return  # its end was brought about by what it told last
        timer = f"rexec {pending.run}"
        if pending.is_over():
            self._node.cancel(timer)
            del self._pending[pending.run]
            pending.over()
            pending.forget()  # whom it told knows it too: a circle that nobody else would undo
        elif self._node.rank and not self._node.is_armed(timer):
            self._node.arm(timer, RESULT_BATCH_NS, lambda: self._send_up(pending))

    def _send_up(self, pending: Pending) -> None:
        if pending.results:
            results = tuple((*answer, tuple(ranks)) for answer, ranks in pending.results.items())
            pending.results = {}
            self._node.overlay.to_parent(Results(pending.run, results))

    def silent(self, run: str) -> list[int]:
        """The ranks that have not answered yet."""
        pending = self._pending.get(run)
        if pending is None:
            return []
        here = [] if pending.local is None else [self._node.rank]
        behind = [
            rank
            for child, answered in pending.answered.items()
            for rank in set(pending.wanted(self._node.tree.subtree(child))).difference(answered)
        ]
        return sorted(here + behind)

    def forward(self, run: str, signum: int) -> None:
        """Hand a signal to that run on every rank that has not answered."""
        pending = self._pending.get(run)
        if pending is None:
            return
        for child in pending.waiting:
            self._node.emit(Send(child, Forward(run, signum)))
        if pending.local is not None:
            pending.local.signal(signum)

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

    def _local(self) -> list[Pending]:
        return [pending for pending in self._pending.values() if pending.local is not None]

    def abort_local(self) -> None:
        """The parent is gone: what runs here for others ends by the ladder; processes of jobs are left to their end."""
        for pending in self._local():
            if pending.local is not None and not pending.run.startswith(JOB):
                pending.local.abort()

    def stop(self, when_idle: Callable[[], None]) -> None:
        """The broker is about to end: end what runs here, and say when nothing does any more."""
        self._when_idle = when_idle
        for pending in self._local():
            if pending.local is not None:
                pending.local.abort()
        if any(pending.run.startswith(JOB) for pending in self._local()):
            self._node.arm("rexec-grace", JOB_GRACE_NS, self._grace_over)

    def _grace_over(self) -> None:
        """What is left of jobs does not end: the module does without it (FLUX.md 55, 41)."""
        jobs = [pending for pending in self._local() if pending.run.startswith(JOB)]
        if not jobs:
            return
        log = self._node.log
        log("rexec", ERR, f"subprocess server shutdown: {TIMED_OUT}")
        log("rexec", ERR, f"flux_reactor_run: {TIMED_OUT}")
        log("rexec", CRIT, "module exiting abnormally")
        log("broker", ERR, f"rexec: {TIMED_OUT}")
        for pending in jobs:
            if pending.local is not None:
                pending.local.kill()

    def kill_jobs(self) -> None:
        """The job manager is unloaded: what it started here is killed (FLUX.md 55)."""
        for pending in self._local():
            if pending.local is not None and pending.run.startswith(JOB):
                pending.local.kill()

    def modules_unloaded(self) -> None:
        """rc3 has run: shells of running jobs here can't watch their jobs; they say so, and end (FLUX.md 65)."""
        if self._node.jobs is not None:
            self._node.jobs.shells_fail_here()
        for pending in self._local():
            if pending.run.endswith(".task") and pending.local is not None:
                if self._node.rank:
                    self._shell_failed(pending.run, self._node.rank)
                pending.local.kill()

    def end_tasks(self) -> None:
        """The broker stops, and does not leave tasks to the end of its modules: they end, and their job is told."""
        for pending in self._local():
            if pending.run.endswith(".task") and pending.local is not None:
                self._shell_failed(pending.run, self._node.rank)
                pending.local.abort()

    def _shell_failed(self, run: str, rank: int) -> None:
        if self._node.rank:
            self._node.overlay.to_parent(ShellFailed(run, rank))
        elif self._node.jobs is not None:
            self._node.jobs.shell_failed(run, rank)

    def abandon(self) -> None:
        """Forget what runs here; nothing of it is waited for any more."""
        for pending in self._local():
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
            pending.add((RC_SILENT << 8, RC_SILENT, NO_ANSWER), self._silent(pending, child))
        self._flush(pending)

    def forget(self, run: str) -> None:
        """Nobody wants to know of that run any more; its processes run on."""
        pending = self._pending.get(run)
        if pending is not None:
            pending.forget()


def _nothing() -> None:
    """The end of a run that nobody waits for."""
