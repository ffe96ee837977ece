"""Housekeeping without a stop limit of its own."""

from __future__ import annotations

from collections.abc import Iterator

from brokerctl.lint.rule import Hit, rule
from brokerctl.lint.subject import Subject


@rule(
    "warning",
    why="each step of a stop takes the default 90 s: a hung housekeeping has held its node for 23 minutes",
    source="SYSTEMD.md 29, H6, flux-core#6176",
    mend="set TimeoutStopSec=20s, or what its end really needs",
)
def check(unit: Subject) -> Iterator[Hit]:
    if unit.role == "housekeeping" and unit.last("TimeoutStopSec") is None and unit.last("TimeoutSec") is None:
        yield Hit(None, "no TimeoutStopSec=: each step of its stop may take 90s")
