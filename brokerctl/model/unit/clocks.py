"""The limit of a unit's state, its watchdog, and how both are moved (SYSTEMD.md B, C, F)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from brokerctl.durations import as_short
from brokerctl.model.unit.states import ACTIVE, LIMITS, TABLE, Sub, What
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
        self._limit_from(self._unit.now_ns)

    def limit_of_start(self) -> None:
        """The limit of a start, in whatever state: each line of a oneshot's ExecStart= has it anew."""
        limit_ns = self._unit.settings.timeout_start_ns
        self._set(STATE, self._unit.now_ns + limit_ns if limit_ns else None)

    def _limit_from(self, since_ns: int) -> None:
        """RuntimeMaxSec= counts from when the unit became active: no reload in between renews it."""
        limit_ns = self._limit_ns()
        if self._unit.state is Sub.RUNNING:
            since_ns = self._unit.active_ns
        self._set(STATE, None if limit_ns is None else since_ns + limit_ns)

    def extend(self, by_ns: int) -> None:
        """EXTEND_TIMEOUT_USEC: no deadline lies before now + `by_ns`; where there is none, none is made (33)."""
        until_ns = self._unit.now_ns + by_ns
        for timer, deadline_ns in tuple(self._deadlines.items()):
            if until_ns > deadline_ns:
                self._set(timer, until_ns)

    def reloaded(self) -> None:
        """daemon-reload: what was extended is forgotten; a limit that is over then fires at once (SYSTEMD.md 42)."""
        if STATE in self._deadlines:
            self._limit_from(self._unit.since_ns)
        if WATCHDOG in self._deadlines:
            self._watch()

    # ---- the watchdog

    def reset_watchdog(self) -> None:
        """A new start: what messages had set is forgotten."""
        self._watchdog_ns = self._unit.settings.watchdog_ns

    def start_watchdog(self) -> None:
        """The unit is started: the watchdog counts from now."""
        self._pinged_ns = self._unit.now_ns
        self._watch()

    def ping(self) -> None:
        """WATCHDOG=1. It also wakes a watchdog that rests: who beats once while it stops must go on beating (83)."""
        if What.WATCHDOG in TABLE[self._unit.state]:
            self.start_watchdog()

    def override(self, watchdog_ns: int) -> None:
        """WATCHDOG_USEC: longer, shorter, off (0), or on where it was not (SYSTEMD.md 84)."""
        self._watchdog_ns = watchdog_ns
        self.ping()

    def _watch(self) -> None:
        self._set(WATCHDOG, self._pinged_ns + self._watchdog_ns if self._watchdog_ns else None)

    def unwatch(self) -> None:
        """It rests in this state, until the next message (SYSTEMD.md 83)."""
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
        unit.log(4, _told(unit))
        unit.happens(What.TIMEOUT, "timeout")


_TOLD = {
    Sub.RUNNING: "Service reached runtime time limit. Stopping.",
    Sub.STOP_SIGKILL: "Processes still around after SIGKILL. Ignoring.",
    Sub.FINAL_SIGKILL: "Processes still around after final SIGKILL. Entering failed mode.",
}
_THEN = {"terminate": "Terminating", "abort": "Aborting", "kill": "Killing"}


def _told(unit: Unit) -> str:
    """What the journal says of a limit that is over."""
    settings, state = unit.settings, unit.state
    if state in _TOLD:
        return _TOLD[state]
    mode, what = settings.timeout_stop_failure_mode, f"State '{state}'"
    if ACTIVE[state] == "activating":
        mode, what = settings.timeout_start_failure_mode, f"{state} operation"
    elif state is Sub.STOP:
        what = "Stopping"
    elif state in {Sub.STOP_WATCHDOG, Sub.FINAL_WATCHDOG} or (state is not Sub.STOP_POST and mode == "terminate"):
        mode = "kill"  # the next rung
    skipped = mode == "kill" and not settings.send_sigkill
    return f"{what} timed out. {'Skipping SIGKILL' if skipped else _THEN[mode]}."
