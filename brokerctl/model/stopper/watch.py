"""What the wrapper knows of main: its state as it is told, since when, and what of its stop is still to come.

Main is looked at about every second. States come in the order of the lifecycle; some may last too short to be seen. A
look that goes back in that order is of no use: it was made of an old status.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from brokerctl.durations import S, as_short
from brokerctl.model.lifecycle import State
from brokerctl.model.run import DEBUG, INFO, WARNING
from brokerctl.records import Observed
from brokerctl.records.stops import Limits, Look, Peers, Written

if TYPE_CHECKING:
    from brokerctl.model.stopper.stopper import Stopper

# A look costs ~10 ms of main's time (FLUX.md 104).
LOOK_EVERY_NS = 1 * S
PEERS_EVERY_NS = 5 * S
PEERS_TIMEOUT_NS = 5 * S
WRITTEN_TIMEOUT_NS = 2 * S
# A broker that idles writes too: to its log, to itself, to us who ask it. That is some KiB a second, and far less than
# this much within that time.
WRITTEN_STEP = 256 << 10
WRITTEN_WITHIN_NS = 30 * S
# So many looks in a row without an answer: whoever should answer is gone, or main can't.
BLIND_AFTER = 5

# Why a look that was answered may be none.
UNTOLD = "neither it nor its status tells its state"

_ORDER = {state: index for index, state in enumerate(State)}


class Watch:
    """Main, as far as it is known; `stopper.entered` is told of each state that is new."""

    __slots__ = (
        "_missed", "_peers_at_ns", "_stopper", "_warned_ns", "_written", "_written_at_ns", "answered", "fresh",
        "held_ns", "limits", "look", "peers", "progressed_ns", "run_ns", "since_ns", "state",
    )  # fmt: skip

    def __init__(self, stopper: Stopper) -> None:
        self._stopper = stopper
        self.look = Look()
        self.answered = False  # main has told its state itself, at least once
        self.fresh = False  # main's own status is another one than at the look before
        self.run_ns: int | None = None  # main was still in RUN then, by its own word: its stop began later
        self.state: State | None = None
        self.since_ns = 0
        self.held_ns: dict[State, int] = {}  # how long each state was seen to last
        self.limits = Limits()
        self.peers = ""
        self.progressed_ns = 0
        self._written = Written()
        self._written_at_ns = 0
        self._warned_ns = 0
        self._missed = 0
        self._peers_at_ns = 0

    # ---- looking

    def begin(self) -> None:
        """Main's end is waited for: look at it again and again from now on."""
        self.progressed_ns = self._stopper.now_ns
        self._soon()

    def _soon(self) -> None:
        self._stopper.arm("look", LOOK_EVERY_NS, self._again, reminder=True)

    def end(self) -> None:
        """Look no more."""
        self._stopper.cancel("look")

    def _again(self) -> None:
        stopper = self._stopper
        self.ask(self._looked, self._failed)
        if self.state is State.SHUTDOWN and stopper.now_ns >= self._peers_at_ns:
            self._peers_at_ns = stopper.now_ns + PEERS_EVERY_NS
            stopper.questions.ask("peers", Peers, PEERS_TIMEOUT_NS, self._told_peers, self._nothing)
        if self.saves:
            stopper.questions.ask("written", Written, WRITTEN_TIMEOUT_NS, self._told_written, self._nothing)

    def ask(self, then: Callable[[Look], None], failed: Callable[[str], None]) -> None:
        """Look at main now, and take in what is seen; then, or where there is no answer, go on."""
        stopper, asked_ns = self._stopper, self._stopper.now_ns

        def looked(look: Look) -> None:
            self._see(look, asked_ns)
            then(look)

        stopper.questions.ask("look", Look, stopper.settings.ask_timeout_ns, looked, failed)

    def _looked(self, look: Look) -> None:
        if state_of(look) is None:
            self._failed(UNTOLD)
        else:
            self._next()

    def _failed(self, why: str) -> None:
        self._missed += 1
        stopper = self._stopper
        if self._missed == BLIND_AFTER:
            stopper.log("stop", WARNING, f"main can't be asked any more ({why}); its end is waited for all the same")
        else:
            stopper.log("stop", DEBUG, f"no look at main: {why}")
        self._next()

    def _nothing(self, why: str) -> None:
        self._stopper.log("stop", DEBUG, f"a question without an answer: {why}")

    def _next(self) -> None:
        self._stall()
        self._stopper.manager.tell()
        self._soon()

    # ---- what is seen

    def _see(self, look: Look, asked_ns: int) -> None:
        stopper, old = self._stopper, self.look
        # Main's own status is hidden by ours until it tells the next one: then the last one stands.
        self.look = look if look.text else msgspec.structs.replace(look, text=old.text)
        self.fresh = self.look.text != old.text
        state = state_of(look)
        if state is not None:
            self._missed = 0
            self.answered |= not look.guessed
        limited = look.limits is not None and look.limits != self.limits
        if look.limits is not None:
            self.limits = look.limits
        if look.done > old.done or self.fresh:
            self._progress()
        if state is State.RUN and not look.guessed:
            self.run_ns = max(self.run_ns or 0, asked_ns)
        if state is None or (self.state is not None and _ORDER[state] <= _ORDER[self.state]):
            if limited and self.state is not None:
                stopper.limited(self.state)
            return
        before, self.state = self.state, state
        since_ns = max(stopper.now_ns - (look.held_ns or 0), self.run_ns or 0)
        if before is not None:
            self.held_ns[before] = max(0, since_ns - self.since_ns)
            stopper.emit(Observed(str(before), str(state), self.held_ns[before]))
        self.since_ns = since_ns
        self.peers = ""
        self._progress()
        stopper.entered(state)

    def known_ns(self) -> int:
        """How long main has been seen in its state."""
        return self._stopper.now_ns - self.since_ns

    def _told_peers(self, peers: Peers) -> None:
        self.peers = peers.text

    # ---- progress of what saves state

    @property
    def saves(self) -> bool:
        """Main is in FINALIZE, or may be: its stop is under way, and nothing was learned of it for some time."""
        return self.state is State.FINALIZE or self._missed >= BLIND_AFTER

    def _told_written(self, written: Written) -> None:
        last, now_ns = self._written, self._stopper.now_ns
        moves = written.storage != last.storage or abs(written.anywhere - last.anywhere) >= WRITTEN_STEP
        if moves:
            self._progress()
        if moves or now_ns - self._written_at_ns >= WRITTEN_WITHIN_NS:
            self._written, self._written_at_ns = written, now_ns

    def _progress(self) -> None:
        stopper = self._stopper
        if self._warned_ns:
            stopper.log("stop", INFO, f"{self.state or 'main'}: it makes progress again")
        self.progressed_ns, self._warned_ns = stopper.now_ns, 0

    def stalled_ns(self) -> int:
        """How long what saves state has made no progress that could be seen; 0 where nothing is being saved."""
        return self._stopper.now_ns - self.progressed_ns if self.saves else 0

    def _stall(self) -> None:
        stopper, stalled_ns = self._stopper, self.stalled_ns()
        if stalled_ns < max(stopper.settings.stall_warn_ns, 2 * self._warned_ns):
            return  # told at 30 s, 1 m, 2 m, 4 m …: it may last for hours
        self._warned_ns = stalled_ns
        so_far = f" ({self.look.progress})" if self.look.progress else ""
        stopper.log(
            "stop", WARNING, f"{self.state or 'main'}: no progress for {as_short(stalled_ns)}{so_far}; nothing is sent"
        )


def state_of(look: Look) -> State | None:
    """The state that a look tells, None where it tells none that is known here."""
    try:
        return State(look.state)
    except ValueError:
        return None
