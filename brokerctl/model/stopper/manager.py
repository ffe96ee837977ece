"""What the wrapper tells the service manager: STATUS on every change, and more time for what has no bound.

The manager's own time covers everything that is bounded (the arithmetic of the drop-in). Only FINALIZE has no bound: as
long as it makes progress its deadline is pushed, told again every few seconds because a daemon-reload forgets it
(SYSTEMD.md 42), and once more after it, since the manager's own time may be over by then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from brokerctl.durations import US, S, as_short
from brokerctl.model import bounds
from brokerctl.model.lifecycle import STOPPING, State
from brokerctl.records import Notify
from brokerctl.settings import EXTEND_EVERY_NS, Settings

if TYPE_CHECKING:
    from brokerctl.model.stopper.stopper import Stopper

# Begins every STATUS of the wrapper: who reads main's status from the manager tells the two apart by it.
STATUS_PREFIX = "brokerctl stop: "
# STATUS is told on change, and a clock that ticks is no change: seconds left are told in steps of this.
LEFT_STEP_NS = 5 * S
# After FINALIZE: goodbye and unload, as Flux bounds them itself (FLUX.md 37).
_REST_NS = bounds.stop_rest_ns(Settings())
# Less than half of any TimeoutStopSec that leaves time to be told twice (P7).
_SHARE = 3


class Manager:
    """The messages; a world without a manager drops them."""

    __slots__ = ("_deadline_ns", "_said", "_stopper", "_told_ns")

    def __init__(self, stopper: Stopper) -> None:
        self._stopper = stopper
        self._said = ""
        self._deadline_ns = 0  # up to here the manager was asked for time
        self._told_ns = 0

    # ---- status

    def say(self, text: str) -> None:
        """One status, if it is another one."""
        if text != self._said:
            self._said = text
            self._stopper.emit(Notify(f"STATUS={STATUS_PREFIX}{text}"))

    def tell(self) -> None:
        """Tell what main does now, and ask for the time that it needs.

        Ours hides main's own status, which alone names the running action (FLUX.md 104); and one that comes between our
        look and our status is never seen. Main tells several at short intervals: so one that is new stands for a look.
        """
        if not self._stopper.watch.fresh:
            self.say(self._describe())
        self.extend()

    def _describe(self) -> str:
        stopper, watch = self._stopper, self._stopper.watch
        if watch.state is None:
            return f"waiting for {stopper.whom} to end"
        parts = ["SIGTERM was sent"] if watch.state not in STOPPING else [str(watch.state)]
        if watch.look.step:
            parts.append(watch.look.step)
        left_ns = self._left_ns(watch.state)
        if left_ns is not None:
            step_ns = -(-left_ns // LEFT_STEP_NS) * LEFT_STEP_NS
            parts.append(f"at most {as_short(step_ns)} more" if step_ns else "over its time")
        if watch.peers:
            parts.append(watch.peers)
        if watch.look.progress:
            parts.append(watch.look.progress)
        stalled_ns = watch.stalled_ns() // stopper.settings.stall_warn_ns * stopper.settings.stall_warn_ns
        if stalled_ns:
            parts.append(f"no progress for {as_short(stalled_ns)}")
        quoted = f": {watch.look.text}" if watch.look.text and watch.state in STOPPING else ""
        return ", ".join(parts) + quoted

    def _left_ns(self, state: State) -> int | None:
        """How long main's state may still last, by its own promise or by ours."""
        stopper, watch = self._stopper, self._stopper.watch
        left_ns = None
        if state is State.CLEANUP:
            left_ns = stopper.holders.left_ns()
        elif state is State.SHUTDOWN:
            left_ns = stopper.shedding.left_ns() or self._shutdown_left_ns()
        return watch.look.left_ns if left_ns is None else left_ns

    def _shutdown_left_ns(self) -> int | None:
        watch = self._stopper.watch
        limit_ns = watch.limits.shutdown_timeout_ns
        return None if limit_ns is None else max(0, limit_ns - watch.known_ns())

    # ---- time

    def entered(self, state: State) -> None:
        """Main is in another state."""
        if state in {State.GOODBYE, State.UNLOAD_BUILTINS} and self._deadline_ns:
            self._ask_until(self._stopper.now_ns + _REST_NS)
        self.tell()

    def extend(self) -> None:
        """Push the deadline as far as what is being saved deserves it."""
        stopper, watch = self._stopper, self._stopper.watch
        if not watch.saves:
            return
        deadline_ns = watch.progressed_ns + stopper.settings.finalize_patience_ns
        if stopper.now_ns - self._told_ns >= self._every_ns() or not self._deadline_ns:
            self._ask_until(deadline_ns)

    def _every_ns(self) -> int:
        total_ns = self._stopper.settings.timeout_stop_ns
        return EXTEND_EVERY_NS if total_ns is None else min(EXTEND_EVERY_NS, total_ns // _SHARE)

    def _ask_until(self, deadline_ns: int) -> None:
        """A plain decimal, more than nothing (SYSTEMD.md 41); it never shortens what was asked before (38)."""
        stopper = self._stopper
        usec = (deadline_ns - stopper.now_ns) // US
        if usec > 0:
            self._deadline_ns, self._told_ns = deadline_ns, stopper.now_ns
            stopper.emit(Notify(f"EXTEND_TIMEOUT_USEC={usec}"))
