"""Ranks that hold the stop are disconnected, so that what is pending to them fails and jobs end (FLUX.md 89, 102).

When is `bounds`'s: always before main's own shutdown-timeout (FLUX.md 57).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from brokerctl.durations import S, as_short
from brokerctl.ids import idset
from brokerctl.model import bounds
from brokerctl.model.lifecycle import State
from brokerctl.model.run import ERR, WARNING
from brokerctl.records.stops import Holding, Peers, ShedRank, Sheds

if TYPE_CHECKING:
    from brokerctl.model.stopper.stopper import Stopper

PEERS_TIMEOUT_NS = 5 * S
SHED_TIMEOUT_NS = 10 * S
# What was behind a shed rank needs this long to end; then the next level is looked at.
AGAIN_NS = 5 * S


class Shedding:
    """When, whom, and who was; `ranks` are those that are disconnected now."""

    __slots__ = ("_due_ns", "_stopper", "ranks")

    def __init__(self, stopper: Stopper) -> None:
        self._stopper = stopper
        self._due_ns: int | None = None
        self.ranks: set[int] = set()

    def entered(self, state: State) -> None:
        """Main is in another state: count anew."""
        stopper = self._stopper
        stopper.cancel("shed")
        self._due_ns = None
        after_ns = self.after_ns(state)
        if after_ns is not None and stopper.watch.look.rank == 0 and stopper.watch.look.size > 1:
            self._due_ns = max(stopper.now_ns, stopper.watch.since_ns + after_ns)
            stopper.arm("shed", self._due_ns - stopper.now_ns, self._due)

    def after_ns(self, state: State) -> int | None:
        """How long ranks may hold that state; None is for ever."""
        stopper = self._stopper
        if state is State.CLEANUP:
            return stopper.settings.shed_in_cleanup_after_ns
        if state is not State.SHUTDOWN:
            return None
        return bounds.shed_after_ns(stopper.settings, stopper.watch.limits.shutdown_timeout_ns)

    def left_ns(self) -> int | None:
        """How long until ranks are shed; None where they won't be."""
        return None if self._due_ns is None else max(0, self._due_ns - self._stopper.now_ns)

    def _due(self) -> None:
        self._stopper.questions.ask("peers", Peers, PEERS_TIMEOUT_NS, self._told, self._failed)

    def _failed(self, why: str) -> None:
        self._stopper.log("stop", WARNING, f"ranks that hold the stop can't be shed: {why}")
        self._again()

    def _again(self) -> None:
        if self._stopper.watch.state in {State.CLEANUP, State.SHUTDOWN}:
            self._stopper.arm("shed", AGAIN_NS, self._due, reminder=True)

    def _told(self, peers: Peers) -> None:
        stopper = self._stopper
        holding = [peer for peer in peers.holding if peer.rank > 0 and peer.rank not in self.ranks]
        if not holding:
            if peers.text:
                stopper.say_once(f"{stopper.watch.state}: {peers.text}, none of which is to blame by itself")
            self._again()
            return
        for peer in holding:
            stopper.log(
                "stop", ERR, f"{stopper.watch.state} is held by {_shown(peer)}: it is shed{_along(peer.severs)}"
            )
        ranks = idset(sorted(peer.rank for peer in holding))
        stopper.questions.ask("shed", Sheds, SHED_TIMEOUT_NS, self._shed, self._failed, (ranks,))

    def _shed(self, done: Sheds) -> None:
        for each in done.ranks:
            if each.error:
                self._stopper.log("stop", ERR, f"rank {each.rank} can't be shed: {each.error}")
            else:
                self._gone(each)
        self._again()

    def _gone(self, each: ShedRank) -> None:
        stopper = self._stopper
        self.ranks.add(each.rank)
        after_ns = stopper.watch.known_ns()
        where = f"{each.host} (rank {each.rank})" if each.host else f"rank {each.rank}"
        stopper.broke(f"{where} was shed after {as_short(after_ns)} of {stopper.watch.state}")
        jobs = f"; jobs cut off: {' '.join(each.jobs)}" if each.jobs else ""
        stopper.log("stop", ERR, f"shed {where}{_along(each.severed)}{jobs}")


def _shown(peer: Holding) -> str:
    where = f"{peer.host} (rank {peer.rank})" if peer.host else f"rank {peer.rank}"
    return f"{where}, {peer.status}" if peer.status else where


def _along(ranks: str) -> str:
    return f", and its subtree with it (ranks {ranks})" if ranks else ""
