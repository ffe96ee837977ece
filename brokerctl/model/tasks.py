"""The tasks of jobs: started on all their nodes, ended by SIGTERM and then SIGKILL (FLUX.md 65, 78, 85, 93)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from brokerctl.durations import MS
from brokerctl.model.remote import Remote
from brokerctl.model.rexec import UNREACHABLE, Answer
from brokerctl.model.run import ERR, INFO
from brokerctl.settings import Rung

if TYPE_CHECKING:
    from brokerctl.model.job import Job
    from brokerctl.model.jobs import JobManager

SIGTERM, SIGKILL = 15, 9
# `release` comes some milliseconds after `finish` (FLUX.md 51: recorded 2 to 14).
RELEASE_NS = 5 * MS
NOBODY = -1
# A shell that is left when its job was killed is killed so many times later (a real Flux 0.88: 25 s after the exception
# of FLUX.md 93, by default); the job ends with exit code 1 then.
SHELL_KILL_FACTOR = 5
SHELLS_KILLED = 1 << 8
SHELL_FAILED = "flux_job_event_watch_get: Function not implemented"


class Tasks:
    """What runs of each job; the job manager is told of start, finish and release by events."""

    __slots__ = ("_manager", "_remotes", "_status")

    def __init__(self, manager: JobManager) -> None:
        self._manager = manager
        self._remotes: dict[str, Remote] = {}
        self._status: dict[str, int] = {}

    def start(self, job: Job) -> None:
        """Start them; a node that is not there makes the start fail (FLUX.md 78)."""
        job.pending = True
        kill_ns = self._manager.node.settings.exec_kill_timeout_ns
        self._status[job.id] = NOBODY
        remote = Remote(
            self._manager.node,
            f"job.{job.id}.task",
            job.spec.task,
            job.ranks,
            rungs=(Rung(SIGTERM, kill_ns), Rung(SIGKILL, None)),
            progress=lambda answer, ranks: self._answered(job, answer, ranks),
            done=lambda: self._done(job),
            said=lambda rank, stream, text: self._said(job, rank, stream, text),
        )
        self._remotes[job.id] = remote
        remote.begin()
        if not job.fatal:
            self._manager.post(job, "start")

    def running(self, job: Job) -> bool:
        """Tasks of it have not ended."""
        return job.id in self._remotes

    def forward(self, signum: int) -> int:
        """Hand a signal to all tasks (FLUX.md 33); to how many jobs."""
        for remote in tuple(self._remotes.values()):
            remote.forward(signum)
        return len(self._remotes)

    def cancel(self, job: Job) -> None:
        """End them."""
        remote = self._remotes.get(job.id)
        if remote is not None:
            remote.abort()

    def shell_failed(self, job: Job, rank: int) -> None:
        """A shell can't watch its job any more, and of its tasks nothing more will be heard (FLUX.md 65, 93).

        Where shells do not hang, the job is told that its node goes, and ends.
        """
        manager = self._manager
        if manager.node.settings.shells_hang:
            job.hung = True
            manager.raise_exception(job, "exec", 0, SHELL_FAILED)
            after_ns = SHELL_KILL_FACTOR * manager.node.settings.exec_kill_timeout_ns
            manager.node.arm(f"shells {job.id}", after_ns, lambda: self._shells_killed(job))
        elif not job.fatal:
            manager.raise_exception(job, "exec", 0, f"broker stops on {manager.node.tree.describe([rank])}")

    def _shells_killed(self, job: Job) -> None:
        """The shells that were left are killed at last, and the job ends."""
        job.hung = False
        if not self.running(job):
            self.finish(job, SHELLS_KILLED)

    def unload(self) -> None:
        """The job manager goes."""
        for remote in self._remotes.values():
            remote.forget()
        self._remotes.clear()

    def _answered(self, job: Job, answer: Answer, ranks: tuple[int, ...]) -> None:
        _status, rc, how = answer
        if how != UNREACHABLE:
            # The shell exits with its tasks' code, or 128 + N for their death by signal N (FLUX.md 85: 36608).
            self._status[job.id] = max(self._status[job.id], rc << 8)
            return
        if not job.fatal:
            node = self._manager.node
            note = f"node failure on {node.tree.describe(ranks)}"
            node.log("job-exec", INFO, f"job-exception: id={job.id}: {note}")
            self._manager.raise_exception(job, "exec", 0, note)

    def _done(self, job: Job) -> None:
        self._remotes.pop(job.id, None)
        status = self._status.pop(job.id)
        if job.hung:
            return
        if not job.started or status == NOBODY:
            status = SIGTERM  # shells that had not begun, or nobody left to tell (FLUX.md 78)
        self.finish(job, status)

    def finish(self, job: Job, status: int) -> None:
        """All of them are over, with that wait status; their release follows."""
        self._manager.post(job, "finish", status=status)
        self._manager.node.arm(f"release {job.id}", RELEASE_NS, lambda: self._release(job))

    def _release(self, job: Job) -> None:
        job.pending = False
        self._manager.post(job, "release", ranks="all", final=True)

    def _said(self, job: Job, rank: int, stream: Literal["out", "err"], text: str) -> None:
        level = INFO if stream == "out" else ERR
        self._manager.node.log("job-exec", level, f"{job.id}: rank {rank}: {text}")
