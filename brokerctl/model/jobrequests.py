"""What may be asked of the leader about jobs, by people, by scripts and by the broker's own cleanup actions.

A request is answered with what its command prints (`prints`), with `error`, or, `queue-idle`, when its time has come.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from brokerctl.model.job import BEGINS, FINISHES, OWNER, Job, JobSpec, JobState
from brokerctl.model.jobs import JobManager
from brokerctl.model.lifecycle import State
from brokerctl.records import Asked
from brokerctl.settings import Hold

if TYPE_CHECKING:
    from brokerctl.model.node import Node

_ACCEPTING = frozenset({State.QUORUM, State.RUN, State.CLEANUP})
_decode = msgspec.json.Decoder(JobSpec).decode
# What an eventlog can hold, and be read again: no integer of JSON is longer than 64 bits.
_NUMBER = re.compile("[0-9]{1,18}")

# An answer's body, or None where the answer comes later.
Body = dict[str, Any] | None


class Refused(Exception):  # noqa: N818 - not an error of the program: an answer
    """Raised when a request can't be granted; the text says why."""


def manager(node: Node) -> JobManager:
    """The leader's job manager, made when it is first needed."""
    if node.jobs is None:
        node.jobs = JobManager(node)
        node.jobs.resources.up(node.overlay.online())
        node.jobs.begin_checkpoints()
    return node.jobs


def asked(node: Node, event: Asked) -> Body:
    """Do what is asked; Refused where it can't be."""
    if node.rank:
        raise Refused("jobs are managed on rank 0")
    jobs = manager(node)
    if not jobs.loaded:
        raise Refused("the job manager is not loaded")
    return REQUESTS[event.what](jobs, event)


def _submit(jobs: JobManager, event: Asked) -> Body:
    node = jobs.node
    if node.broker.state not in _ACCEPTING:
        raise Refused(f"jobs cannot be submitted in state {node.broker.state}")
    try:
        spec = _decode(event.text)
    except msgspec.MsgspecError as error:
        raise Refused(f"no job specification: {error}") from None
    if spec.width > node.tree.size or (spec.cores or 0) > node.settings.cores:
        raise Refused("unsatisfiable: the instance has not that much")
    if any(not 0 <= rank < node.tree.size for rank in spec.ranks) or spec.width < 1:
        raise Refused("unsatisfiable: no such ranks")
    if len(set(spec.ranks)) < len(spec.ranks) or (spec.cores is not None and spec.cores < 1):
        raise Refused("unsatisfiable: a rank stands there twice, or no core is wanted")
    return {"id": jobs.submit(spec).id}


def _find(jobs: JobManager, event: Asked) -> Job:
    """The job that the first word names: an id, or what its submitter called it (the last one of that name)."""
    name = event.words[0] if event.words else ""
    job = jobs.jobs.get(name)
    if job is None:
        job = next((one for one in reversed(jobs.jobs.values()) if one.spec.name == name), None)
    if job is None:
        raise Refused(f"unknown job {name!r}")
    return job


def _active(jobs: JobManager, event: Asked) -> Job:
    job = _find(jobs, event)
    if job.state is JobState.INACTIVE:
        raise Refused(f"job {job.id} is inactive")
    return job


def _cancel(jobs: JobManager, event: Asked) -> Body:
    jobs.raise_exception(_active(jobs, event), "cancel", 0, "")
    return {}


def _cancel_running(jobs: JobManager, _event: Asked) -> Body:
    """`flux cancel --user=all --quiet --states RUN`, and what it prints (FLUX.md 14)."""
    running = [job for job in jobs.jobs.values() if job.state is JobState.RUN]
    for job in running:
        jobs.raise_exception(job, "cancel", 0, "", OWNER)
    if not running:
        return {}
    plural = "s" if len(running) > 1 else ""
    return {"prints": [["err", f"flux-cancel: Canceled {len(running)} job{plural} (0 errors)"]]}


def _post_event(jobs: JobManager, event: Asked) -> Body:
    """`flux post-job-event ID NAME [KEY=VALUE…]` (FLUX.md 61)."""
    job = _active(jobs, event)
    if len(event.words) < 2:
        raise Refused("expected a job, the name of an event, and KEY=VALUE")
    context: dict[str, Any] = {}
    for word in event.words[2:]:
        key, equals, value = word.partition("=")
        if not equals:
            raise Refused(f"{word!r} is no KEY=VALUE")
        context[key] = int(value) if key != "description" and _NUMBER.fullmatch(value) else value
    name = event.words[1]
    if (name in BEGINS or name in FINISHES) and "description" not in context:
        raise Refused(f"{name} needs description=NAME")
    if name == "exception":
        raise Refused("an exception is raised, not posted")
    if name in FINISHES:
        jobs.services.finished(job, context["description"])
    jobs.post(job, name, **context)
    return {}


def _hold(jobs: JobManager, event: Asked) -> Body:
    """`hold JOB NAME`: a plugin begins an epilog action that only `release` finishes."""
    job = _active(jobs, event)
    if len(event.words) != 2 or event.words[1] in job.holding:
        raise Refused("expected a job and the name of an action that it does not have")
    jobs.services.begin(job, Hold(name=event.words[1]))
    return {}


def _release(jobs: JobManager, event: Asked) -> Body:
    """`release JOB NAME`: the plugin lets the job go on."""
    job = _find(jobs, event)
    if len(event.words) != 2 or not jobs.services.release(job, event.words[1]):
        raise Refused(f"no action of a plugin holds job {job.id} by that name")
    return {}


def _queue_stop(jobs: JobManager, _event: Asked) -> Body:
    jobs.stopped = True
    return {}


def _acquire_mute(jobs: JobManager, _event: Asked) -> Body:
    jobs.muted = True
    return {}


def _queue_idle(jobs: JobManager, event: Asked) -> Body:
    jobs.when_idle(event.reply)
    return None


def _housekeeping_kill(jobs: JobManager, event: Asked) -> Body:
    """`flux housekeeping kill`: that of one job, or `all` (FLUX.md 83)."""
    if event.words == ("all",):
        for job in tuple(jobs.housekeeping.allocations):
            jobs.housekeeping.kill(job)
        return {}
    job = _find(jobs, event).id
    if not jobs.housekeeping.kill(job):
        raise Refused(f"no housekeeping runs for job {job}")
    return {}


def _jobs(jobs: JobManager, _event: Asked) -> Body:
    return jobs.about()


REQUESTS: dict[str, Callable[[JobManager, Asked], Body]] = {
    "submit": _submit,
    "cancel": _cancel,
    "cancel-running": _cancel_running,
    "post-event": _post_event,
    "hold": _hold,
    "release": _release,
    "queue-stop": _queue_stop,
    "acquire-mute": _acquire_mute,
    "queue-idle": _queue_idle,
    "housekeeping-kill": _housekeeping_kill,
    "jobs": _jobs,
}
