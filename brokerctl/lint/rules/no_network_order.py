"""A broker that may lose its network first."""

from __future__ import annotations

from collections.abc import Iterator

from brokerctl.lint.rule import Hit, rule
from brokerctl.lint.subject import Subject

_NETWORK = frozenset({"network-online.target", "network.target"})


@rule(
    "warning",
    why=(
        "units stop in the reverse of their order: without one, the network can go before the broker has said "
        "goodbye to its peers"
    ),
    source="systemd.special(7), network-online.target",
    mend="add Wants=network-online.target and After=network-online.target",
)
def check(unit: Subject) -> Iterator[Hit]:
    # All ranks of brokerctl's own broker are on this machine.
    flux = unit.broker is not None and unit.broker.kind == "flux"
    if flux and unit.complete and not _NETWORK & set(unit.words("After")):
        yield Hit(None, "no After=network-online.target: the network may be gone before the stop is over")
