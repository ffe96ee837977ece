"""`[instance]`: who is whose parent, and where each rank runs.

Errors are ScenarioError, `FILE: instance.KEY: what; expected …`. Instances that are bootstrapped from configuration
have flat or custom trees, test instances `kary:K` (FLUX.md 110).
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
    hosts = _hosts(instance, where)
    return Topology(_parents(instance, hosts, where), hosts)


def _parents(instance: Instance, hosts: tuple[str, ...], where: str) -> tuple[int, ...]:
    size, kary = instance.size, _KARY.fullmatch(instance.topology)
    if instance.topology == "custom":
        return _custom(instance.parents, hosts, f"{where}.parents")
    if instance.parents is not None:
        raise ScenarioError(f"{where}.parents: only a custom topology has them; expected topology = 'custom'")
    if kary is not None:
        k = int(kary[1])
        return (-1, *((rank - 1) // k for rank in range(1, size)))
    if instance.topology == "flat":
        return (-1, *[0] * (size - 1))
    raise ScenarioError(f"{where}.topology: {instance.topology!r} is no topology; expected kary:K, flat or custom")


def _custom(given: list[int | str] | None, hosts: tuple[str, ...], where: str) -> tuple[int, ...]:
    size = len(hosts)
    if given is None or len(given) != size:
        raise ScenarioError(f"{where}: {len(given or [])} parents; expected {size}, one for each rank")
    if given[0] not in {-1, ""}:
        raise ScenarioError(f"{where}: {given[0]!r} is the leader's; expected -1")
    ranks: dict[str, int] = {}
    for rank, host in enumerate(hosts):
        ranks.setdefault(host, rank)
    parents = [-1]
    for rank, parent in enumerate(given[1:], 1):
        number = ranks.get(parent, size) if isinstance(parent, str) else parent
        # An order that every tree under rank 0 has, and that the models count on: each rank after its parent.
        if not 0 <= number < rank:
            raise ScenarioError(
                f"{where}: {parent!r} can't be the parent of rank {rank}; expected a rank below {rank}, or its host"
            )
        parents.append(number)
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
