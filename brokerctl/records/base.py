"""What every record is, and what a model asks to be run."""

from __future__ import annotations

import msgspec

# Ranks in a trace of those that are no broker. (-1 is nobody, and a file of several ranks.)
UNIT = -2
WRAPPER = -3


class Record(msgspec.Struct, frozen=True, gc=False, tag=True):
    """An immutable value with a name; `tag=True` makes the name its type in JSON."""


class Command(Record, frozen=True):
    """What to run: an argument list, and what logs call it.

    `inherit` leaves the broker's own standard streams to the process (rc2); else they are read and logged.
    `puppet` names a process that is declared by a scenario; a world that has puppets runs that instead.
    What it tells a service manager (sd_notify(3)) is heard, if it `notifies`; `watchdog_ns` is how long it is told that
    it may be silent then (WATCHDOG_USEC).
    """

    text: str
    argv: tuple[str, ...] = ()
    inherit: bool = False
    puppet: str = ""
    notifies: bool = False
    watchdog_ns: int | None = None
