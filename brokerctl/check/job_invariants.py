"""What must hold of jobs in every trace of every world, as `check.invariants` has it of brokers."""

from __future__ import annotations

from collections.abc import Iterable

from brokerctl.check.reader import Finding, Wants
from brokerctl.ids import idset
from brokerctl.model.tree import Tree
from brokerctl.records import Allocated, Booted, Drain, Ended, Exit, Freed, JobEvent, Line, Log, Service, Start
from brokerctl.settings import Settings


class _Rule:
    """What all of them have: findings, and the names of jobs.

    Each life of the leader is judged by itself: the next one knows what was stored, and says so.
    """

    NAME = ""

    def __init__(self, settings: Settings, tree: Tree) -> None:
        self._settings = settings
        self._tree = tree
        self._labels: dict[str, str] = {}
        self._findings: list[Finding] = []
        self._begin()

    def _begin(self) -> None:
        """A life of the leader begins: nothing is known of its jobs."""

    def _found(self, line: Line, text: str) -> None:
        self._findings.append(Finding(self.NAME, text, line.t_ns, line.rank))

    def _label(self, job: str) -> str:
        return self._labels.get(job, job)

    def _learn(self, what: JobEvent) -> None:
        self._labels[what.job] = what.label

    def finish(self) -> list[Finding]:
        """What was found."""
        return self._findings


class OneJobACore(_Rule):
    """No core belongs to two jobs."""

    NAME = "one-job-a-core"
    wants: Wants = frozenset({Booted, Allocated, Freed, JobEvent})

    def _begin(self) -> None:
        self._owners: dict[int, dict[int, str]] = {}  # rank → core → job

    def see(self, line: Line) -> None:
        """One more line."""
        what = line.what
        if isinstance(what, JobEvent):
            self._learn(what)
        elif isinstance(what, Allocated):
            for rank, cores in zip(what.ranks, what.cores, strict=True):
                owners = self._owners.setdefault(rank, {})
                for core in cores:
                    owner = owners.setdefault(core, what.job)
                    if owner != what.job:
                        text = f"core {core} of rank {rank} was given to {self._label(what.job)}; it is "
                        self._found(line, f"{text}{self._label(owner)}'s")
                        owners[core] = what.job
        elif isinstance(what, Freed):
            for rank in what.ranks:
                owners = self._owners.get(rank, {})
                for core in [core for core, owner in owners.items() if owner == what.job]:
                    del owners[core]
        elif isinstance(what, Booted) and not line.rank:
            self._begin()


class EpilogsApart(_Rule):
    """Never two epilogs at once on a rank, and one before the node is used again, or it is drained."""

    NAME = "epilogs-apart"
    wants: Wants = frozenset({Booted, Start, Ended, Allocated, Drain, JobEvent})

    def _begin(self) -> None:
        self._running: dict[int, set[str]] = {}  # rank → epilogs
        self._due: dict[int, str] = {}  # rank → the job that ran there and has had no epilog there
        self._drained: set[int] = set()

    def see(self, line: Line) -> None:
        """One more line."""
        what, rank = line.what, line.rank
        if isinstance(what, JobEvent):
            self._learn(what)
        elif isinstance(what, Start) and what.run.startswith("job."):
            self._started(line, what.run, rank)
        elif isinstance(what, Ended) and what.run.endswith(".epilog"):
            self._running.get(rank, set()).discard(what.run)
            if self._due.get(rank) == _job(what.run):
                del self._due[rank]
        elif isinstance(what, Drain):
            self._drained.update(what.ranks)
        elif isinstance(what, Allocated):
            self._used(line, what)
        elif isinstance(what, Booted) and not line.rank:
            self._begin()

    def _started(self, line: Line, run: str, rank: int) -> None:
        epilog = self._settings.epilog
        if run.endswith(".task") and epilog is not None and epilog.per_rank:
            self._due[rank] = _job(run)
        elif run.endswith(".epilog"):
            running = self._running.setdefault(rank, set())
            for other in running:
                jobs = f"{self._label(_job(run))} began on rank {rank} during that of {self._label(_job(other))}"
                self._found(line, f"the epilog of {jobs}")
            running.add(run)

    def _used(self, line: Line, what: Allocated) -> None:
        """In real time the first line of a task may come before that of its allocation, which is another rank's."""
        for rank in what.ranks:
            if self._running.get(rank) and rank not in self._drained:
                other = next(iter(self._running[rank]))
                text = f"rank {rank} was given to {self._label(what.job)} during the epilog of "
                self._found(line, text + self._label(_job(other)))
            elif self._due.get(rank, what.job) != what.job and rank not in self._drained:
                text = f"rank {rank} was given to {self._label(what.job)} without an epilog of "
                self._found(line, text + self._label(self._due[rank]))


def _job(run: str) -> str:
    return run.split(".")[1]


class JobsInOrder(_Rule):
    """`clean` implies `free` of what was allocated, and a job that is INACTIVE stays so."""

    NAME = "jobs-in-order"
    wants: Wants = frozenset({Booted, JobEvent})

    def _begin(self) -> None:
        self._owns: set[str] = set()
        self._over: set[str] = set()

    def see(self, line: Line) -> None:
        """One more line."""
        what = line.what
        if isinstance(what, Booted) and not line.rank:
            self._begin()
        if not isinstance(what, JobEvent):
            return
        if what.job in self._over:
            self._found(line, f"{what.label} had an event {what.name!r} after it was clean")
        match what.name:
            case "alloc":
                self._owns.add(what.job)
            case "free":
                self._owns.discard(what.job)
            case "clean":
                if what.job in self._owns:
                    self._found(line, f"{what.label} was clean before what it had was freed")
                self._over.add(what.job)
            case _:
                pass


class StartsFinish(_Rule):
    """Every start, prolog-start and epilog-start of a job has its finish, or the log says of it that it has not."""

    NAME = "starts-finish"
    wants: Wants = frozenset({Booted, JobEvent, Log, Exit})

    def _begin(self) -> None:
        self._open: dict[tuple[str, str], str] = {}  # job and what began → the event that would end it
        self._told: set[str] = set()

    def see(self, line: Line) -> None:
        """One more line."""
        what = line.what
        if isinstance(what, JobEvent):
            self._learn(what)
            about = what.context.get("description", "its tasks")
            if what.name == "start" or what.name.endswith("-start"):
                self._open[what.job, about] = what.name.replace("start", "finish")
            elif what.name == "finish" or what.name.endswith("-finish"):
                self._open.pop((what.job, about), None)
        elif isinstance(what, Log) and what.component == "job-manager":
            job, _, text = what.text.partition(": ")
            if text.startswith(("left in ", "nothing will finish ")):
                self._told.add(job)
        elif isinstance(what, Exit) and line.rank == 0:
            for (job, about), event in self._open.items():
                if job not in self._told:
                    self._found(line, f"the broker ended without {event} of {about} of {self._label(job)}")
        elif isinstance(what, Booted) and not line.rank:
            self._begin()


class DrainedAreSpared(_Rule):
    """A drained node gets no job."""

    NAME = "drained-are-spared"
    wants: Wants = frozenset({Booted, Allocated, Drain, JobEvent})

    def _begin(self) -> None:
        self._drained: set[int] = set()
        self._running: set[str] = set()

    def see(self, line: Line) -> None:
        """One more line."""
        what = line.what
        if isinstance(what, JobEvent):
            self._learn(what)
            if what.name in {"submit", "flux-restart"}:
                self._running.add(what.job)
        elif isinstance(what, Drain):
            self._drained.update(what.ranks)
        elif isinstance(what, Allocated) and what.job in self._running:  # else it is one of an earlier life
            ranks = self._drained.intersection(what.ranks)
            if ranks:
                self._found(line, f"{self._label(what.job)} was given rank {idset(ranks)}, which is drained")
        elif isinstance(what, Booted) and not line.rank:
            self._begin()


class ReleasesAddUp(_Rule):
    """What a job gives back is what it was given, each node once, and after its `free`."""

    NAME = "releases-add-up"
    wants: Wants = frozenset({Booted, Allocated, Freed, JobEvent, Exit})

    def _begin(self) -> None:
        self._held: dict[str, set[int]] = {}
        self._freed: set[str] = set()
        self._new: set[str] = set()  # of this life: of others, nobody knows here whether they were freed

    def see(self, line: Line) -> None:
        """One more line."""
        what = line.what
        if isinstance(what, JobEvent):
            self._learn(what)
            if what.name == "submit":
                self._new.add(what.job)
            elif what.name == "free":
                self._freed.add(what.job)
        elif isinstance(what, Allocated):
            self._held[what.job] = set(what.ranks)
        elif isinstance(what, Freed):
            self._give_back(line, what.job, what.ranks)
        elif isinstance(what, Booted) and not line.rank:
            self._begin()

    def _give_back(self, line: Line, job: str, ranks: Iterable[int]) -> None:
        held = self._held.get(job, set())
        strange = sorted(set(ranks) - held)
        if strange:
            self._found(line, f"{self._label(job)} gave back rank {idset(strange)}, which it had not")
        if job in self._new and job not in self._freed:
            self._found(line, f"{self._label(job)} gave back rank {idset(ranks)} before its free")
        held.difference_update(ranks)


class QuietServices(_Rule):
    """A service that is declared quiet is not active on a node between start and finish of a job that runs there."""

    NAME = "quiet-services"
    wants: Wants = frozenset({Booted, Allocated, JobEvent, Service})

    def _begin(self) -> None:
        everywhere, services = range(self._tree.size), self._settings.services
        self._active = {one.name: set(everywhere if one.active else ()) for one in services if one.quiet}
        self._ranks: dict[str, set[int]] = {}
        self._running: dict[str, set[int]] = {}

    def see(self, line: Line) -> None:
        """One more line."""
        what = line.what
        if isinstance(what, Allocated):
            self._ranks[what.job] = set(what.ranks)
        elif isinstance(what, JobEvent):
            self._learn(what)
            if what.name == "start":
                self._running[what.job] = self._ranks.get(what.job, set())
                for name, active in self._active.items():
                    self._disturbed(line, name, active & self._running[what.job], what.job)
            elif what.name in {"finish", "clean"}:
                self._running.pop(what.job, None)
        elif isinstance(what, Booted) and not line.rank:
            self._begin()
        elif isinstance(what, Service) and what.name in self._active:
            if not what.active:
                self._active[what.name].difference_update(what.ranks)
                return
            self._active[what.name].update(what.ranks)
            for job, ranks in self._running.items():
                self._disturbed(line, what.name, ranks.intersection(what.ranks), job)

    def _disturbed(self, line: Line, name: str, ranks: set[int], job: str) -> None:
        if ranks:
            where = self._tree.describe(sorted(ranks))
            self._found(line, f"{name} was active on {where} while {self._label(job)} ran")
