"""An ExecStop line that stops its own unit."""

from __future__ import annotations

from collections.abc import Iterator

from brokerctl.lint.rule import Hit, rule
from brokerctl.lint.subject import Subject


@rule(
    "error",
    why="the stop waits for itself: a deadlock until TimeoutStopSec=, and the unit ends as failed",
    source="SYSTEMD.md 70, P9",
    mend="leave it out: the unit is being stopped already",
)
def check(unit: Subject) -> Iterator[Hit]:
    own = {"%n", "%N", "%p", unit.name, unit.name.removesuffix(".service")}
    for command, each in unit.stops():
        verb, *names = each.systemctl()
        if verb in {"stop", "restart"} and own & set(names):
            yield Hit(command, f"systemctl {verb} of its own unit")
