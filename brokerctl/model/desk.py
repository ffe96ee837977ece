"""What every model has: the time of the event, the effects, timers by name, and the runs that it has started.

Components call each other inside one `handle`; there is no re-entry. A timer that fires was armed and not cancelled, so
nobody checks for staleness.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from brokerctl.model.run import Run
from brokerctl.records import (
    Arm,
    Cancel,
    Effect,
    Emptied,
    Event,
    Exited,
    Fired,
    KillFailed,
    Log,
    Output,
    OutputEnded,
    SpawnFailed,
)

if TYPE_CHECKING:
    from brokerctl.model.remote import RemoteRun
    from brokerctl.model.workers import WorkerStop
    from brokerctl.settings import Action, Settings, StopSettings


class Desk:
    """The base of `Node` and `Stopper`. `handle` is the only way in; the effects it appends are the only way out."""

    __slots__ = ("_timers", "emit", "now_ns", "runs", "settings")

    HANDLERS: ClassVar[Mapping[type[Event], Callable[[Any, Any], None]]]
    emit: Callable[[Effect], None]
    settings: Settings | StopSettings

    def __init__(self) -> None:
        self.now_ns = 0
        self.runs: dict[str, Run] = {}
        self._timers: dict[str, Callable[[], None]] = {}

    def handle(self, now_ns: int, event: Event, out: list[Effect]) -> None:
        """Take in one event at this time; append what is to be done, in order."""
        self.now_ns = now_ns
        self.emit = out.append
        self.HANDLERS[type(event)](self, event)

    # ---- for the components

    def arm(self, timer: str, after_ns: int, then: Callable[[], None], *, reminder: bool = False) -> None:
        """(Re)arm a timer; a reminder is no pending work."""
        self._timers[timer] = then
        self.emit(Arm(timer, after_ns, reminder))

    def cancel(self, timer: str) -> None:
        """Disarm a timer, if it is armed."""
        if self._timers.pop(timer, None) is not None:
            self.emit(Cancel(timer))

    def is_armed(self, timer: str) -> bool:
        """The timer will fire."""
        return timer in self._timers

    def log(self, component: str, level: int, text: str) -> None:
        """A line of the log."""
        self.emit(Log(component, level, text))

    def run_of(self, name: str, action: Action, done: Callable[[int, str], None]) -> Run | RemoteRun | WorkerStop:
        """What runs an action, under that name."""
        return Run(self, name, action.command, done)

    # ---- dispatch

    def _fired(self, event: Fired) -> None:
        self._timers.pop(event.timer)()

    def _exited(self, event: Exited) -> None:
        self.runs[event.run].exited(event.status)

    def _output(self, event: Output) -> None:
        self.runs[event.run].output(event)

    def _output_ended(self, event: OutputEnded) -> None:
        self.runs[event.run].output_ended(event)

    def _emptied(self, event: Emptied) -> None:
        self.runs[event.run].emptied()

    def _spawn_failed(self, event: SpawnFailed) -> None:
        self.runs[event.run].spawn_failed(event.errno)

    def _kill_failed(self, event: KillFailed) -> None:
        run = self.runs.get(event.run)
        if run is not None:
            run.kill_failed(event)


# Of timers and runs; each model adds its own.
HANDLERS: Mapping[type[Event], Callable[[Any, Any], None]] = {
    Fired: Desk._fired,
    Exited: Desk._exited,
    Output: Desk._output,
    OutputEnded: Desk._output_ended,
    Emptied: Desk._emptied,
    SpawnFailed: Desk._spawn_failed,
    KillFailed: Desk._kill_failed,
}
