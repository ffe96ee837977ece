"""All that a world sees of a rank's model: events in, effects out."""

from __future__ import annotations

from collections.abc import Callable

from brokerctl.model import jobrequests, jobstore, lifecycle, requests, signals
from brokerctl.model.broker import Broker
from brokerctl.model.desk import HANDLERS, Desk
from brokerctl.model.jobs import JobManager
from brokerctl.model.overlay import Overlay
from brokerctl.model.remote import RemoteRun
from brokerctl.model.rexec import Rexec
from brokerctl.model.run import Run
from brokerctl.model.tree import Tree
from brokerctl.model.workers import WorkerStop
from brokerctl.records import (
    Asked,
    Booted,
    Contacted,
    Grown,
    Heard,
    Late,
    Lost,
    Received,
    Responsive,
    Restored,
    Signal,
    Torpid,
)
from brokerctl.settings import Action, Settings

_COMPILED = lifecycle.compiled()


class Node(Desk):
    """One rank. `handle` is the only way in; the effects it appends are the only way out."""

    __slots__ = ("broker", "jobs", "overlay", "rank", "rexec", "tree")

    settings: Settings

    def __init__(self, rank: int, settings: Settings, tree: Tree, fire: lifecycle.Fire = _COMPILED) -> None:
        super().__init__()
        self.rank = rank
        self.settings = settings
        self.tree = tree
        self.broker = Broker(self, fire)
        self.overlay = Overlay(self)
        self.rexec = Rexec(self)
        self.jobs: JobManager | None = None  # the leader's, from the first job on

    def run_of(self, name: str, action: Action, done: Callable[[int, str], None]) -> Run | RemoteRun | WorkerStop:
        """What runs an action: here, or on the ranks that it names; or the stop of a worker."""
        if action.worker:
            assert self.broker.workers is not None
            return self.broker.workers.stop_of(action, name, done)
        if action.ranks:
            return RemoteRun(self, name, action.command, action.ranks, done)
        return Run(self, name, action.command, done)

    # ---- dispatch

    def _booted(self, _event: Booted) -> None:
        self.broker.boot()

    def _signal(self, event: Signal) -> None:
        signals.heard(self, event.signum)

    def _asked(self, event: Asked) -> None:
        requests.asked(self, event)

    def _heard(self, event: Heard | Late | Grown) -> None:
        if self.broker.workers is not None:
            self.broker.workers.heard(event)

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


Node.HANDLERS = {
    **HANDLERS,
    Booted: Node._booted,
    Signal: Node._signal,
    Asked: Node._asked,
    Heard: Node._heard,
    Late: Node._heard,
    Grown: Node._heard,
    Received: Node._received,
    Lost: Node._lost,
    Contacted: Node._contacted,
    Torpid: Node._torpid,
    Responsive: Node._responsive,
    Restored: Node._restored,
}
