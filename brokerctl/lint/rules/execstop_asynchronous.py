"""An ExecStop line that returns before the stop is done."""

from __future__ import annotations

from collections.abc import Iterator

from brokerctl.lint.rule import Hit, rule
from brokerctl.lint.subject import Subject
from brokerctl.unit.invocations import Invocation

_STOPS = frozenset({"TERM", "INT", "QUIT", "15", "2", "3", ""})
# What may follow in a script without waiting for anything.
_NOTHING = frozenset({"true", ":", "exit", "echo", "logger"})


@rule(
    "warning",
    why="when the last ExecStop line has returned systemd sends SIGTERM at once, whatever was asked for before",
    source="SYSTEMD.md 1, 2, systemd#13284",
    mend="wait in ExecStop= until the main process has gone, or leave it out",
)
def check(unit: Subject) -> Iterator[Hit]:
    runs = [(command, each) for command, each in unit.stops() if each.name not in _NOTHING]
    # Of a broker that is signalled second-sigterm tells.
    if not runs or (unit.broker is not None and signals_main(runs[-1][1])):
        return
    command, last = runs[-1]
    if last.background:
        yield Hit(command, f"{last.name} is left in the background, so ExecStop= is over at once")
    elif last.name == "systemctl" and "--no-block" in last.arguments:
        yield Hit(command, "--no-block: ExecStop= is over before it has begun")
    elif signals_main(last):
        yield Hit(command, "signals the main process and does not wait: a second SIGTERM follows at once")


def signals_main(each: Invocation) -> bool:
    """Whether it is a `kill` that tells the main process to stop."""
    words = each.arguments
    main = any(word in {"$MAINPID", "${MAINPID}"} for word in words)
    # HUP, USR1 and the like ask for something else than a stop.
    signals = [word.lstrip("-").removeprefix("s").removeprefix("SIG") for word in words if "MAINPID" not in word]
    return each.name == "kill" and main and _STOPS.issuperset(signals)
