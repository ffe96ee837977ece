"""`[[fault]]`: which ranks something breaks on, drawn from the seed where the scenario gives a part of them.

Errors are ScenarioError, `FILE: fault[N].KEY: what; expected …`.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from random import Random

import msgspec

from brokerctl.errors import ScenarioError
from brokerctl.model.tree import Tree
from brokerctl.scenario import moments, puppets, sets
from brokerctl.scenario.format import FaultEntry
from brokerctl.trace import Topology
from brokerctl.worlds.contract import Fault, Step

_PART = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,6})?)% *(of leaves|of ranks)?")
# These are about a rank's link to its parent; the leader has none.
_ABOUT_LINKS = frozenset({"cut", "heal", "half-open", "slow"})


def steps(
    entry: FaultEntry, index: int, topology: Topology, seed: int, where: str, jobs: Collection[str] = ()
) -> list[Step]:
    """The fault as a world wants it: one step, or one for each rank; `where` is `FILE: fault[INDEX]`."""
    moment = moments.of_step(entry.at, len(topology.parents), f"{where}.at", jobs)
    if (entry.do == "slow") != (entry.delay is not None):
        raise ScenarioError(f"{where}.delay: belongs to slow, and to nothing else; expected such as 200ms")
    delay_ns = 0 if entry.delay is None else puppets.finite(entry.delay, f"{where}.delay")
    try:
        ranks = _ranks(entry.ranks, index, topology, seed)
    except ValueError as error:
        raise ScenarioError(f"{where}.ranks: {error}") from None
    if 0 in ranks and entry.do in _ABOUT_LINKS:
        raise ScenarioError(f"{where}.ranks: the leader has no link to a parent; expected other ranks for {entry.do}")
    spread_ns = puppets.finite(entry.spread, f"{where}.spread")
    if not spread_ns:
        return [Step(moment.trigger(), Fault(entry.do, tuple(ranks), delay_ns), entry.at)]
    random = Random(f"{seed}/spread/{index}")
    found = []
    for rank in ranks:
        own = msgspec.structs.replace(moment, offset_ns=moment.offset_ns + random.randint(0, spread_ns))
        found.append(Step(own.trigger(), Fault(entry.do, (rank,), delay_ns), entry.at))
    return found


def _ranks(text: str, index: int, topology: Topology, seed: int) -> list[int]:
    size = len(topology.parents)
    part = _PART.fullmatch(text.strip())
    if part is None:
        return sets.rank_set(text, size)
    percent = float(part[1])
    if not 0 < percent <= 100:
        raise ValueError(f"{text!r} is no part of the ranks; expected more than 0% and at most 100%")
    children = Tree(topology).children
    ranks = [rank for rank in range(1, size) if part[2] != "of leaves" or not children[rank]]
    if not ranks:
        raise ValueError(f"{text!r} of an instance of one rank; expected followers")
    # At least one: a fault that hits nobody tests nothing.
    count = max(1, int(len(ranks) * percent / 100))
    return sorted(Random(f"{seed}/fault/{index}").sample(ranks, count))
