"""The limit of a unit's state, its watchdog, and how both are moved (SYSTEMD.md B, C, F)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from brokerctl.durations import as_short
from brokerctl.model.unit.states import LIMITS, WATCHED, Sub, What
from brokerctl.records import Arm, Cancel

if TYPE_CHECKING:
    from brokerctl.model.unit.machine import Unit

STATE, WATCHDOG = "state", "watchdog"


class Clocks:
    """Two deadlines. An extension moves each that is there to later, never to earlier (SYSTEMD.md 38, 85)."""

    __slots__ = ("_deadlines", "_pinged_ns", "_unit", "_watchdog_ns")

    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        self._deadlines: dict[str, int] = {}
        self._watchdog_ns = unit.settings.watchdog_ns
        self._pinged_ns = 0

    def _set(self, timer: str, deadline_ns: int | None) -> None:
        unit = self._unit
        if deadline_ns is None:
            if self._deadlines.pop(timer, None) is not None:
                unit.emit(Cancel(timer))
            return
        self._deadlines[timer] = deadline_ns
        unit.emit(Arm(timer, max(0, deadline_ns - unit.now_ns)))

    def _limit_ns(self) -> int | None:
        """How long this state may last. TimeoutStopSec=0 is for ever; a restart without delay comes at once."""
        unit = self._unit
        name = LIMITS.get(unit.state)
        limit_ns: int | None = getattr(unit.settings, name) if name else None
        return limit_ns if limit_ns or unit.state is Sub.AUTO_RESTART else None

    def limit(self) -> None:
        """A fresh limit from now: a state was entered, or the next line of a list begins (SYSTEMD.md 9, 39)."""
        limit_ns = self._limit_ns()
        self._set(STATE, None if limit_ns is None else self._unit.now_ns + limit_ns)
        if self._unit.state in WATCHED and WATCHDOG not in self._deadlines:
            self._watch()

    def extend(self, by_ns: int) -> None:
        """EXTEND_TIMEOUT_USEC: no deadline lies before now + `by_ns`; where there is none, none is made (33)."""
        until_ns = self._unit.now_ns + by_ns
        for timer, deadline_ns in tuple(self._deadlines.items()):
            if until_ns > deadline_ns:
                self._set(timer, until_ns)

    def reloaded(self) -> None:
        """daemon-reload: what was extended is forgotten; a limit that is over then fires at once (SYSTEMD.md 42)."""
        unit = self._unit
        if STATE in self._deadlines:
            limit_ns = self._limit_ns()
            self._set(STATE, None if limit_ns is None else unit.since_ns + limit_ns)
        if WATCHDOG in self._deadlines:
            self._watch()

    # ---- the watchdog

    def reset_watchdog(self) -> None:
        """A new start: what messages had set is forgotten."""
        self._watchdog_ns = self._unit.settings.watchdog_ns

    def ping(self) -> None:
        """WATCHDOG=1."""
        self._pinged_ns = self._unit.now_ns
        if self._unit.state in WATCHED:
            self._watch()

    def override(self, watchdog_ns: int) -> None:
        """WATCHDOG_USEC: longer, shorter, off (0), or on where it was not (SYSTEMD.md 84)."""
        self._watchdog_ns = watchdog_ns
        self.ping()

    def _watch(self) -> None:
        self._set(WATCHDOG, self._pinged_ns + self._watchdog_ns if self._watchdog_ns else None)

    def unwatch(self) -> None:
        """It does not count in this state (SYSTEMD.md 83)."""
        self._set(WATCHDOG, None)

    # ----

    def fired(self, timer: str) -> None:
        """A deadline has come."""
        unit = self._unit
        del self._deadlines[timer]
        if timer == WATCHDOG:
            unit.log(3, f"Watchdog timeout (limit {as_short(self._watchdog_ns)})!")
            unit.happens(What.WATCHDOG, "watchdog")
            return
        if unit.state in {Sub.AUTO_RESTART, Sub.RELOAD}:
            unit.happens(What.TIMEOUT)
            return
        then = "Killing" if unit.settings.send_sigkill else "Skipping SIGKILL"
        unit.log(4, _TOLD.get(unit.state, f"State '{unit.state}' timed out. {then}."))
        unit.happens(What.TIMEOUT, "timeout")


_TOLD = {
    Sub.START: "start operation timed out. Terminating.",
    Sub.RUNNING: "Service reached runtime time limit. Stopping.",
    Sub.STOP: "Stopping timed out. Terminating.",
    Sub.STOP_POST: "State 'stop-post' timed out. Terminating.",
    Sub.STOP_SIGKILL: "Processes still around after SIGKILL. Ignoring.",
    Sub.FINAL_SIGKILL: "Processes still around after final SIGKILL. Entering failed mode.",
}
