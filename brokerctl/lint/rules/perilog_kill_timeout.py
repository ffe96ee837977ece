"""A script whose end takes longer than Flux waits for it."""

from __future__ import annotations

from collections.abc import Iterator

from brokerctl.durations import as_text
from brokerctl.lint import chain
from brokerctl.lint.rule import Hit, rule
from brokerctl.lint.subject import Subject


@rule(
    "error",
    why=(
        "Flux gives a canceled script its kill-timeout, then drains the node, though the unit is still on its way down"
    ),
    source="FLUX.md 71, 74, flux-core#6420",
    mend="set TimeoutStopSec=20s, or what is below kill-timeout in Flux's configuration (60 s where it says nothing)",
)
def check(unit: Subject) -> Iterator[Hit]:
    row = chain.row(unit, f"end of a canceled {unit.role}")
    if row is not None and row.verdict == "cut":
        ends = "may never end" if row.inner_ns is None else f"may take {as_text(unit.stop_limit_ns)}"
        flux = f"Flux waits {as_text(row.outer_ns)}, then drains the node"
        yield Hit(row.at, f"the end of a canceled {unit.role} {ends}; {flux}")
