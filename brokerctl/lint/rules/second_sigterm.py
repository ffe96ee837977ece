"""An ExecStop line that signals the broker and leaves."""

from __future__ import annotations

from collections.abc import Iterator

from brokerctl.lint.rule import Hit, rule
from brokerctl.lint.subject import Subject
from brokerctl.unit.invocations import invocations


@rule(
    "error",
    why=(
        "systemd's own SIGTERM follows within milliseconds; the second one makes Flux abort its cleanup, or "
        "rc3 and with it the dump"
    ),
    source="SYSTEMD.md 16, FLUX.md 29, 31, 100",
    mend="use ExecStop=brokerctl stop, which waits, or no ExecStop= at all",
)
def check(unit: Subject) -> Iterator[Hit]:
    if unit.broker is None:
        return
    for command, each in unit.stops():
        waits = any(other.name in {"wait", "tail", "waitpid", "pidwait"} for other in invocations(command))
        if each.name in {"kill", "pkill", "killall"} and not waits:
            yield Hit(command, "signals the broker and returns: systemd sends a second SIGTERM")
