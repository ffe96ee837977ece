"""What every record is, and what a model asks to be run."""

from __future__ import annotations

import msgspec


class Record(msgspec.Struct, frozen=True, gc=False, tag=True):
    """An immutable value with a name; `tag=True` makes the name its type in JSON."""


class Command(Record, frozen=True):
    """What to run: an argument list, and what logs call it.

    `inherit` leaves the broker's own standard streams to the process (rc2); else they are read and logged.
    `puppet` names a process that is declared by a scenario; a world that has puppets runs that instead.
    """

    text: str
    argv: tuple[str, ...] = ()
    inherit: bool = False
    puppet: str = ""
