"""Ranks that hold the stop are disconnected, so that what is pending to them fails and jobs end (FLUX.md 89, 102).

When is `bounds`'s: always before main's own shutdown-timeout (FLUX.md 57).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from brokerctl.durations import S, as_short
from brokerctl.ids import hostlist, idset
from brokerctl.model import bounds
from brokerctl.model.lifecycle import State
from brokerctl.model.run import ERR
from brokerctl.records.stops import Holding, Peers, ShedRank, Sheds

if TYPE_CHECKING:
    from brokerctl.model.stopper.stopper import Stopper

PEERS_TIMEOUT_NS = 5 * S
SHED_TIMEOUT_NS = 10 * S
# What was behind a shed rank needs this long to end; then the next level is looked at.
AGAIN_NS = 5 * S
# A dead switch leaves thousands of them: each is a command of its own, so not all at once, and a line for many.
AT_ONCE = 64
NAMED_MAX = 8
NAMES_LENGTH_MAX = 200


class Shedding:
    """When, whom, and who was; `ranks` are those that are disconnected now."""

    __slots__ = ("_after", "_due_ns", "_stopper", "_waiting", "ranks")

    def __init__(self, stopper: Stopper) -> None:
        self._stopper = stopper
        self._due_ns: int | None = None
        self._after = ""  # when the shedding began, in words: main may be in another state when it is done
        self._waiting: list[int] = []  # for their turn
        self.ranks: set[int] = set()

    def entered(self, state: State) -> None:
        """Main is in another state: count anew."""
        stopper = self._stopper
        stopper.cancel("shed")
        self._due_ns = None
        self._waiting = []
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
        self._stopper.say_once(f"ranks that hold the stop can't be shed: {why}")
        self._again()

    def _again(self) -> None:
        if self._stopper.watch.state in {State.CLEANUP, State.SHUTDOWN}:
            self._stopper.arm("shed", AGAIN_NS, self._due, reminder=True)

    def _told(self, peers: Peers) -> None:
        stopper = self._stopper
        if self._due_ns is None:
            return  # main is in another state by now
        holding = [peer for peer in peers.holding if peer.rank > 0 and peer.rank not in self.ranks]
        if not holding:
            if peers.text:
                stopper.say_once(f"{stopper.watch.state}: {peers.text}, none of which is to blame by itself")
            self._again()
            return
        self._after = f"after {as_short(stopper.watch.known_ns())} of {stopper.watch.state}"
        if len(holding) > NAMED_MAX:
            stopper.say_once(f"{stopper.watch.state} is held by {_many(holding)}: they are shed", ERR)
        else:
            for peer in holding:
                text = f"{stopper.watch.state} is held by {_one(peer)}{_status(peer)}: it is shed{_along(peer.severs)}"
                stopper.say_once(text, ERR)
        self._waiting = [peer.rank for peer in holding]
        self._next()

    def _next(self) -> None:
        """Have the next ones disconnected; when all had their turn, look again later."""
        ranks, self._waiting = self._waiting[:AT_ONCE], self._waiting[AT_ONCE:]
        if ranks:
            self._stopper.questions.ask(
                "shed", Sheds, SHED_TIMEOUT_NS, self._shed, self._failed, (idset(sorted(ranks)),)
            )
        else:
            self._again()

    def _shed(self, done: Sheds) -> None:
        gone = [each for each in done.ranks if not each.error]
        if gone:
            self._gone(gone)
        failed: dict[str, list[int]] = {}
        for each in done.ranks:
            if each.error:
                failed.setdefault(each.error, []).append(each.rank)
        for why, ranks in failed.items():
            whose = f"rank{'s' if len(ranks) > 1 else ''} {idset(ranks)}"
            self._stopper.say_once(f"{whose} can't be shed: {why}", ERR)
        self._next()

    def _gone(self, gone: list[ShedRank]) -> None:
        stopper = self._stopper
        self.ranks.update(each.rank for each in gone)
        if len(gone) > NAMED_MAX:
            jobs = tuple(dict.fromkeys(job for each in gone for job in each.jobs))
            stopper.log("stop", ERR, f"shed {_many(gone)}{_jobs(jobs)}")
        else:
            for each in gone:
                stopper.log("stop", ERR, f"shed {_one(each)}{_along(each.severed)}{_jobs(each.jobs)}")
        if len(self.ranks) > NAMED_MAX:
            stopper.broke(f"more than {NAMED_MAX} ranks were shed {self._after}")
        else:
            for each in gone:
                stopper.broke(f"{_one(each)} was shed {self._after}")


def _one(rank: Holding | ShedRank) -> str:
    return f"{rank.host} (rank {rank.rank})" if rank.host else f"rank {rank.rank}"


def _many(ranks: Sequence[Holding | ShedRank]) -> str:
    hosts = hostlist(each.host for each in ranks if each.host)
    names = f"{_short(hosts)} " if hosts else ""
    return f"{names}({len(ranks)} ranks: {_short(idset(each.rank for each in ranks))})"


def _short(names: str) -> str:
    return names if len(names) <= NAMES_LENGTH_MAX else f"{names[: NAMES_LENGTH_MAX - 1]}…"


def _status(peer: Holding) -> str:
    return f", {peer.status}" if peer.status else ""


def _along(ranks: str) -> str:
    return f", and its subtree with it (ranks {ranks})" if ranks else ""


def _jobs(jobs: tuple[str, ...]) -> str:
    more = f" and {len(jobs) - NAMED_MAX} more" if len(jobs) > NAMED_MAX else ""
    return f"; jobs cut off: {' '.join(jobs[:NAMED_MAX])}{more}" if jobs else ""
