"""Phases that fit only because the broker extends the deadline."""

from __future__ import annotations

from collections.abc import Iterator

from brokerctl.durations import as_text
from brokerctl.lint import chain
from brokerctl.lint.rule import Hit, rule
from brokerctl.lint.subject import Subject


@rule(
    "warning",
    why=(
        "any daemon-reload takes accepted extensions back: what is beyond TimeoutStopSec= then is killed at "
        "once, without a dump"
    ),
    source="SYSTEMD.md 42, systemd#43000",
    mend="let TimeoutStopSec= alone cover the phases",
)
def check(unit: Subject) -> Iterator[Hit]:
    if unit.broker is None or unit.stop_limit_ns is None:
        return
    rows = chain.rows(unit)
    if any(row.verdict == "cut" for row in rows):
        return
    for row in rows:
        beyond = row.over_ns is not None and row.over_ns > unit.stop_limit_ns
        if row.verdict == "fits" and beyond and row.phase in {"cleanup", "shutdown", "finalize"}:
            over = f"{row.phase} may last until {as_text(row.over_ns)} after the stop began"
            yield Hit(unit.last("TimeoutStopSec"), f"{over}, beyond TimeoutStopSec={as_text(unit.stop_limit_ns)}")
            return
