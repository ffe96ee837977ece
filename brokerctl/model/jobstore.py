"""What is kept of jobs for the next life of the leader, and what becomes of them then (FLUX.md F).

As in Flux, eventlogs and drained nodes are kept; what ran is not known any more. Of a job that was held by an action
nothing will ever come: it is stuck in CLEANUP, over every restart (FLUX.md 60), unless its epilog is run again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from brokerctl.model.job import BEGINS, FINISHES, Job, JobSpec, JobState
from brokerctl.model.run import ERR, INFO, WARNING
from brokerctl.model.words import error_text
from brokerctl.records import Store

if TYPE_CHECKING:
    from brokerctl.model.jobs import JobManager

KEY = "jobs"
EROFS = 30
SIGTERM = 15
EPILOG = "job-manager.epilog"


class StoredJob(msgspec.Struct, frozen=True, kw_only=True):
    """One job, as it is kept; `housekeeping` are the nodes that were not given back yet."""

    id: str
    spec: JobSpec
    alloc: list[tuple[int, tuple[int, ...]]]
    events: list[tuple[int, str, dict[str, Any]]]
    housekeeping: list[int] = []


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """All that is kept. `next` is the number of the next job."""

    next: int
    jobs: list[StoredJob]
    drained: list[tuple[int, str]] = []


_encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(Stored).decode


def store(manager: JobManager) -> None:
    """Hand all that is known to the world, which keeps it."""
    cleaning = manager.housekeeping.allocations
    kept = Stored(
        next=manager.next,
        jobs=[
            StoredJob(
                id=job.id,
                spec=job.spec,
                alloc=list(job.alloc.items()),
                events=job.events,
                housekeeping=sorted(cleaning[job.id].held) if job.id in cleaning else [],
            )
            for job in manager.jobs.values()
        ],
        drained=sorted(manager.resources.drained.items()),
    )
    manager.node.emit(Store(KEY, _encode(kept).decode()))


def restore(manager: JobManager, value: str) -> None:
    """A new life: replay the eventlogs, and let go on what can go on."""
    kept = decode(value)
    node = manager.node
    manager.next = kept.next
    for rank, reason in kept.drained:
        manager.resources.drain([rank], reason)
    jobs = [_replay(manager, one) for one in kept.jobs]
    # Flux acts on a job while it replays it, when nothing can be written yet: it counts the end of a job whose
    # beginning it has not counted (FLUX.md 65, letter g).
    broken = [job for job in jobs if job.state is JobState.CLEANUP and not job.active]
    for job in broken:
        error = error_text(EROFS)
        node.log("job-manager", ERR, f"replay warning: CLEANUP->INACTIVE action failed on job {job.id}: {error}")
    counted = [job for job in jobs if job.is_running() and job not in broken]
    miscounted = 0 if node.settings.shells_hang is False else len(broken)
    manager.running = len(counted) - miscounted
    node.log("job-manager", INFO, f"restart: {len(jobs)} jobs")
    node.log("job-manager", INFO, f"restart: {manager.running} running jobs")
    for job in broken:
        manager.running += 1
        manager.resume(job)
    for job in jobs:
        if job.state is JobState.SCHED:
            manager.post(job, "flux-restart")
            manager.post(job, "priority", priority=16)
        elif job.state is JobState.RUN and job.started:
            _tasks_gone(manager, job)
        elif job.active:
            _held(manager, job)
    if node.settings.housekeeping_drains:
        for job, one in zip(jobs, kept.jobs, strict=True):
            if one.housekeeping:
                manager.resources.allocate(job, one.housekeeping)
                manager.again(job, tuple(one.housekeeping))


def labels(value: str) -> dict[str, str]:
    """The names of the jobs that are kept, by id."""
    return {job.id: job.spec.name or job.id for job in decode(value).jobs}


def _replay(manager: JobManager, one: StoredJob) -> Job:
    job = Job(one.id, one.spec)
    job.alloc = dict(one.alloc)
    for t_ns, name, context in one.events:
        before = job.state
        job.note(t_ns, name, context)
        if name in BEGINS:
            counted = name == "prolog-start" or before is JobState.CLEANUP or manager.node.settings.count_every_epilog
            job.begin(BEGINS[name], context["description"], counted=counted)
        elif name in FINISHES:
            job.finish(context["description"])
    manager.jobs[job.id] = job
    if job.resources:
        manager.resources.allocate(job)
    return job


def _tasks_gone(manager: JobManager, job: Job) -> None:
    """Its tasks ran when the broker was killed; their shells are lost (fc#5771, fc#6117)."""
    job.pending = True
    manager.raise_exception(job, "exec", 0, "failed to create guest ns: File exists")
    manager.tasks.finish(job, SIGTERM)


def _held(manager: JobManager, job: Job) -> None:
    """An action holds it of which nothing will come: run an epilog again, or say how to let the job go (FLUX.md 61)."""
    settings = manager.node.settings
    if not settings.rerun_epilog:
        return
    for description, phase in job.holding.items():
        if description == EPILOG and settings.epilog is not None:
            manager.again(job, None)
            continue
        repair = f"flux post-job-event {job.id} {phase}-finish description={description} status=0"
        manager.node.log(
            "job-manager", WARNING, f"{job.id}: nothing will finish its {phase} action {description}; repair: {repair}"
        )
