"""The processes that hold CLEANUP beyond its timeout: ended by the ladder, and never rc3, never the broker.

Flux aborts its running action with one SIGHUP (FLUX.md 20, 27); who ignores that blocks the stop for ever. They are
listed first, and main is looked at afterwards: if it is still in CLEANUP then, all that was listed was started before
rc3 could be. So a kill can't hit what saves state, however close the end of CLEANUP is (FLUX.md 100).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from brokerctl.durations import MS, S, as_short
from brokerctl.model.ladder import Ladder
from brokerctl.model.lifecycle import State
from brokerctl.model.run import ERR, WARNING
from brokerctl.model.words import signal_name
from brokerctl.records import KillHolder
from brokerctl.records.stops import Holder, Holders, Look

if TYPE_CHECKING:
    from brokerctl.model.stopper.stopper import Stopper

LIST_TIMEOUT_NS = 2 * S
AGAIN_NS = 1 * S
# When CLEANUP began is known to the second only, and the clock of process starts ticks in hundredths.
BEGAN_SLACK_NS = 50 * MS


class HoldersOfCleanup:
    """Their ladder. `ended` has what was signalled, in words."""

    __slots__ = ("_ladders", "_stopper", "ended")

    def __init__(self, stopper: Stopper) -> None:
        self._stopper = stopper
        self._ladders: dict[tuple[int, int], tuple[Ladder, int]] = {}  # and when its rung is over
        self.ended: list[str] = []

    def arm(self) -> None:
        """CLEANUP was entered, or found: count from its beginning, at the earliest from ours."""
        stopper = self._stopper
        limit_ns = self.limit_ns()
        if limit_ns is None:
            return
        # Only a stop that a signal began is under main's own timeout; who joins one that was requested brings it along.
        began_ns = stopper.watch.since_ns if stopper.signalled else max(stopper.watch.since_ns, stopper.began_ns)
        # A broker that promises an end itself has a ladder of its own, and time for what is essential.
        left_ns = stopper.watch.look.left_ns or 0
        due_ns = max(began_ns + limit_ns, stopper.now_ns + left_ns) + stopper.settings.holders_after_ns
        stopper.arm("holders", max(0, due_ns - stopper.now_ns), self._due)

    def limit_ns(self) -> int | None:
        """CLEANUP's timeout: main's own, else the one that was configured."""
        told = self._stopper.watch.limits.cleanup_timeout_ns
        return self._stopper.settings.cleanup_timeout_ns if told is None else told

    def end(self) -> None:
        """CLEANUP is over."""
        self._stopper.cancel("holders")

    def _due(self) -> None:
        stopper = self._stopper
        since_ns = stopper.watch.since_ns - BEGAN_SLACK_NS
        stopper.questions.ask("holders", Holders, LIST_TIMEOUT_NS, self._listed, self._failed, (str(since_ns),))

    def _listed(self, found: Holders) -> None:
        timeout_ns = self._stopper.settings.ask_timeout_ns
        self._stopper.questions.ask("look", Look, timeout_ns, lambda look: self._looked(found, look), self._failed)

    def _failed(self, why: str) -> None:
        self._stopper.log("stop", WARNING, f"who holds the cleanup is not known: {why}")
        self._again(AGAIN_NS)

    def _looked(self, found: Holders, look: Look) -> None:
        stopper = self._stopper
        stopper.watch.see(look)
        if stopper.watch.state is not State.CLEANUP:
            return
        if look.guessed or look.state != State.CLEANUP:
            self._failed("main does not tell its state itself")
            return
        limit_ns = self.limit_ns()
        assert limit_ns is not None
        stopper.broke(f"cleanup outlived its timeout of {as_short(limit_ns)}")
        due_ns = [self._climb(holder) for holder in found.holders]
        if not found.holders:
            stopper.say_once("cleanup is over its timeout, and no process is found that holds it")
        self._again(min((due for due in due_ns if due is not None), default=stopper.now_ns + AGAIN_NS) - stopper.now_ns)

    def _again(self, after_ns: int) -> None:
        if self._stopper.watch.state is State.CLEANUP:
            # A reminder: where nothing else can happen any more, this can't either.
            self._stopper.arm("holders", max(AGAIN_NS // 10, after_ns), self._due, reminder=not self._ladders)

    def _climb(self, holder: Holder) -> int | None:
        """One more rung for this one, if its time has come; when the next one is due."""
        stopper, key = self._stopper, (holder.pid, holder.started)
        ladder, due_ns = self._ladders.get(key) or (Ladder(stopper.settings.ladder), stopper.now_ns)
        if due_ns > stopper.now_ns:
            return due_ns
        rung = ladder.climb()
        if rung is None:
            stopper.say_once(f"{_shown(holder)} still runs after {', '.join(map(signal_name, ladder.sent()))}")
            return None
        name = signal_name(rung.signum)
        stopper.log("stop", ERR, f"cleanup is over its timeout, and held by {_shown(holder)}: {name}")
        stopper.emit(KillHolder(holder.pid, holder.started, rung.signum))
        self.ended.append(f"{name} to {_shown(holder)}")
        due_ns = stopper.now_ns + (AGAIN_NS if rung.wait_ns is None else rung.wait_ns)
        self._ladders[key] = (ladder, due_ns)
        return due_ns


def _shown(holder: Holder) -> str:
    return f"{holder.text or 'a process'} (pid {holder.pid})"
