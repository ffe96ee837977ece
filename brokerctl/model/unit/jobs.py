"""What clients ask of the manager: one job at a time, who waits for it, and what each client's systemctl returns.

A later job replaces the pending one, whose clients hear that it was canceled; an equal one joins it (SYSTEMD.md 61–69,
89, 92–94, 100, 101).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from brokerctl.model.unit import start, stop
from brokerctl.model.unit.states import ACTIVE, AT_REST, UP, Sub, What
from brokerctl.records.units import MAIN, Freeze, KillOthers, KillProcess, Returned, Systemctl

if TYPE_CHECKING:
    from brokerctl.model.unit.machine import Unit

Verb = Literal["start", "stop", "restart", "reload"]

RC_OK, RC_FAILED, RC_REFUSED = 0, 1, 4
CANCELED = "canceled"
# A job that joins one that is pending: what becomes of both (SYSTEMD.md 65, 92, 100).
JOINS: dict[tuple[str, str], Verb] = {
    ("start", "start"): "start",
    ("stop", "stop"): "stop",
    ("restart", "restart"): "restart",
    ("reload", "reload"): "reload",
    ("start", "restart"): "restart",
    ("restart", "start"): "restart",
    ("restart", "reload"): "restart",
    ("start", "reload"): "start",
    ("reload", "restart"): "restart",
}


class Job:
    """What is to be reached, and who waits for it. It is `running` once the unit was told."""

    __slots__ = ("clients", "running", "verb")

    def __init__(self, verb: Verb) -> None:
        self.verb: Verb = verb
        self.clients: list[int] = []
        self.running = False


class Jobs:
    """The unit's job, if there is one."""

    __slots__ = ("_going_down", "_job", "_unit", "reload_failed")

    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        self._job: Job | None = None
        self._going_down = False  # shutdown.target: nothing can be started any more (SYSTEMD.md 71)
        self.reload_failed = False

    def is_idle(self) -> bool:
        """Nobody wants anything."""
        return self._job is None

    def asked(self, event: Systemctl) -> None:
        """A client asks."""
        unit, client = self._unit, event.client
        match event.verb:
            case "start" | "stop" | "restart" | "reload":
                self._wanted(event.verb, client)
            case "shutdown":
                self._going_down = True
                self._wanted("stop", client)
            case "kill":
                self._kill(event)
            case "cancel":
                if self._job is not None:
                    self._finish(RC_FAILED, CANCELED)
                unit.emit(Returned(client, RC_OK))
            case "daemon-reload":
                unit.clocks.reloaded()
                unit.emit(Returned(client, RC_OK))
            case "reset-failed":
                if unit.state is Sub.FAILED:
                    stop.unload(unit)
                unit.emit(Returned(client, RC_OK))
            case "freeze" | "thaw":
                self._freeze(client, on=event.verb == "freeze")
            case _:
                raise AssertionError(event.verb)

    def _wanted(self, verb: Verb, client: int) -> None:
        unit, job = self._unit, self._job
        if verb in {"start", "restart"} and self._going_down:
            unit.emit(Returned(client, RC_REFUSED, "Transaction is destructive."))
            return
        if verb == "reload" and (ACTIVE[unit.state] not in UP or not unit.settings.exec_reload):
            unit.emit(Returned(client, RC_FAILED, "Job type reload is not applicable."))
            return
        if job is not None:
            joined = JOINS.get((job.verb, verb))
            if joined is not None:
                job.running = job.running and joined == job.verb
                job.verb = joined
                job.clients.append(client)
                return
            self._finish(RC_FAILED, CANCELED)
        self._job = Job(verb)
        self._job.clients.append(client)

    def _finish(self, rc: int, said: str = "") -> None:
        assert self._job is not None
        job, self._job = self._job, None
        for client in job.clients:
            self._unit.emit(Returned(client, rc, said))

    def run(self) -> None:
        """Tell the unit of a job that it was not told of, if its state lets it."""
        unit = self._unit
        while (job := self._job) is not None and not job.running:
            match job.verb:
                case "start":
                    if ACTIVE[unit.state] in UP:
                        self._finish(RC_OK)
                    elif unit.state in AT_REST:
                        job.running = True
                        start.start(unit)
                    else:
                        job.running = unit.state is Sub.AUTO_RESTART  # which starts it in its time
                        return  # else it must be down first (SYSTEMD.md 66)
                case "stop" | "restart":
                    self._stop(job)
                case "reload":
                    job.running = True
                    if not unit.happens(What.RELOAD) and unit.state is not Sub.RELOAD:
                        self._finish(RC_FAILED)

    def _stop(self, job: Job) -> None:
        unit = self._unit
        job.running = True
        if unit.frozen:
            self._thaw()  # SYSTEMD.md 81
        unit.stopped = True
        unit.restart_asked = job.verb == "restart"
        if unit.state in AT_REST:
            self._down(job)
        else:
            unit.happens(What.STOP)

    def _down(self, job: Job) -> None:
        """The unit is down: a stop is done, a restart becomes a start, whatever the Result (SYSTEMD.md 7, 67)."""
        if job.verb == "stop":
            self._finish(RC_OK)
        else:
            job.verb, job.running = "start", False

    def moved(self) -> None:
        """The unit has changed its state: perhaps to what the job was for."""
        job, active = self._job, ACTIVE[self._unit.state]
        if job is None:
            return
        if job.verb == "start" and active in UP:
            self._finish(RC_OK)
        elif job.verb == "reload" and active == "active":
            self._finish(RC_FAILED if self.reload_failed else RC_OK)
        elif self._unit.state in AT_REST:
            if job.verb in {"stop", "restart"}:
                self._down(job)
            else:
                self.ended(failed=active == "failed")

    def ended(self, *, failed: bool) -> None:
        """The life that a start or a reload was for is over."""
        job = self._job
        if job is not None and job.verb in {"start", "reload"} and job.running:
            self._finish(RC_FAILED if failed else RC_OK)

    # ---- signals, and the freezer

    def _kill(self, event: Systemctl) -> None:
        unit, reached = self._unit, False
        if unit.main and event.whom in {"all", "main"}:
            unit.emit(KillProcess(MAIN, event.signum))
            reached = True
        if unit.control and event.whom in {"all", "control"}:
            unit.emit(KillProcess(unit.control, event.signum))
            reached = True
        if unit.others and event.whom == "all":
            unit.emit(KillOthers(event.signum))
            reached = True
        unit.emit(Returned(event.client, RC_OK if reached else RC_FAILED))

    def _freeze(self, client: int, *, on: bool) -> None:
        unit = self._unit
        if on and unit.state is Sub.RUNNING:
            unit.frozen = True
            unit.emit(Freeze(frozen=True))
        elif not on and unit.frozen:
            self._thaw()
        unit.emit(Returned(client, RC_OK))

    def _thaw(self) -> None:
        self._unit.frozen = False
        self._unit.emit(Freeze(frozen=False))
