"""Flux's own bootstrap configuration as the instance of a scenario (flux-config-bootstrap(5), FLUX.md 110).

    [bootstrap]
    hosts = [ { host = "adm,n[0-5]" }, { host = "n[1-2]", parent = "n0" }, { host = "n[4-5]", parent = "n3" } ]

A host's rank is where it is named first; a later entry that names it again adds its `parent`. Without one it is a child
of the leader. `[tbon] topo = "kary:K"` replaces all parents. Other keys and tables are Flux's business.
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from brokerctl import config
from brokerctl.errors import ConfigError, ScenarioError
from brokerctl.ids import hostlist
from brokerctl.scenario import sets
from brokerctl.scenario.format import SIZE_MAX, Instance

_KARY = re.compile(r"kary:[0-9]+")


class HostEntry(msgspec.Struct, frozen=True):
    """One entry of the `hosts` array: an RFC 29 hostlist, and whose children they are."""

    host: str
    parent: str | None = None


class Bootstrap(msgspec.Struct, frozen=True):
    """The `[bootstrap]` table; without hosts it is an instance of one broker."""

    hosts: list[HostEntry] = []


class Tbon(msgspec.Struct, frozen=True):
    """The `[tbon]` table."""

    topo: str = "custom"


class FluxConfig(msgspec.Struct, frozen=True):
    """What is read of a Flux configuration."""

    bootstrap: Bootstrap
    tbon: Tbon = Tbon()


def instance(given: Instance, scenario: Path) -> Instance:
    """The instance that its `bootstrap` file describes; ScenarioError in one line where there is none in it."""
    assert given.bootstrap is not None
    where = f"{scenario}: instance.bootstrap"
    if given != Instance(bootstrap=given.bootstrap):
        raise ScenarioError(f"{where}: says size, topology, parents and hosts; expected none of them beside it")
    if not given.bootstrap.isprintable():
        raise ScenarioError(f"{where}: {given.bootstrap!r} is no file name; expected one relative to the scenario")
    path = scenario.parent / given.bootstrap
    try:
        read = config.validate(config.read_toml(path), FluxConfig, str(path))
    except ConfigError as error:
        raise ScenarioError(f"{where}: {error}") from None
    ranks = _ranks(read.bootstrap.hosts, f"{where}: {path}: bootstrap.hosts")
    if not ranks:
        return Instance()
    topo = read.tbon.topo
    if _KARY.fullmatch(topo):
        return Instance(size=len(ranks), topology=topo, hosts=hostlist(ranks))
    if topo != "custom":
        raise ScenarioError(f"{where}: {path}: tbon.topo: {topo!r} is no topology; expected custom or kary:K")
    return Instance(size=len(ranks), topology="custom", parents=list(ranks.values()), hosts=hostlist(ranks))


def _ranks(entries: list[HostEntry], where: str) -> dict[str, int | str]:
    """Hosts in the order of their ranks, each with its parent."""
    parents: dict[str, int | str] = {}
    for index, entry in enumerate(entries):
        try:
            hosts = sets.host_list(entry.host, SIZE_MAX)
        except ValueError as error:
            raise ScenarioError(f"{where}[{index}].host: {error}") from None
        for host in hosts:
            if entry.parent is not None:
                parents[host] = entry.parent
            else:
                parents.setdefault(host, 0 if parents else -1)
        if len(parents) > SIZE_MAX:
            raise ScenarioError(f"{where}: more than {SIZE_MAX} hosts")
    return parents
