"""Commands that the leader runs on other ranks: `Remote` for jobs, `RemoteRun` for actions of a list."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal

from brokerctl.durations import S
from brokerctl.ids import parse_idset
from brokerctl.model import bounds
from brokerctl.model.rexec import Answer, Pending
from brokerctl.model.run import ERR, INFO
from brokerctl.records import Command, Ended, Served, Waiting
from brokerctl.settings import Rung

if TYPE_CHECKING:
    from brokerctl.model.node import Node

# How long the leader waits for answers after an abort where the ladder itself has no end (FLUX.md 37: rexec's 5 s).
ABORT_GRACE_NS = 5 * S


class Remote:
    """A command of a job on a set of ranks, as the leader sees it.

    `progress(answer, ranks)` is called as answers come, `done()` when nobody is awaited any more, `said(rank, stream,
    text)` for each line that it writes.
    """

    __slots__ = ("_command", "_node", "_pending", "name")

    def __init__(
        self,
        node: Node,
        name: str,
        command: Command,
        ranks: Iterable[int],
        *,
        rungs: tuple[Rung, ...],
        progress: Callable[[Answer, tuple[int, ...]], None],
        done: Callable[[], None],
        said: Callable[[int, Literal["out", "err"], str], None],
    ) -> None:
        self._node = node
        self.name = name
        self._command = command
        self._pending = Pending(name, frozenset(ranks), done, rungs, progress, said)

    def begin(self) -> None:
        """Send it out."""
        self._node.rexec.begin(self._pending, self._command)

    def abort(self) -> None:
        """End it by its ladder on every rank that has not answered."""
        self._node.rexec.abort(self.name, hurry=False)

    def forward(self, signum: int) -> None:
        """Hand it a signal on every rank that has not answered."""
        self._node.rexec.forward(self.name, signum)

    def silent(self) -> list[int]:
        """The ranks that have not answered."""
        return self._node.rexec.silent(self.name)

    def forget(self) -> None:
        """Nobody waits for it any more."""
        self._node.rexec.forget(self.name)


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
        self._pending = Pending(name, targets, self._over)

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
        rc = max((rc for _status, rc, _how in results), default=0)
        if rc:
            for (_status, each, how), ranks in sorted(results.items(), key=lambda item: item[0][1:]):
                where = node.tree.describe(sorted(ranks))
                node.log("broker", ERR if each else INFO, f"{self.name}: {where}: {how} (rc={each})")
        hows = {how for _status, each, how in results if each == rc}
        how = hows.pop() if len(hows) == 1 else "Failed"
        node.emit(Served(self.name, f"ranks {self._ranks}"))
        node.emit(Ended(self.name, self._command.text, rc, how, node.now_ns - self._started_ns))
        self._done(rc, how)

    def about(self) -> dict[str, Any]:
        """What `status` says of it."""
        node = self._node
        silent = [rank for rank in node.rexec.silent(self.name) if rank]
        return {
            "run": self.name,
            "command": self._command.text,
            "for_ns": node.now_ns - self._started_ns,
            "exited": False,
            "signals": [],
            "ranks": self._ranks,
            "waits": node.tree.describe(silent) if silent else "",
        }
