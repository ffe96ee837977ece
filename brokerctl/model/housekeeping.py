"""Housekeeping: what runs on a job's nodes when the job is over, and when they are given back (FLUX.md 79–83)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from brokerctl.model.remote import Remote
from brokerctl.model.rexec import UNREACHABLE, Answer
from brokerctl.model.run import ERR, INFO
from brokerctl.model.words import signal_text
from brokerctl.records import Unreachable
from brokerctl.settings import Rung

if TYPE_CHECKING:
    from brokerctl.model.job import Job
    from brokerctl.model.jobs import JobManager

SIGTERM = 15
LAUNCH_ERROR = "error launching process: "


class Allocation:
    """The nodes of one job that is over: those that are not done, and those that are not given back."""

    __slots__ = ("active", "begun", "cut_off", "done", "failures", "held", "job", "modes", "remote", "since_ns")

    remote: Remote

    def __init__(self, job: Job, ranks: tuple[int, ...], now_ns: int) -> None:
        self.job = job
        self.held = set(ranks)
        self.active = set(ranks)
        self.done: set[int] = set()  # done, and not given back yet
        self.failures: set[int] = set()
        self.modes: set[str] = set()
        self.cut_off: set[int] = set()
        self.since_ns = now_ns
        self.begun = False  # one node is done: the time of release-after runs, or is over


class Housekeeping:
    """All allocations in housekeeping, by job."""

    __slots__ = ("_manager", "allocations")

    def __init__(self, manager: JobManager) -> None:
        self._manager = manager
        self.allocations: dict[str, Allocation] = {}

    def start(self, job: Job, ranks: tuple[int, ...] | None = None) -> None:
        """The job is over: its nodes are cleaned, then given back; at once where there is nothing to run."""
        manager = self._manager
        settings = manager.node.settings.housekeeping
        if settings is None or not job.begins("housekeeping"):
            manager.resources.free(job, job.ranks if ranks is None else ranks)
            return
        one = Allocation(job, job.ranks if ranks is None else ranks, manager.node.now_ns)
        self.allocations[job.id] = one
        one.remote = Remote(
            manager.node,
            f"job.{job.id}.housekeeping",
            settings.command,
            sorted(one.held),
            rungs=(Rung(SIGTERM, None),),
            progress=lambda answer, ranks: self._answered(one, answer, ranks),
            done=lambda: self._done(one),
            said=lambda rank, stream, text: self._said(one, rank, stream, text),
        )
        one.remote.begin()

    def kill(self, job: str) -> bool:
        """`flux housekeeping kill`: end what runs for that job (FLUX.md 83)."""
        one = self.allocations.get(job)
        if one is not None:
            one.remote.abort()
        return one is not None

    def unload(self) -> None:
        """The job manager goes; what runs is cut off, and nobody is told (FLUX.md 64, letter i)."""
        for one in self.allocations.values():
            one.remote.forget()

    def table(self) -> list[dict[str, Any]]:
        """What `flux housekeeping list` shows (FLUX.md 81)."""
        node = self._manager.node
        return [
            {
                "job": one.job.id,
                "nodes": len(one.held),
                "active": len(one.active),
                "runtime_ns": node.now_ns - one.since_ns,
                "ranks": sorted(one.held),
            }
            for one in self.allocations.values()
        ]

    # ---- answers

    def _answered(self, one: Allocation, answer: Answer, ranks: tuple[int, ...]) -> None:
        node, job = self._manager.node, one.job
        status, _rc, how = answer
        if how == UNREACHABLE:
            one.cut_off.update(ranks)
            for rank in ranks:
                node.emit(Unreachable(rank, f"housekeeping: {job.id}"))
        elif how.startswith(LAUNCH_ERROR):
            one.cut_off.update(ranks)
            for rank in ranks:
                node.log("job-manager", ERR, f"housekeeping: {node.tree.host(rank)} (rank {rank}) {job.id}: {how}")
        elif status:
            one.failures.update(ranks)
            one.modes.add(signal_text(status & 0x7F) if status & 0x7F else "nonzero exit code")
        else:
            self._manager.services.script_ran("housekeeping", ranks, job)
        self._take(one, ranks)

    def _take(self, one: Allocation, ranks: tuple[int, ...]) -> None:
        """These are done: given back now, with the others, or when the time since the first one is over."""
        node = self._manager.node
        settings = node.settings.housekeeping
        assert settings is not None
        first, one.begun = not one.begun, True
        one.active.difference_update(ranks)
        one.done.update(ranks)
        after_ns, timer = settings.release_after_ns, f"release-after {one.job.id}"
        if after_ns is None or not one.active:
            return  # the last ones are given back by `_done`
        if after_ns and first:
            node.arm(timer, after_ns, lambda: self._release(one))
        elif not node.is_armed(timer):
            self._release(one)

    def _release(self, one: Allocation) -> None:
        manager, ranks = self._manager, sorted(one.done)
        one.held.difference_update(ranks)
        one.done.clear()
        failed = [rank for rank in ranks if rank in one.failures]
        cut_off = [rank for rank in ranks if rank in one.cut_off]
        if manager.node.settings.housekeeping_drains:  # before anybody could get them (letter i)
            manager.drain(failed, f"housekeeping failed for job {one.job.id}")
            manager.drain(cut_off, f"housekeeping cut off for job {one.job.id}")
        manager.resources.free(one.job, ranks)
        manager.schedule()

    def _done(self, one: Allocation) -> None:
        node = self._manager.node
        node.cancel(f"release-after {one.job.id}")
        self.allocations.pop(one.job.id, None)
        if one.failures:
            mode = one.modes.pop() if len(one.modes) == 1 else "multiple failure modes"
            where = node.tree.describe(sorted(one.failures))
            node.log("job-manager", ERR, f"housekeeping: {where} {one.job.id}: {mode}")
        self._release(one)

    def _said(self, one: Allocation, rank: int, stream: Literal["out", "err"], text: str) -> None:
        node, level = self._manager.node, INFO if stream == "out" else ERR
        node.log("job-manager", level, f"housekeeping: {node.tree.host(rank)} (rank {rank}) {one.job.id}: {text}")
