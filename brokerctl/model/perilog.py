"""Prolog and epilog of jobs, as Flux's perilog plugin runs them (FLUX.md 66–78).

A prolog begins with the allocation, and tasks wait for it; an epilog begins when the job's tasks have finished, or when
its prolog has failed or was canceled. A script is over when every rank has answered, is lost, or was given up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from brokerctl.durations import S
from brokerctl.model.job import Job, JobState
from brokerctl.model.lifecycle import STOPPING
from brokerctl.model.remote import Remote
from brokerctl.model.rexec import UNREACHABLE, Answer
from brokerctl.model.run import ERR, INFO
from brokerctl.model.words import error_text
from brokerctl.records import Unreachable
from brokerctl.settings import Perilog as Settings
from brokerctl.settings import Rung

if TYPE_CHECKING:
    from brokerctl.model.jobs import JobManager

SIGTERM, SIGKILL = 15, 9
LAUNCH_ERROR = "error launching process: "
# How long after SIGKILL an answer may take, where SIGKILL is sent.
KILLED_GRACE_NS = 5 * S

Name = Literal["prolog", "epilog"]


class Script:
    """A prolog or an epilog of one job that runs now, and what its ranks have answered."""

    __slots__ = ("canceled", "given_up", "job", "lost", "name", "remote", "settings", "statuses", "timed_out")

    remote: Remote

    def __init__(self, job: Job, name: Name, settings: Settings) -> None:
        self.job = job
        self.name: Name = name
        self.settings = settings
        self.statuses: dict[int, int] = {}  # rank → wait status
        self.lost: list[int] = []
        self.timed_out = self.canceled = self.given_up = False

    @property
    def description(self) -> str:
        """How the job's eventlog calls it."""
        return f"job-manager.{self.name}"

    def failing(self) -> list[int]:
        """The ranks where it did not succeed, lost ones apart."""
        return sorted(rank for rank, status in self.statuses.items() if status)


class Perilog:
    """The scripts that run now, by job."""

    __slots__ = ("_manager", "_scripts")

    def __init__(self, manager: JobManager) -> None:
        self._manager = manager
        self._scripts: dict[str, Script] = {}

    def running(self, job: Job) -> Script | None:
        """The prolog or epilog of that job that runs now."""
        return self._scripts.get(job.id)

    # ---- when

    def job_runs(self, job: Job) -> None:
        """It has been given its nodes."""
        settings = self._manager.node.settings.prolog
        if settings is not None:
            self._start(job, "prolog", settings)

    def job_finished(self, job: Job) -> None:
        """Its tasks have finished; no epilog begins once the broker is in CLEANUP (FLUX.md 54)."""
        node = self._manager.node
        if node.settings.epilog_in_cleanup or node.broker.state not in STOPPING:
            self._start_epilog(job)

    def _start_epilog(self, job: Job) -> None:
        settings = self._manager.node.settings.epilog
        if settings is not None:
            self._start(job, "epilog", settings)

    def job_failed(self, job: Job) -> None:
        """It has an exception of severity 0."""
        script = self._scripts.get(job.id)
        if script is None or script.timed_out or script.canceled or not script.settings.cancel_on_exception:
            return
        script.canceled = True
        self._end(script)

    def again(self, job: Job) -> None:
        """Run the epilog of a job once more whose first one was cut off by the end of the broker."""
        settings = self._manager.node.settings.epilog
        if settings is not None and job.begins("epilog"):
            self._run(Script(job, "epilog", settings))

    # ---- one script

    def _start(self, job: Job, name: Name, settings: Settings) -> None:
        if job.begins(name):
            script = Script(job, name, settings)
            self._manager.post(job, f"{name}-start", description=script.description)
            self._run(script)

    def _run(self, script: Script) -> None:
        node, job, settings = self._manager.node, script.job, script.settings
        rungs: tuple[Rung, ...] = (Rung(SIGTERM, None),)
        if node.settings.perilog_kill:
            rungs = (Rung(SIGTERM, settings.kill_timeout_ns), Rung(SIGKILL, KILLED_GRACE_NS))
        script.remote = Remote(
            node,
            f"job.{job.id}.{script.name}",
            settings.command,
            job.ranks if settings.per_rank else (0,),
            rungs=rungs,
            progress=lambda answer, ranks: self._answered(script, answer, ranks),
            done=lambda: self._finish(script),
            said=lambda rank, stream, text: self._said(script, rank, stream, text),
        )
        self._scripts[job.id] = script
        if settings.timeout_ns is not None:
            node.arm(self._timer(script, "timeout"), settings.timeout_ns, lambda: self._timeout(script))
        script.remote.begin()

    def _timer(self, script: Script, what: str) -> str:
        return f"{script.name}-{what} {script.job.id}"

    def _answered(self, script: Script, answer: Answer, ranks: tuple[int, ...]) -> None:
        node, job = self._manager.node, script.job
        status, _rc, how = answer
        if how == UNREACHABLE:
            script.lost += ranks
            for rank in ranks:
                node.emit(Unreachable(rank, f"{job.id}: {script.name}"))
            return
        script.statuses.update(dict.fromkeys(ranks, status))
        if how.startswith(LAUNCH_ERROR):
            for rank in ranks:
                node.log("job-manager", ERR, f"{job.id}: {script.name}: {_at(self._manager, rank)}: {how}")
        elif not status:
            # A central script does for all nodes of the job what a per-rank one does on its own.
            self._manager.services.script_ran(script.name, ranks if script.settings.per_rank else job.ranks, job)

    def _said(self, script: Script, rank: int, stream: Literal["out", "err"], text: str) -> None:
        level = INFO if stream == "out" else ERR
        where = _at(self._manager, rank)
        self._manager.node.log("job-manager", level, f"{script.job.id}: {script.name}: {where}: std{stream}: {text}")

    # ---- its end by force

    def _timeout(self, script: Script) -> None:
        if not script.canceled:
            script.timed_out = True
            self._end(script)

    def _end(self, script: Script) -> None:
        node = self._manager.node
        limit_ns = script.settings.kill_timeout_ns
        if node.settings.perilog_kill:
            limit_ns += 2 * KILLED_GRACE_NS
        node.arm(self._timer(script, "kill-timeout"), limit_ns, lambda: self._give_up(script))
        script.remote.abort()

    def _give_up(self, script: Script) -> None:
        """It ignores SIGTERM: its job goes on, its processes run on (FLUX.md 71, 74; letter q)."""
        self._manager.node.log(
            "job-manager", ERR, f"{script.job.id}: timed out waiting for SIGTERM to terminate {script.name}"
        )
        script.given_up = True
        script.lost += script.remote.silent()
        script.remote.forget()
        self._finish(script)

    # ---- its end

    def _finish(self, script: Script) -> None:
        manager, job = self._manager, script.job
        for what in ("timeout", "kill-timeout"):
            manager.node.cancel(self._timer(script, what))
        if self._scripts.get(job.id) is script:
            del self._scripts[job.id]
        note = self._judge(script)
        if script.name == "prolog":
            self._prolog_finished(script, note)
            return
        if job.state is JobState.INACTIVE:
            # An epilog that began in RUN holds nothing: its job was over long ago (FLUX.md 75, letter h).
            manager.node.log("job-manager", ERR, f"flux_jobtap_epilog_finish: {error_text(2)}")
            return
        if note:
            manager.raise_exception(job, "epilog", 2, note)
        manager.post(job, "epilog-finish", description=script.description, status=self._status(script))

    def _prolog_finished(self, script: Script, note: str) -> None:
        manager, job = self._manager, script.job
        failed = bool(note) or bool(job.fatal)
        first = manager.node.settings.count_every_epilog
        if first and note:
            manager.raise_exception(job, "prolog", 0, note)
        if failed:
            self._start_epilog(job)
        if note and not first:
            manager.raise_exception(job, "prolog", 0, note)
        manager.post(job, "prolog-finish", description=script.description, status=self._status(script))

    def _status(self, script: Script) -> int:
        """The largest wait status; a lost or a given-up rank counts as said by `lost_status` (FLUX.md 47, 71)."""
        status = max(script.statuses.values(), default=0)
        return max(status, self._manager.node.settings.lost_status) if script.lost else status

    def _judge(self, script: Script) -> str:
        """Drain who failed, and say in one note what happened; nothing where all is well (FLUX.md 68–76)."""
        failing = script.failing()
        name, status = script.name, max(script.statuses.values(), default=0)
        if script.given_up:
            how = "canceled" if script.canceled else ""
            ranks = sorted(script.lost)
            self._drain(script, ranks, f"{name} {how} then timed out" if how else f"{name} timed out")
            return f"{name} canceled then timed out on {self._describe(script, ranks)}"
        if script.canceled:
            return self._judge_lost(script, "")
        if script.timed_out:
            self._drain(script, failing, f"{name} timed out")
            return f"{name} timed out on {self._describe(script, failing)}" if failing else ""
        if not status:
            return self._judge_lost(script, "")
        innocent = not self._manager.node.settings.drain_lost
        ranks = sorted(failing + script.lost) if innocent else failing
        self._drain(script, ranks, f"{name} failed")
        return self._judge_lost(script, f"{name} {_ended(status)} on {self._describe(script, ranks)}")

    def _judge_lost(self, script: Script, note: str) -> str:
        """Nodes that were lost may be told and drained under a reason of their own (letters e, j)."""
        if not script.lost or not self._manager.node.settings.drain_lost:
            return note
        ranks = sorted(script.lost)
        self._drain(script, ranks, f"{script.name} cut off")
        own = f"{script.name} cut off on {self._describe(script, ranks)}"
        return f"{note}; {own}" if note else own

    def _drain(self, script: Script, ranks: list[int], reason: str) -> None:
        if script.settings.per_rank and ranks:
            self._manager.drain(ranks, f"{reason} for job {script.job.id}")

    def _describe(self, script: Script, ranks: list[int]) -> str:
        if not script.settings.per_rank:
            return "unknown (rank (null))"  # as Flux says it (FLUX.md 76)
        return self._manager.node.tree.describe(ranks)

    def unload(self) -> None:
        """The job manager goes."""
        for script in self._scripts.values():
            script.remote.forget()
        self._scripts.clear()


def _at(manager: JobManager, rank: int) -> str:
    return f"{manager.node.tree.host(rank)} (rank {rank})"


def _ended(status: int) -> str:
    """`exited with code=4`, `killed by signal 15`; a code beyond 128 is a death by signal (FLUX.md 70)."""
    signum, code = status & 0x7F, status >> 8
    if not signum and code > 128:
        signum = code - 128
    return f"killed by signal {signum}" if signum else f"exited with code={code}"
