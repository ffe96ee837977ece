"""The journal of one life of a unit, read by journalctl, and the story of a broker's stop in it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from brokerctl.durations import MS
from brokerctl.logs import fluxlog
from brokerctl.logs.fluxlog import ERR
from brokerctl.records import Ended, Log, Moved, Unreachable
from brokerctl.stop.errands import Command, Errand

# A stop of a small instance is 20 lines; one that is flooded with messages (64 lines a node) still ends with these.
LINES_MAX = 2000
FIELDS = "MESSAGE,PRIORITY,SYSLOG_IDENTIFIER"
SYNC_NS, READ_NS = 500 * MS, 1500 * MS
QUOTED_MAX = 5


class Entry(NamedTuple):
    """One entry; `who` is its SYSLOG_IDENTIFIER (`systemd` for what the manager says of the unit)."""

    who: str
    level: int
    text: str


# What was written last may not be there yet, so journald is asked to catch up first, for a moment.
SYNC = Command(["journalctl", "--sync"], SYNC_NS)


def reading(invocation: str) -> Command:
    """Prints the last entries of a life: its processes', and the manager's about it."""
    argv = ["journalctl", "--no-pager", "--quiet", "--output=json", f"--output-fields={FIELDS}", f"--lines={LINES_MAX}"]
    return Command([*argv, f"_SYSTEMD_INVOCATION_ID={invocation}", "+", f"INVOCATION_ID={invocation}"], READ_NS)


def entries(invocation: str) -> Errand[list[Entry]]:
    """Catch up, then read."""
    yield [SYNC]
    said = (yield [reading(invocation)])[0]
    return read(said.text)


def read(text: str) -> list[Entry]:
    """The entries of `journalctl --output=json`; a message that is no text is a list of bytes."""
    found = []
    for line in text.splitlines():
        try:
            fields: dict[str, Any] = msgspec.json.decode(line, type=dict[str, Any])
        except msgspec.MsgspecError:
            continue
        message, level = fields.get("MESSAGE"), str(fields.get("PRIORITY", "6"))
        if isinstance(message, list):
            message = bytes(byte for byte in message if isinstance(byte, int) and 0 <= byte < 256).decode(
                errors="replace"
            )
        if isinstance(message, str):
            who = str(fields.get("SYSLOG_IDENTIFIER", ""))
            found.append(Entry(who, int(level) if level.isdigit() else 6, message))
    return found


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
