"""A KillSignal that does not stop the broker."""

from __future__ import annotations

import signal
from collections.abc import Iterator

from brokerctl.lint.rule import Hit, rule
from brokerctl.lint.subject import Subject

_STOPPING = frozenset({signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGALRM})


@rule(
    "error",
    why=(
        "a broker stops for HUP, INT, QUIT, TERM and ALRM; another signal goes to its jobs or is ignored, and "
        "SIGKILL follows"
    ),
    source="FLUX.md 33",
    mend="remove KillSignal=",
)
def check(unit: Subject) -> Iterator[Hit]:
    broker = unit.broker
    if broker is not None and unit.value("KillSignal") not in _STOPPING:
        yield Hit(unit.last("KillSignal"), "is no signal that stops a broker: SIGKILL after TimeoutStopSec=, no dump")
