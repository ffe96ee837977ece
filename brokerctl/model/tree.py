"""The shape of an instance, computed once and shared by all its nodes: parents, children, heights, hosts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from brokerctl.ids import hostlist, idset

if TYPE_CHECKING:
    from brokerctl.trace import Topology


class Tree:
    """A topology with its children, and each rank's height (levels below it) and depth (levels above it)."""

    __slots__ = ("children", "depths", "heights", "hosts", "parents", "size")

    def __init__(self, topology: Topology) -> None:
        self.parents = topology.parents
        self.hosts = topology.hosts
        self.size = len(topology.parents)
        children: list[list[int]] = [[] for _ in range(self.size)]
        self.depths = [0] * self.size
        self.heights = [0] * self.size
        for rank, parent in enumerate(self.parents):
            if parent >= 0:
                assert parent < rank, "a parent has a lower rank than its children"
                children[parent].append(rank)
                self.depths[rank] = self.depths[parent] + 1
        for rank in range(self.size - 1, 0, -1):
            parent = self.parents[rank]
            self.heights[parent] = max(self.heights[parent], self.heights[rank] + 1)
        self.children = tuple(tuple(ranks) for ranks in children)

    def subtree(self, rank: int) -> list[int]:
        """That rank and all below it, each parent before its children."""
        ranks = [rank]
        for each in ranks:
            ranks += self.children[each]
        return ranks

    def hop(self, rank: int, target: int) -> int:
        """The child of `rank` that leads to a target below it; -1 where it is not below it."""
        if target >= self.size:
            return -1
        while target > rank:
            parent = self.parents[target]
            if parent == rank:
                return target
            target = parent
        return -1

    def hostlist(self, ranks: Iterable[int]) -> str:
        """`picl[1-2]`."""
        return hostlist([self.hosts[rank] for rank in ranks])

    def describe(self, ranks: Sequence[int]) -> str:
        """`picl[1-2] (rank 1-2)`."""
        return f"{self.hostlist(ranks)} (rank {idset(ranks)})"

    def host(self, rank: int) -> str:
        """The host of a rank."""
        return self.hosts[rank]


def kary(size: int, fanout: int) -> tuple[int, ...]:
    """The parents of a complete tree as Flux numbers it: rank r's parent is (r - 1) // fanout."""
    return (-1, *((rank - 1) // fanout for rank in range(1, size)))


def flat(size: int) -> tuple[int, ...]:
    """Every follower is a child of the leader."""
    return (-1,) + (0,) * (size - 1)
