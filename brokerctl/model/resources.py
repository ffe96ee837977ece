"""What the nodes have, and whose it is: cores, up or down, drained; first come, first served (FLUX.md 80, 84, 112).

Cores belong to one job, nodes need not. A rank that is down or drained keeps what was allocated there.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nsmallest
from typing import TYPE_CHECKING

from brokerctl.ids import idset
from brokerctl.records import Allocated, Drain, Freed

if TYPE_CHECKING:
    from brokerctl.model.job import Job, JobSpec
    from brokerctl.model.node import Node


class Resources:
    """The cores of all ranks; `drained` has each drained rank's reason."""

    __slots__ = ("_all", "_free", "_node", "_up", "_used", "_whole", "drained", "held")

    def __init__(self, node: Node) -> None:
        self._node = node
        self._all = tuple(range(node.settings.cores))
        self._free: dict[int, set[int]] = {}  # of ranks where some cores are used
        self._used: dict[int, dict[str, tuple[int, ...]]] = {}  # rank → job → cores
        self._up: set[int] = set()
        self._whole: set[int] = set()  # up, not drained, nothing used
        self.drained: dict[int, str] = {}
        self.held: dict[str, set[int]] = {}  # job → ranks where it has cores

    # ---- who may be used

    def up(self, ranks: Iterable[int]) -> None:
        """These ranks are there."""
        self._up.update(ranks)
        self._whole.update(rank for rank in ranks if rank not in self._free and rank not in self.drained)

    def down(self, ranks: Iterable[int]) -> None:
        """These ranks are gone."""
        self._up.difference_update(ranks)
        self._whole.difference_update(ranks)

    def drain(self, ranks: Iterable[int], reason: str) -> None:
        """No job is put there any more; a rank that is drained keeps its first reason (mode `update`, FLUX.md 68)."""
        new = tuple(sorted(rank for rank in ranks if rank not in self.drained))
        if new:
            self.drained.update(dict.fromkeys(new, reason))
            self._whole.difference_update(new)
            self._node.emit(Drain(new, reason))

    # ---- who has them

    def find(self, spec: JobSpec) -> dict[int, tuple[int, ...]] | None:
        """Ranks and cores for a job, the lowest first; None where there are not enough now."""
        whole = self._whole
        if spec.cores is None:
            if spec.ranks:
                return dict.fromkeys(spec.ranks, self._all) if whole.issuperset(spec.ranks) else None
            if len(whole) < spec.nodes:
                return None
            return dict.fromkeys(nsmallest(spec.nodes, whole), self._all)
        found: dict[int, tuple[int, ...]] = {}
        for rank in spec.ranks or sorted(self._up):
            free = self._available(rank)
            if len(free) >= spec.cores:
                found[rank] = tuple(free[: spec.cores])
                if len(found) == spec.width:
                    return found
        return None

    def _available(self, rank: int) -> list[int]:
        if rank not in self._up or rank in self.drained:
            return []
        return sorted(self._free.get(rank, self._all))

    def allocate(self, job: Job, ranks: Iterable[int] | None = None) -> None:
        """The job has what its `alloc` says, or of that what it has on these ranks."""
        alloc = job.alloc if ranks is None else {rank: job.alloc[rank] for rank in ranks}
        for rank, cores in alloc.items():
            self._free.setdefault(rank, set(self._all)).difference_update(cores)
            self._used.setdefault(rank, {})[job.id] = cores
            self._whole.discard(rank)
        self.held[job.id] = set(alloc)
        self._node.emit(Allocated(job.id, tuple(alloc), tuple(alloc.values())))

    def free(self, job: Job, ranks: Iterable[int]) -> None:
        """What the job has on these ranks can be used again."""
        held = self.held.get(job.id, set())
        ranks = [rank for rank in ranks if rank in held]
        for rank in ranks:
            free, used = self._free[rank], self._used[rank]
            free.update(used.pop(job.id))
            if not used:
                del self._free[rank], self._used[rank]
                if rank in self._up and rank not in self.drained:
                    self._whole.add(rank)
        held.difference_update(ranks)
        if not held:
            self.held.pop(job.id, None)
        if ranks:
            self._node.emit(Freed(job.id, tuple(ranks)))

    def summary(self, job: Job) -> str:
        """`rank[0-1]/core[0-1]`, as the scheduler annotates an allocation."""
        by_cores: dict[tuple[int, ...], list[int]] = {}
        for rank, cores in job.alloc.items():
            by_cores.setdefault(cores, []).append(rank)
        return " ".join(f"rank{_set(ranks)}/core{_set(cores)}" for cores, ranks in by_cores.items())

    def states(self) -> dict[str, list[int]]:
        """Ranks by state, as `flux resource list` has them: a rank where anything is allocated is allocated."""
        size = self._node.tree.size
        return {
            "free": [rank for rank in range(size) if rank not in self._free and rank in self._up],
            "allocated": sorted(self._free),
            "down": [rank for rank in range(size) if rank not in self._up and rank not in self._free],
        }


def _set(numbers: Iterable[int]) -> str:
    text = idset(numbers)
    return text if text.isdigit() else f"[{text}]"
