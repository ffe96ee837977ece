"""The processes that hold CLEANUP beyond its timeout: ended by the ladder, and never rc3, never the broker.

Flux aborts its running action with one SIGHUP (FLUX.md 20, 27); who ignores that blocks the stop for ever. They are
listed first, and main is looked at afterwards: if it is still in CLEANUP then, all that was listed was started before
rc3 could be. So a kill can't hit what saves state, however close the end of CLEANUP is (FLUX.md 100).

Nor does it hit what was there before CLEANUP: main was seen in RUN before our SIGTERM, and its CLEANUP began after
that. Where a stop was joined there is only main's own word, which is rounded: at most so long ago.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from brokerctl.durations import MS, S, as_short
from brokerctl.model.ladder import Ladder
from brokerctl.model.lifecycle import State
from brokerctl.model.run import ERR
from brokerctl.model.words import signal_name
from brokerctl.records import KillHolder
from brokerctl.records.stops import Holder, Holders, Look

if TYPE_CHECKING:
    from brokerctl.model.stopper.stopper import Stopper

LIST_TIMEOUT_NS = 2 * S
AGAIN_NS = 1 * S
# A cleanup that starts processes all the time is ended like any other, but not every one of them is worth a line.
NAMED_MAX = 20
# The clock of process starts ticks in hundredths.
BEGAN_SLACK_NS = 50 * MS


class HoldersOfCleanup:
    """Their ladder: one for all, for who is started later holds the same action, and joins the rung that is reached."""

    __slots__ = ("_ladder", "_limit_at_ns", "_over_ns", "_signalled", "_stopper")

    def __init__(self, stopper: Stopper) -> None:
        self._stopper = stopper
        self._ladder = Ladder(stopper.settings.ladder)
        self._limit_at_ns: int | None = None  # when CLEANUP should be over
        self._over_ns: int | None = 0  # when its rung is; None: the last one's never is
        self._signalled: dict[tuple[int, int], _Signalled] = {}

    def ended(self) -> list[str]:
        """Who was signalled, and how, in words: `SIGHUP, SIGTERM to sleep 60 (pid 4711)`."""
        named = [one for one in self._signalled.values() if one.named]
        told = [f"{', '.join(map(signal_name, one.signals))} to {one.shown}" for one in named]
        more = len(self._signalled) - len(named)
        return [*told, f"{more} more processes"] if more else told

    def arm(self) -> None:
        """CLEANUP was entered, or found: count from its beginning, at the earliest from ours."""
        stopper = self._stopper
        limit_ns = self.limit_ns()
        if limit_ns is None:
            return
        # Only a stop that a signal began is under main's own timeout; who joins one that was requested brings it along.
        began_ns = stopper.watch.since_ns if stopper.signalled else max(stopper.watch.since_ns, stopper.began_ns)
        # A broker that promises an end itself has a ladder of its own, and time for what is essential.
        promised_ns = stopper.now_ns + (stopper.watch.look.left_ns or 0)
        self._limit_at_ns = max(began_ns + limit_ns, promised_ns)
        due_ns = self._limit_at_ns + stopper.settings.holders_after_ns
        stopper.arm("holders", max(0, due_ns - stopper.now_ns), self._due)

    def limit_ns(self) -> int | None:
        """CLEANUP's timeout: main's own, else the one that was configured."""
        told = self._stopper.watch.limits.cleanup_timeout_ns
        return self._stopper.settings.cleanup_timeout_ns if told is None else told

    def left_ns(self) -> int | None:
        """How long CLEANUP may still last; None where it has no timeout."""
        return None if self._limit_at_ns is None else max(0, self._limit_at_ns - self._stopper.now_ns)

    def end(self) -> None:
        """CLEANUP is over."""
        self._limit_at_ns = None
        self._stopper.cancel("holders")

    def _due(self) -> None:
        stopper = self._stopper
        watch = stopper.watch
        since_ns = (watch.since_ns if watch.run_ns is None else watch.run_ns) - BEGAN_SLACK_NS
        stopper.questions.ask("holders", Holders, LIST_TIMEOUT_NS, self._listed, self._failed, (str(since_ns),))

    def _listed(self, found: Holders) -> None:
        self._stopper.watch.ask(lambda look: self._looked(found, look), self._failed)

    def _failed(self, why: str) -> None:
        self._stopper.say_once(f"who holds the cleanup is not known: {why}")
        self._again(AGAIN_NS, climbs=False)

    def _looked(self, found: Holders, look: Look) -> None:
        stopper = self._stopper
        if stopper.watch.state is not State.CLEANUP:
            return
        if look.guessed or look.state != State.CLEANUP:
            self._failed("main does not tell its state itself")
            return
        limit_ns = self.limit_ns()
        assert limit_ns is not None
        stopper.broke(f"cleanup outlived its timeout of {as_short(limit_ns)}")
        if not found.holders:
            stopper.say_once("cleanup is over its timeout, and no process is found that holds it")
        else:
            self._climb()
        for holder in found.holders:
            self._signal(holder)
        over_ns = self._over_ns if found.holders else None
        after_ns = AGAIN_NS if over_ns is None else min(AGAIN_NS, over_ns - stopper.now_ns)
        self._again(after_ns, climbs=over_ns is not None)

    def _again(self, after_ns: int, *, climbs: bool) -> None:
        if self._stopper.watch.state is State.CLEANUP:
            # Where there is no next rung, a reminder: where nothing else can happen any more, this can't either.
            self._stopper.arm("holders", max(AGAIN_NS // 10, after_ns), self._due, reminder=not climbs)

    def _climb(self) -> None:
        """One more rung, if its time has come."""
        now_ns = self._stopper.now_ns
        if self._over_ns is None or now_ns < self._over_ns:
            return
        rung = self._ladder.climb()
        self._over_ns = None if rung is None or rung.wait_ns is None else now_ns + rung.wait_ns

    def _signal(self, holder: Holder) -> None:
        """Send it the signal of the rung, once; after the last rung's time it is named."""
        stopper, key = self._stopper, (holder.pid, holder.started)
        one = self._signalled.get(key)
        if one is None:
            named = len(self._signalled) < NAMED_MAX
            one = self._signalled[key] = _Signalled(f"{holder.text or 'a process'} (pid {holder.pid})", named)
        rung = self._ladder.rung
        if one.rung == rung:
            if self._over_ns is None and one.named:
                stopper.say_once(f"{one.shown} still runs after {', '.join(map(signal_name, one.signals))}")
            return
        one.rung = rung
        signum = self._ladder.rungs[rung].signum
        one.signals.append(signum)
        if one.named:
            stopper.log("stop", ERR, f"cleanup is over its timeout, and held by {one.shown}: {signal_name(signum)}")
        else:
            stopper.say_once(f"more than {NAMED_MAX} processes hold the cleanup: all are signalled, and no more named")
        stopper.emit(KillHolder(holder.pid, holder.started, signum))


class _Signalled:
    """One process: its words, whether it is worth lines of its own, its signals, the last of them as a rung."""

    __slots__ = ("named", "rung", "shown", "signals")

    def __init__(self, shown: str, named: bool) -> None:
        self.shown = shown
        self.named = named
        self.signals: list[int] = []
        self.rung = -1
