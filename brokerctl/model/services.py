"""Daemons on the nodes that scripts start and stop, and the actions of plugins that wait for them.

A script that exits with 0 on a node has started and stopped there what is declared of it. An action that a plugin holds
a job with (`dws-epilog`) may wait until a service is active on all nodes of the job: who waits for whom is told, so
that a reader finds the circle where there is one (flux-coral2#166, FLUX.md 79).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from brokerctl.durations import MS
from brokerctl.model.job import Job, JobState
from brokerctl.records import Served, Service, Waiting

if TYPE_CHECKING:
    from brokerctl.model.jobs import JobManager
    from brokerctl.settings import Hold, NodeService


# A plugin notices within a tenth of a second what it waits for (recorded: 97 ms).
NOTICE_NS = 100 * MS


class _Held:
    """A plugin's action that has not finished, and what was told of who waits for whom."""

    __slots__ = ("hold", "job", "waits")

    def __init__(self, job: Job, hold: Hold) -> None:
        self.job = job
        self.hold = hold
        self.waits: list[tuple[str, str]] = []


class Services:
    """The services of all nodes, and the actions that plugins hold jobs with."""

    __slots__ = ("_active", "_held", "_manager")

    def __init__(self, manager: JobManager) -> None:
        self._manager = manager
        size, settings = manager.node.tree.size, manager.node.settings
        self._active = {one.name: set(range(size)) if one.active else set() for one in settings.services}
        self._held: dict[tuple[str, str], _Held] = {}

    # ---- what scripts do to services

    def script_ran(self, script: str, ranks: Iterable[int], job: Job) -> None:
        """That script of the job has succeeded on these nodes."""
        for service in self._manager.node.settings.services:
            by = f"{script} of {job.label}"
            if service.started_by == script:
                self._turn(service, ranks, by, active=True)
            if service.stopped_by == script:
                self._turn(service, ranks, by, active=False)

    def _turn(self, service: NodeService, ranks: Iterable[int], by: str, *, active: bool) -> None:
        now = self._active[service.name]
        changed = tuple(sorted(rank for rank in ranks if (rank in now) != active))
        if not changed:
            return
        if active:
            now.update(changed)
        else:
            now.difference_update(changed)
        self._manager.node.emit(Service(service.name, changed, active, by))
        if any(one.hold.until == service.name for one in self._held.values()):
            self._manager.node.arm(f"notice {service.name}", NOTICE_NS, lambda: self._notice(service.name))

    def _notice(self, name: str) -> None:
        """Plugins look at what they wait for."""
        for one in tuple(self._held.values()):
            if one.hold.until == name and self._active[name].issuperset(one.job.ranks):
                self.release(one.job, one.hold.name)

    # ---- what plugins hold jobs with

    def hold(self, job: Job, phase: str) -> None:
        """The job has come to that phase: its plugins begin their actions."""
        for hold in self._manager.node.settings.holds:
            if hold.phase == phase:
                self.begin(job, hold)

    def begin(self, job: Job, hold: Hold) -> None:
        """One more action holds the job."""
        manager = self._manager
        self._held[job.id, hold.name] = one = _Held(job, hold)
        manager.post(job, f"{hold.phase}-start", description=hold.name)
        if hold.until:
            missing = sorted(set(job.ranks) - self._active[hold.until])
            if missing:
                self._wait(one, missing)
            else:
                self.release(job, hold.name)
        elif hold.after_ns is not None:
            manager.node.arm(f"hold {hold.name} {job.id}", hold.after_ns, lambda: self._over(job, hold.name))

    def _wait(self, one: _Held, missing: list[int]) -> None:
        """Tell who waits for whom."""
        node, hold, job = self._manager.node, one.hold, one.job
        action = f"{hold.phase} action {hold.name} of {job.label}"
        service = f"{hold.until} on {node.tree.hostlist(missing)}"
        one.waits.append((action, service))
        by = next((each.started_by for each in node.settings.services if each.name == hold.until), "")
        if by:
            one.waits.append((service, f"{by} of {job.label}"))
            if by == "housekeeping":
                one.waits.append((f"housekeeping of {job.label}", action))
        for who, on in one.waits:
            node.emit(Waiting(who, on))

    def _over(self, job: Job, name: str) -> None:
        self.release(job, name)

    def release(self, job: Job, name: str, status: int = 0) -> bool:
        """The plugin lets the job go on; False where it does not hold it."""
        one = self._held.get((job.id, name))
        if one is None:
            return False
        self.finished(job, name)
        if job.state is not JobState.INACTIVE:
            if one.hold.posts:
                self._manager.post(job, one.hold.posts)
            self._manager.post(job, f"{one.hold.phase}-finish", description=name, status=status)
        return True

    def finished(self, job: Job, name: str) -> None:
        """The action is over, or its end was posted by hand."""
        one = self._held.pop((job.id, name), None)
        if one is not None:
            self._manager.node.cancel(f"hold {name} {job.id}")
            for who, on in one.waits:
                self._manager.node.emit(Served(who, on))

    def active(self, name: str) -> set[int]:
        """Where that service is active."""
        return self._active[name]
