"""The job manager of the leader: each job's states and events, and who may go on when (FLUX.md E–H; RFC 18, 21).

A job goes NEW → DEPEND → PRIORITY → SCHED → RUN → CLEANUP → INACTIVE. What holds it is counted as Flux counts it: tasks
start when no prolog action is active; in CLEANUP its nodes are freed when no action is active and its tasks are
released, and in the same instant it is clean; housekeeping runs after that (FLUX.md 66, 75, 79).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from brokerctl.ids import f58
from brokerctl.model import eventwaits, jobstore
from brokerctl.model.housekeeping import Housekeeping
from brokerctl.model.job import BEGINS, FINISHES, OWNER, Job, JobSpec, JobState
from brokerctl.model.lifecycle import State
from brokerctl.model.perilog import Perilog
from brokerctl.model.resources import Resources
from brokerctl.model.run import WARNING
from brokerctl.model.services import Services
from brokerctl.model.tasks import Tasks
from brokerctl.records import Answer, EventWanted, JobEvent, Served, Waiting

if TYPE_CHECKING:
    from brokerctl.model.node import Node

# In these the scheduler works.
_SCHEDULING = frozenset({State.QUORUM, State.RUN, State.CLEANUP})
# A job id is a time and a number (RFC 19); here it is only a number, so that it is the same in every world.
_ID_STEP = 1 << 24
QUEUE_IDLE = "flux queue idle"


class JobManager:
    """All jobs of an instance. Only the leader has one, from the first job on."""

    __slots__ = (
        "_again", "_event_waits", "_idle", "_scheduling", "housekeeping", "jobs", "loaded", "muted", "next", "node",
        "perilog", "queue", "resources", "running", "services", "stopped", "tasks",
    )  # fmt: skip

    def __init__(self, node: Node) -> None:
        self.node = node
        self.loaded = True
        self.jobs: dict[str, Job] = {}
        self.next = 1
        self.queue: dict[str, Job] = {}  # in SCHED, first come first
        self.running = 0  # as Flux counts them: it may go wrong over a restart (FLUX.md 65, letter g)
        self.stopped = self.muted = False
        self._scheduling = False
        self._again: list[tuple[Job, tuple[int, ...] | None]] = []
        self._event_waits: dict[tuple[str, str], list[EventWanted]] = {}  # job and event → who waits
        self._idle: list[int] = []  # who waits for the queue to be idle
        self.resources = Resources(node)
        self.tasks = Tasks(self)
        self.services = Services(self)
        self.perilog = Perilog(self)
        self.housekeeping = Housekeeping(self)

    # ---- jobs come

    def submit(self, spec: JobSpec) -> Job:
        """A new job, which is put into the queue."""
        job = Job(f58(self.next * _ID_STEP), spec)
        self.next += 1
        self.jobs[job.id] = job
        self.post(job, "submit", userid=spec.user, urgency=16, flags=0, version=1)
        self.post(job, "validate")
        self.post(job, "depend")
        self.post(job, "priority", priority=16)
        self.schedule()
        return job

    def schedule(self) -> None:
        """Give nodes to jobs, first come first served: nobody overtakes the first that does not fit."""
        if self._scheduling or self.stopped or not self.loaded or self.node.broker.state not in _SCHEDULING:
            return
        self._scheduling = True
        while self.queue:
            job = next(iter(self.queue.values()))
            found = self.resources.find(job.spec)
            if found is None:
                break
            del self.queue[job.id]
            job.alloc = found
            self.resources.allocate(job)
            self.post(job, "alloc", annotations={"sched": {"resource_summary": self.resources.summary(job)}})
        self._scheduling = False

    def online(self, ranks: Iterable[int]) -> None:
        """These ranks are there now."""
        self.resources.up(ranks)
        self.schedule()

    def offline(self, ranks: Iterable[int]) -> None:
        """These ranks are gone; the scheduler is not told any more once it is muted (FLUX.md 15)."""
        if not self.muted:
            self.resources.down(ranks)

    def drain(self, ranks: Iterable[int], reason: str) -> None:
        """No job is put on these ranks any more."""
        self.resources.drain(ranks, reason)

    # ---- events

    def post(self, job: Job, name: str, **context: Any) -> None:  # noqa: ANN401 - whatever RFC 21 has
        """An event of a job: written to its eventlog, then acted upon."""
        if not self.loaded:
            return
        before = job.state
        job.note(self.node.now_ns, name, context)
        self.node.emit(JobEvent(job.id, job.label, name, context))
        if self._event_waits:
            self._tell_waiting(job, name)
        if name in BEGINS:
            counted = name == "prolog-start" or before is JobState.CLEANUP or self.node.settings.count_every_epilog
            self._begin(job, BEGINS[name], context["description"], counted=counted)
        elif name in FINISHES:
            self._finish(job, context["description"])
        if job.state is not before:
            self._moved(job, before)
        if name == "exception" and context["severity"] == 0:
            self.perilog.job_failed(job)
            if job.pending:
                self.tasks.cancel(job)
        elif name == "finish":
            self.perilog.job_finished(job)
        if job.state is JobState.CLEANUP and before is not JobState.CLEANUP and job.resources:
            self.services.hold(job, "epilog")
        self._act(job)

    def _moved(self, job: Job, before: JobState) -> None:
        if before is JobState.SCHED:
            self.queue.pop(job.id, None)
        if job.is_running() and before not in {JobState.RUN, JobState.CLEANUP}:
            self.running += 1
        match job.state:
            case JobState.SCHED:
                self.queue[job.id] = job
            case JobState.RUN:
                self.perilog.job_runs(job)
                self.services.hold(job, "prolog")
            case JobState.INACTIVE:
                self.running -= 1
                if self._idle:
                    self.node.emit(Served(QUEUE_IDLE, f"job {job.label}"))
                self._tell_idle()
            case _:
                pass

    def _begin(self, job: Job, phase: str, description: str, *, counted: bool) -> None:
        job.begin(phase, description, counted=counted)
        if counted:
            self.node.emit(Waiting(f"job {job.label}", f"{phase} action {description} of {job.label}"))

    def _finish(self, job: Job, description: str) -> None:
        phase = job.holding.get(description)
        job.finish(description)
        if phase is not None:
            self.node.emit(Served(f"job {job.label}", f"{phase} action {description} of {job.label}"))

    def _act(self, job: Job) -> None:
        """Let the job go on as far as nothing holds it."""
        if job.active or job.pending:
            return
        if job.state is JobState.RUN and not job.started:
            self.tasks.start(job)
        elif job.state is JobState.CLEANUP and job.resources:
            self.post(job, "free")
            self.housekeeping.start(job)
            self.schedule()
        if job.state is JobState.CLEANUP and not job.resources:
            self.post(job, "clean")

    def raise_exception(self, job: Job, kind: str, severity: int, note: str, user: int = OWNER) -> None:
        """An exception of a job; one of severity 0 ends it."""
        self.post(job, "exception", type=kind, severity=severity, note=note, userid=user)

    def shell_failed(self, run: str, rank: int) -> None:
        """The broker of a rank where the job runs has unloaded its modules, or is about to end."""
        job = self.jobs.get(run.split(".")[1])
        if job is not None and job.pending:
            self.tasks.shell_failed(job, rank)

    def shells_fail_here(self) -> None:
        """The leader's own modules are gone: shells of jobs on it, which stay once one has failed, say so."""
        for job in self.jobs.values():
            if job.pending and 0 in job.alloc and (job.hung or self.tasks.running(job)):
                self.tasks.shell_failed(job, 0)

    # ---- `flux queue idle`

    def when_idle(self, reply: int) -> None:
        """Answer when no job is in RUN or CLEANUP (FLUX.md 44); what is pending then is told."""
        if not self.running:
            self._answer_idle(reply)
            return
        self._idle.append(reply)
        running = [job for job in self.jobs.values() if job.is_running()]
        for job in running:
            self.node.emit(Waiting(QUEUE_IDLE, f"job {job.label}"))
        if not running:
            self.node.emit(Waiting(QUEUE_IDLE, f"{self.running} running jobs"))

    def _tell_idle(self) -> None:
        if self._idle and not self.running:
            for reply in self._idle:
                self._answer_idle(reply)
            self._idle.clear()

    def _answer_idle(self, reply: int) -> None:
        pending = len(self.queue)
        self.node.emit(Answer(reply, {"prints": [["out", f"{pending} jobs"]]} if pending else {}))

    # ---- over a restart

    def begin_checkpoints(self) -> None:
        """Store what is known from time to time, where that is wanted."""
        period_ns = self.node.settings.checkpoint_period_ns
        if period_ns is not None:
            self.node.arm("checkpoint", period_ns, self._checkpoint, reminder=True)

    def _checkpoint(self) -> None:
        jobstore.store(self)
        self.begin_checkpoints()

    def resume(self, job: Job) -> None:
        """Let a job of an earlier life go on, as far as nothing holds it."""
        self._act(job)

    def again(self, job: Job, ranks: tuple[int, ...] | None) -> None:
        """Once the instance runs: housekeeping of an earlier life on these nodes, or with None the job's epilog."""
        self._again.append((job, ranks))

    def runs(self) -> None:
        """The broker has entered RUN."""
        for job, ranks in self._again:
            if ranks is None:
                self.perilog.again(job)
            else:
                self.housekeeping.start(job, ranks)
        self._again.clear()
        self.schedule()

    # ---- what is shown

    def about(self) -> dict[str, Any]:
        """Jobs that are not over, housekeeping, resources and drained nodes, as an admin would list them."""
        return {
            "jobs": [
                {
                    "id": job.id,
                    "name": job.label,
                    "user": job.spec.user,
                    "state": str(job.state),
                    "held_ns": self.node.now_ns - job.since_ns,
                    "ranks": list(job.ranks),
                    "held_by": list(job.holding),
                }
                for job in self.jobs.values()
                if job.state is not JobState.INACTIVE
            ],
            "housekeeping": self.housekeeping.table(),
            "resources": self.resources.states(),
            "drained": {str(rank): reason for rank, reason in sorted(self.resources.drained.items())},
        }

    # ---- scripts that wait for an event

    def wait_event(self, message: EventWanted) -> None:
        """A script waits for an event of its job: it is told when that has been posted."""
        job = self.jobs.get(message.job)
        if job is None:
            eventwaits.answer(self.node, message, "unknown job")
        elif any(name == message.event for _t_ns, name, _context in job.events):
            eventwaits.answer(self.node, message)
        else:
            self._event_waits.setdefault((job.id, message.event), []).append(message)
            self.node.emit(Waiting(_asker(self, message), f"event {message.event} of {job.label}"))

    def _tell_waiting(self, job: Job, name: str) -> None:
        for message in self._event_waits.pop((job.id, name), ()):
            self.node.emit(Served(_asker(self, message), f"event {name} of {job.label}"))
            eventwaits.answer(self.node, message)

    # ---- the end

    def _explain_left(self) -> None:
        """Name each job that this life leaves unfinished, and what becomes of it."""
        for job in self.jobs.values():
            if job.is_running():
                held = ", ".join(f"{phase} action {name}" for name, phase in job.holding.items()) or "its tasks"
                self.node.log("job-manager", WARNING, f"{job.id}: left in {job.state}, held by {held}")
        for one in self.housekeeping.allocations.values():
            where = self.node.tree.describe(sorted(one.held))
            self.node.log("job-manager", WARNING, f"{one.job.id}: housekeeping is cut off on {where}")

    def unload(self) -> None:
        """The job manager goes, and what it has started on its own rank with it (FLUX.md 55)."""
        if self.loaded:
            if self.node.settings.explain:
                self._explain_left()
            self.loaded = False
            self.node.cancel("checkpoint")
            for part in (self.tasks, self.perilog, self.housekeeping):
                part.unload()
            self.node.rexec.kill_jobs()


def _asker(manager: JobManager, message: EventWanted) -> str:
    return f"script of {manager.jobs[message.job].label} on {manager.node.tree.host(message.rank)}"
