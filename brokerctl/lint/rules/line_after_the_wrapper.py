"""An ExecStop line after one that waits for the stop."""

from __future__ import annotations

from collections.abc import Iterator

from brokerctl.lint.rule import Hit, rule
from brokerctl.lint.subject import Subject


@rule(
    "warning",
    why=(
        "each ExecStop line has a TimeoutStopSec= of its own, and a line that was cut off lets the next one "
        "start while the broker is being killed"
    ),
    source="SYSTEMD.md 9, 32, P4",
    mend="put it before the wrapper, into stop.toml, or into ExecStopPost=",
)
def check(unit: Subject) -> Iterator[Hit]:
    wrapper = unit.wrapper()
    lines = unit.commands("ExecStop")
    if wrapper is not None and lines[-1] is not wrapper:
        yield Hit(lines[-1], "runs after the wrapper, with a whole TimeoutStopSec= of its own")
