"""A broker that restarts at once."""

from __future__ import annotations

from collections.abc import Iterator

from brokerctl.durations import S, as_text
from brokerctl.lint.rule import Hit, rule
from brokerctl.lint.subject import Subject


@rule(
    "warning",
    why=(
        "followers that come back within seconds hammer a leader that is still stopping, and rejoin the dying instance"
    ),
    source="flux-core#6621, flux-core#5881",
    mend="set RestartSec=30s",
)
def check(unit: Subject) -> Iterator[Hit]:
    if unit.broker is None or unit.broker.kind != "flux" or unit.value("Restart") == "no":
        return
    delay_ns = unit.value("RestartSec")
    if delay_ns is not None and delay_ns < 10 * S:
        yield Hit(unit.last("RestartSec") or unit.last("Restart"), f"restarts after {as_text(delay_ns)}")
