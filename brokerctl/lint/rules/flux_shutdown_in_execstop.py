"""ExecStop=flux shutdown, or brokerctl shutdown."""

from __future__ import annotations

from collections.abc import Iterator

from brokerctl.lint import chain
from brokerctl.lint.rule import Hit, rule
from brokerctl.lint.subject import Subject


@rule(
    "warning",
    why=(
        "a requested stop has no cleanup-timeout: with a stuck job it waits until TimeoutStopSec=, and the "
        "SIGTERM that follows may hit rc3"
    ),
    source="FLUX.md 34, 101, SYSTEMD.md 124",
    mend="leave ExecStop= out, so that a signal begins the stop, or take the drop-in of brokerctl units",
)
def check(unit: Subject) -> Iterator[Hit]:
    for command, each in unit.stops():
        if chain.is_request(each):
            yield Hit(command, "a requested stop has no cleanup-timeout: a stuck job holds it until TimeoutStopSec=")
