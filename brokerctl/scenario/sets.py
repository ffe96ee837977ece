"""Rank sets (RFC 22) and host lists (RFC 29) as users write them: bounded here, then read by ClusterShell.

ClusterShell expands ranges eagerly, asks other programs for `@groups`, sorts, and drops equal names; Flux
does none of these, and a typing error such as `0-9999999999` must not eat the memory.
"""

from __future__ import annotations

import itertools
import re

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException
from ClusterShell.RangeSet import RangeSet, RangeSetException

TEXT_MAX = 65_536
_RANGE = re.compile(r"([0-9]+)-([0-9]+)")


def rank_set(text: str, size: int) -> list[int]:
    """The ranks of an RFC 22 idset; ValueError where it is none, or not within the instance."""
    if len(text) > TEXT_MAX or any(int(last) >= size for _, last in _RANGE.findall(text)):
        raise ValueError(f"ranks {text[:40]!r} are out of range; expected less than {size}")
    try:
        ranks = sorted(int(rank) for rank in RangeSet(text.strip().removeprefix("[").removesuffix("]")))
    except (RangeSetException, ValueError):
        raise ValueError(f"{text!r} is no set of ranks; expected such as 0-2,5") from None
    if not ranks:
        raise ValueError("the set of ranks is empty; expected such as 0-2,5")
    if not 0 <= ranks[0] <= ranks[-1] < size:
        raise ValueError(f"rank {ranks[-1]} is out of range; expected less than {size}")
    return ranks


def host_list(text: str, size: int) -> list[str]:
    """The hosts of an RFC 29 hostlist in their order, equal ones kept; at most one more than `size`."""
    if len(text) > TEXT_MAX or not text.isprintable() or any(sign in text for sign in "@!&^*?%{}"):
        raise ValueError(f"{text[:40]!r} is no host list; expected such as picl[0-3],login")
    if any(int(last) - int(first) > size for first, last in _RANGE.findall(text)):
        raise ValueError(f"{text[:40]!r} has more than {size} hosts")
    hosts: list[str] = []
    for part in re.split(r",(?![^\[]*\])", text):
        if part.count("[") > 1 or not part.strip():
            raise ValueError(f"{part!r} is no host; expected such as picl[0-3]")
        try:
            hosts += itertools.islice(map(str, NodeSet(part.strip(), resolver=RESOLVER_NOGROUP)), size + 1)
        except (NodeSetException, ValueError):
            raise ValueError(f"{part!r} is no host; expected such as picl[0-3]") from None
        if len(hosts) > size:
            break
    return hosts
