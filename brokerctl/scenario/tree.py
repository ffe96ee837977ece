"""`[instance]`: who is whose parent, and where each rank runs.

Errors are ScenarioError, `FILE: instance.KEY: what; expected …`. Instances that are bootstrapped from
configuration have flat or custom trees, test instances `kary:K` (FLUX.md 110).
"""

from __future__ import annotations

import re

from brokerctl.errors import ScenarioError
from brokerctl.scenario import sets
from brokerctl.scenario.format import Instance
from brokerctl.trace import Topology

HOST_DEFAULT = "vm"
_KARY = re.compile(r"kary:([1-9][0-9]{0,5})")


def topology(instance: Instance, where: str) -> Topology:
    """Parents and hosts of all ranks; `where` is `FILE: instance`."""
    return Topology(_parents(instance, where), _hosts(instance, where))


def _parents(instance: Instance, where: str) -> tuple[int, ...]:
    size, kary = instance.size, _KARY.fullmatch(instance.topology)
    if instance.topology == "custom":
        return _custom(instance.parents, size, f"{where}.parents")
    if instance.parents is not None:
        raise ScenarioError(f"{where}.parents: only a custom topology has them; expected topology = 'custom'")
    if kary is not None:
        k = int(kary[1])
        return (-1, *((rank - 1) // k for rank in range(1, size)))
    if instance.topology == "flat":
        return (-1, *[0] * (size - 1))
    raise ScenarioError(f"{where}.topology: {instance.topology!r} is no topology; expected kary:K, flat or custom")


def _custom(parents: list[int] | None, size: int, where: str) -> tuple[int, ...]:
    if parents is None or len(parents) != size:
        raise ScenarioError(f"{where}: {len(parents or [])} parents; expected {size}, one for each rank")
    if parents[0] != -1:
        raise ScenarioError(f"{where}: {parents[0]} is the leader's; expected -1")
    rooted = {0}  # ranks from which the leader is reached: each is walked over once
    for rank in range(1, size):
        way: list[int] = []
        at = rank
        while at not in rooted:
            if not 0 <= parents[at] < size or len(way) == size:
                raise ScenarioError(
                    f"{where}: {parents[at]} can't be the parent of rank {at}; expected a tree under rank 0"
                )
            way.append(at)
            at = parents[at]
        rooted.update(way)
    return tuple(parents)


def _hosts(instance: Instance, where: str) -> tuple[str, ...]:
    size, text = instance.size, instance.hosts
    if text is None:
        return (HOST_DEFAULT,) * size
    try:
        hosts = sets.host_list(text, size)
    except ValueError as error:
        raise ScenarioError(f"{where}.hosts: {error}") from None
    if len(hosts) != size:
        raise ScenarioError(f"{where}.hosts: {text[:40]!r} has {len(hosts)} hosts; expected {size}")
    return tuple(hosts)
