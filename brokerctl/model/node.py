"""All that a world sees of a rank's model: events in, effects out.

Components call each other inside one `handle`; there is no re-entry. Timers and runs are kept here by name, each with
who wants to know: a timer that fires was armed and not cancelled, so nobody checks for staleness.
"""

from __future__ import annotations

from collections.abc import Callable

from brokerctl.model import jobrequests, jobstore, lifecycle, requests, signals
from brokerctl.model.broker import Broker
from brokerctl.model.jobs import JobManager
from brokerctl.model.overlay import Overlay
from brokerctl.model.rexec import Rexec
from brokerctl.model.run import Run
from brokerctl.model.tree import Tree
from brokerctl.records import (
    Arm,
    Asked,
    Booted,
    Cancel,
    Contacted,
    Effect,
    Emptied,
    Event,
    Exited,
    Fired,
    KillFailed,
    Log,
    Lost,
    Output,
    OutputEnded,
    Received,
    Responsive,
    Restored,
    Signal,
    SpawnFailed,
    Torpid,
)
from brokerctl.settings import Settings

_COMPILED = lifecycle.compiled()


class Node:
    """One rank. `handle` is the only way in; the effects it appends are the only way out."""

    __slots__ = ("_timers", "broker", "emit", "jobs", "now_ns", "overlay", "rank", "rexec", "runs", "settings", "tree")

    emit: Callable[[Effect], None]

    def __init__(self, rank: int, settings: Settings, tree: Tree, fire: lifecycle.Fire = _COMPILED) -> None:
        self.rank = rank
        self.settings = settings
        self.tree = tree
        self.now_ns = 0
        self.runs: dict[str, Run] = {}
        self._timers: dict[str, Callable[[], None]] = {}
        self.broker = Broker(self, fire)
        self.overlay = Overlay(self)
        self.rexec = Rexec(self)
        self.jobs: JobManager | None = None  # the leader's, from the first job on

    def handle(self, now_ns: int, event: Event, out: list[Effect]) -> None:
        """Take in one event at this time; append what is to be done, in order."""
        self.now_ns = now_ns
        self.emit = out.append
        _HANDLERS[type(event)](self, event)

    # ---- for the components

    def arm(self, timer: str, after_ns: int, then: Callable[[], None], *, reminder: bool = False) -> None:
        """(Re)arm a timer of this rank; a reminder is no pending work."""
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
        """A line of the broker's log."""
        self.emit(Log(component, level, text))

    # ---- dispatch

    def _booted(self, _event: Booted) -> None:
        self.broker.boot()

    def _signal(self, event: Signal) -> None:
        signals.heard(self, event.signum)

    def _asked(self, event: Asked) -> None:
        requests.asked(self, event)

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

    def _received(self, event: Received) -> None:
        self.overlay.received(event.peer, event.message)

    def _lost(self, event: Lost) -> None:
        self.overlay.lost(event.peer, event.why)

    def _contacted(self, event: Contacted) -> None:
        self.overlay.contacted(event.peer)

    def _torpid(self, event: Torpid) -> None:
        self.overlay.torpid(event.peer, event.silent_ns)

    def _responsive(self, event: Responsive) -> None:
        self.overlay.responsive(event.peer)

    def _restored(self, event: Restored) -> None:
        if event.key == jobstore.KEY and self.rank == 0:
            jobstore.restore(jobrequests.manager(self), event.value)


_HANDLERS: dict[type[Event], Callable[..., None]] = {
    Booted: Node._booted,
    Signal: Node._signal,
    Asked: Node._asked,
    Fired: Node._fired,
    Exited: Node._exited,
    Output: Node._output,
    OutputEnded: Node._output_ended,
    Emptied: Node._emptied,
    SpawnFailed: Node._spawn_failed,
    KillFailed: Node._kill_failed,
    Received: Node._received,
    Lost: Node._lost,
    Contacted: Node._contacted,
    Torpid: Node._torpid,
    Responsive: Node._responsive,
    Restored: Node._restored,
}
