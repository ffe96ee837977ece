"""broker.sd-notify without broker.sd-stop-timeout."""

from __future__ import annotations

from collections.abc import Iterator

from brokerctl.lint.rule import Hit, rule
from brokerctl.lint.subject import Subject


@rule(
    "error",
    why=(
        "the broker tells systemd its state but never moves the deadline, so all phases together have TimeoutStopSec="
    ),
    source="FLUX.md 97",
    mend="set broker.sd-stop-timeout=90, or more where a single step takes longer",
)
def check(unit: Subject) -> Iterator[Hit]:
    broker = unit.broker
    if broker is None or broker.kind != "flux" or not broker.settings.sd_notify:
        return
    if broker.attribute("broker.sd-stop-timeout") is None and unit.wrapper() is None:
        yield Hit(broker.at("broker.sd-notify"), "without broker.sd-stop-timeout no extension is asked for")
