"""The story of a broker's stop in the journal of its life."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from brokerctl.logs import fluxlog
from brokerctl.logs.fluxlog import ERR
from brokerctl.records import Ended, Log, Moved, Unreachable
from brokerctl.stop.journal import Entry

QUOTED_MAX = 5


class Story(msgspec.Struct):
    """What a broker logged of its stop (FLUX.md A–D)."""

    rank: int = 0
    heard: bool = False  # there was a line of a broker's log at all
    moved: list[Moved] = []
    failed: list[Ended] = []  # actions that did not succeed, in their order
    rc3: list[Ended] = []
    signals: list[int] = []
    requested: bool = False
    unreachable: list[Unreachable] = []
    shed: list[str] = []
    canceled: int = 0
    dump: str = ""  # the file that rc3 began to write
    data_lost: bool = False  # "Data may have been lost", at its start
    shutdown_timeout: bool = False
    errors: list[str] = []  # the last other lines of severity err and worse

    @property
    def state(self) -> str:
        """The last state that was entered; "" where nothing tells it."""
        return self.moved[-1].new if self.moved else ""

    @property
    def stopping(self) -> bool:
        """Whether a stop began at all."""
        return any(move.new in {"cleanup", "shutdown"} for move in self.moved)

    @property
    def ran(self) -> bool:
        """Whether RUN was reached. The beginning of a long life may be missing, so the contrary has to be told."""
        early = self.state in {"load-builtins", "join", "config-sync", "init", "quorum"}
        return self.heard and not early and not self.early

    @property
    def early(self) -> str:
        """The state before RUN in which it was stopped, or failed; "" where that was later."""
        return next((move.old for move in self.moved if move.new == "shutdown" and move.old != "cleanup"), "")

    def event(self, name: str) -> Moved | None:
        """The transition that an event made, if any."""
        return next((move for move in self.moved if move.event == name), None)

    def failures(self, *lists: str) -> list[Ended]:
        """The failed actions of some lists (`cleanup`, `rc3`)."""
        return [one for one in self.failed if one.run.partition(".")[0] in lists]


def story(found: Iterable[Entry], rank: int | None = None) -> Story:
    """Fold the entries of one life; what is no line of a broker's log is left out.

    Only what the broker of that rank says of itself counts: a leader may log for others, too. None: the lowest rank.
    """
    parsed = [one for entry in found if (one := fluxlog.parse(entry.text)) is not None]
    own = min((one.rank for one in parsed), default=0) if rank is None else rank
    told = Story(rank=own, heard=bool(parsed))
    for one in parsed:
        if one.rank == own:
            _fold(told, one.what)
    return told


def _fold(told: Story, what: object) -> None:
    match what:
        case Moved():
            told.moved.append(what)
        case Ended():
            if what.rc:
                told.failed.append(what)
            if what.run.startswith("rc3."):
                told.rc3.append(what)
        case Unreachable():
            told.unreachable.append(what)
        case Log(level=level, text=text):
            _log(told, level, text)
        case _:
            pass


def _log(told: Story, level: int, text: str) -> None:
    head, _, rest = text.partition(": ")
    if text.startswith("signal ") and text[7:].isdigit():
        told.signals.append(int(text[7:]))
    elif rest.startswith("dumping content to "):
        told.dump = rest.removeprefix("dumping content to ")
    elif rest.startswith("flux-cancel: Canceled "):
        number = rest.split()[2]
        told.canceled += int(number) if number.isdigit() else 0
    elif "Data may have been lost" in text:
        told.data_lost = True
    elif text == "shutdown timeout":
        told.shutdown_timeout = True
    elif level <= ERR:
        if " disconnected by request" in text:
            told.shed.append(text.partition(" disconnected by request")[0])
        told.errors = [*told.errors, f"{head}: {rest}" if rest else text][-QUOTED_MAX:]
