"""Rank sets (RFC 22) and host lists (RFC 29) as users write them: bounded here, then read by ClusterShell.

ClusterShell expands ranges eagerly, asks other programs for `@groups`, knows steps and set operators,
sorts, and drops equal names. Flux does none of these, and a typing error such as `0-9999999999` must not
eat the memory: so only what is in the RFCs' grammar, and small enough, is handed on.
"""

from __future__ import annotations

import re

from ClusterShell.RangeSet import RangeSet, RangeSetException

TEXT_MAX = 65_536
_RANGE = re.compile(r"([0-9]+)-([0-9]+)")
_RANGES = r"[0-9]+(?:-[0-9]+)?(?:,[0-9]+(?:-[0-9]+)?)*"
_IDSET = re.compile(rf"{_RANGES}|\[{_RANGES}\]")
_HOST = re.compile(rf"[A-Za-z0-9._-]*(?:\[{_RANGES}\])?[A-Za-z0-9._-]*")
_COMMA = re.compile(r",(?![^\[]*\])")  # one that is not between brackets
_DIGITS_MAX = 9


def _number(digits: str) -> int:
    """The number, or one that is too large for anything where it has more digits than any rank."""
    digits = digits.lstrip("0")
    return int(digits or "0") if len(digits) <= _DIGITS_MAX else 10**_DIGITS_MAX


def rank_set(text: str, size: int) -> list[int]:
    """The ranks of an RFC 22 idset; ValueError where it is none, or not within the instance."""
    text = text.strip()
    if len(text) > TEXT_MAX or not _IDSET.fullmatch(text):
        raise ValueError(f"{text[:40]!r} is no set of ranks; expected such as 0-2,5")
    if any(_number(digits) >= size for digits in re.findall("[0-9]+", text)):
        raise ValueError(f"ranks {text[:40]!r} are out of range; expected less than {size}")
    try:
        return sorted({int(rank) for rank in RangeSet(text.strip("[]"))})
    except (RangeSetException, ValueError):
        raise ValueError(f"{text[:40]!r} is no set of ranks; expected such as 0-2,5") from None


def host_list(text: str, size: int) -> list[str]:
    """The hosts of an RFC 29 hostlist in their order, equal ones kept; ValueError where there are more than `size`."""
    hosts: list[str] = []
    for part in _COMMA.split(text) if len(text) <= TEXT_MAX else [text]:
        host = part.strip()
        if not host or len(host) > TEXT_MAX or not _HOST.fullmatch(host):
            raise ValueError(f"{host[:40]!r} is no host; expected such as picl[0-3]")
        if any(_number(last) - _number(first) >= size for first, last in _RANGE.findall(host)):
            raise ValueError(f"{text[:40]!r} has more than {size} hosts")
        hosts += _expanded(host) if "[" in host else [host]
        if len(hosts) > size:
            raise ValueError(f"{text[:40]!r} has more than {size} hosts")
    return hosts


def _expanded(host: str) -> list[str]:
    # 15 ms of the 300 that a simulation of one broker takes; most of these name no hosts.
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

    try:
        return list(map(str, NodeSet(host, resolver=RESOLVER_NOGROUP)))
    except (NodeSetException, ValueError):
        raise ValueError(f"{host[:40]!r} is no host; expected such as picl[0-3]") from None
