"""An ExecStop line that signals the broker and leaves."""

from __future__ import annotations

from collections.abc import Iterator

from brokerctl.lint.rule import Hit, rule
from brokerctl.lint.rules.execstop_asynchronous import signals_main
from brokerctl.lint.subject import Subject
from brokerctl.unit.execline import ExecCommand
from brokerctl.unit.invocations import Invocation

# What waits for a process, or is asked in a loop whether it is still there.
_WAITERS = frozenset({"wait", "tail", "waitpid", "pidwait", "pgrep", "pidof", "ps"})


@rule(
    "error",
    why=(
        "systemd's own SIGTERM follows within milliseconds; the second one makes Flux abort its cleanup, or "
        "rc3 and with it the dump"
    ),
    source="SYSTEMD.md 16, FLUX.md 29, 31, 100",
    mend="leave ExecStop= out, or take the drop-in of brokerctl units, whose ExecStop= waits",
)
def check(unit: Subject) -> Iterator[Hit]:
    if unit.broker is None:
        return
    runs = list(unit.stops())
    for index, (command, each) in enumerate(runs):
        if _signals(command, each) and not any(_waits(other) for _, other in runs[index + 1 :]):
            yield Hit(command, "signals the broker and returns: systemd sends a second SIGTERM")


def _signals(command: ExecCommand, each: Invocation) -> bool:
    by_name = each.name in {"kill", "pkill", "killall"} and "flux" in command.source
    return signals_main(each) or by_name


def _waits(each: Invocation) -> bool:
    """Also what a loop looks at: `kill -0 PID`, `[ -d /proc/PID ]`."""
    looks = each.name == "kill" and "-0" in each.arguments
    looks = looks or (each.name in {"[", "[[", "test"} and any("/proc/" in word for word in each.arguments))
    return looks or each.name in _WAITERS or each.brokerctl() is not None
