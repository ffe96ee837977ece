"""SendSIGKILL=no."""

from __future__ import annotations

from collections.abc import Iterator

from brokerctl.lint.rule import Hit, rule
from brokerctl.lint.subject import Subject


@rule(
    "warning",
    why="what ignores SIGTERM survives: the stop takes twice TimeoutStopSec=, fails, and leaves it running",
    source="SYSTEMD.md 77",
    mend="remove SendSIGKILL=no",
)
def check(unit: Subject) -> Iterator[Hit]:
    if not unit.value("SendSIGKILL"):
        yield Hit(unit.last("SendSIGKILL"), "SendSIGKILL=no: nothing ends what ignores SIGTERM")
