"""Traces: a header, then one JSON line for each input and output of a model; made by worlds, read by everybody.

A file begins with a `Header`, which is enough to build the model again and to place its times. Files of several ranks
merge by time, ties by (rank, n).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import msgspec

from brokerctl.errors import TraceError
from brokerctl.records import (
    Allocated,
    Answer,
    AnyEffect,
    AnyEvent,
    Arm,
    Asked,
    Cancel,
    CloseOutput,
    Command,
    Contacted,
    Effect,
    Emptied,
    Ended,
    Event,
    EventThere,
    EventWanted,
    Exec,
    Exited,
    Fired,
    Freed,
    Grown,
    Hangup,
    Heard,
    JobEvent,
    Kill,
    KillFailed,
    Late,
    Line,
    Log,
    Lost,
    Moved,
    Notify,
    Online,
    Output,
    OutputEnded,
    Received,
    Record,
    Responsive,
    Restored,
    Results,
    Send,
    Served,
    Start,
    StateIs,
    Store,
    Torpid,
    UnitMoved,
    UnitSettings,
    Waiting,
    Watch,
)
from brokerctl.settings import Settings, StopSettings

VERSION = 1
LINE_SIZE_MAX = 1 << 24  # results of an action on 262,144 ranks are 2 MiB


class Topology(msgspec.Struct, frozen=True, gc=False):
    """Who is whose parent: `parents[rank]`, -1 for the leader, and each rank's host."""

    parents: tuple[int, ...] = (-1,)
    hosts: tuple[str, ...] = ("localhost",)


class Header(msgspec.Struct, frozen=True, tag="brokerctl-trace", tag_field="format"):
    """The first line of a trace file.

    `rank` is -1 where the file holds several ranks. `realtime_offset_ns` added to a time of the trace gives
    CLOCK_REALTIME; 0 in virtual time, where `boot_id` is `virtual`. `unit` is what the unit's lines are of, if any.
    """

    version: int
    rank: int
    host: str
    boot_id: str
    realtime_offset_ns: int
    settings: Settings
    topology: Topology
    settings_hash: str
    unit: UnitSettings | None = None
    stop: StopSettings | None = None  # of a wrapper


def header(
    settings: Settings,
    topology: Topology,
    *,
    rank: int = -1,
    host: str = "",
    boot_id: str = "virtual",
    realtime_offset_ns: int = 0,
    unit: UnitSettings | None = None,
    stop: StopSettings | None = None,
) -> Header:
    """The header of a trace that begins now."""
    import hashlib  # 4 MB of a broker's memory, which one without a trace need not have

    digest = hashlib.sha256(msgspec.json.encode(settings)).hexdigest()[:16]
    return Header(VERSION, rank, host, boot_id, realtime_offset_ns, settings, topology, digest, unit, stop)


class Writer:
    """Writes a trace to an open binary file, line by line; the file stays the caller's."""

    def __init__(self, file: IO[bytes], head: Header) -> None:
        self._file = file
        self._encode = msgspec.json.Encoder().encode
        file.write(self._encode(head) + b"\n")

    def __call__(self, line: Line) -> None:
        """Write one line."""
        self._file.write(self._encode(line) + b"\n")

    def flush(self) -> None:
        """Hand what was written to the operating system."""
        self._file.flush()


_decode_head = msgspec.json.Decoder(Header).decode
_decode_line = msgspec.json.Decoder(Line).decode


def decode_header(data: bytes, where: str) -> Header:
    """The header from the first line of a file; TraceError where it is none, or of another version."""
    try:
        head = _decode_head(data)
    except msgspec.MsgspecError as error:
        raise TraceError(f"{where}:1: no trace header: {error}") from None
    except UnicodeDecodeError:
        raise TraceError(f"{where}:1: no trace header: not UTF-8") from None
    if head.version != VERSION:
        raise TraceError(f"{where}:1: trace version {head.version}; expected {VERSION}")
    return head


def decode_line(data: bytes, where: str, number: int) -> Line:
    """One line of a trace; TraceError names file and line number otherwise."""
    try:
        return _decode_line(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise TraceError(f"{where}:{number}: no trace line: {error}") from None


def read(path: Path, *, torn: bool = False) -> tuple[Header, Iterator[Line]]:
    """The header and, lazily, the lines of a trace file.

    If it may be `torn`, because its writer was killed, a last line without an end is left out.
    """
    try:
        file = path.open("rb")
    except OSError as error:
        raise TraceError(f"{path}: cannot read: {error.strerror}") from None
    with_head = _lines(file, str(path), torn=torn)
    try:
        head = decode_header(next(with_head, (1, b""))[1], str(path))
    except TraceError:
        with_head.close()
        raise
    return head, (decode_line(data, str(path), number) for number, data in with_head)


def _lines(file: IO[bytes], where: str, *, torn: bool) -> Generator[tuple[int, bytes], None, None]:
    with file:
        number = 0
        while data := file.readline(LINE_SIZE_MAX + 1):
            number += 1
            if len(data) > LINE_SIZE_MAX:
                raise TraceError(f"{where}:{number}: longer than {LINE_SIZE_MAX >> 20} MiB")
            if torn and not data.endswith(b"\n"):
                return
            yield number, data


# ---- several ranks


def merge(traces: Sequence[tuple[Header, Iterator[Line]]]) -> tuple[Header, Iterator[Line]]:
    """One trace of the traces of several ranks of an instance: by time, ties by (rank, n).

    TraceError where they are not of one instance, or not of one boot of one machine: then times can't be compared.
    """
    heads = [head for head, _ in traces]
    if not heads:
        raise TraceError("no trace to merge")
    first = heads[0]
    for head in heads:
        if (head.settings_hash, head.topology, head.boot_id) != (first.settings_hash, first.topology, first.boot_id):
            raise TraceError(f"the traces of ranks {first.rank} and {head.rank} are not of one instance and boot")
    import heapq

    merged = heapq.merge(*(lines for _, lines in traces), key=lambda line: (line.t_ns, line.rank, line.n))
    return msgspec.structs.replace(first, rank=-1, host=first.topology.hosts[0]), merged


# ---- equality


def component(what: AnyEvent | AnyEffect | Event | Effect) -> str:
    """What a line is about: lines of one component have an order, two components race."""
    name = _COMPONENTS.get(type(what))
    if name is not None:
        return name(what)
    if isinstance(what, Log) and what.component == "job-manager":
        return f"job-manager {what.text}"  # what ranks answer comes in any order
    return "input" if isinstance(what, Event) else "model"


def _process(what: Exited | Emptied | Heard | Late | Grown) -> str:
    return f"process {what.run}"


def _output(what: Output | OutputEnded) -> str:
    return f"output {what.run}"


def _link(what: Received | Lost | Contacted | Torpid | Responsive) -> str:
    return f"link {what.peer}"


def _neighbour(what: Send | Hangup) -> str:
    return f"to {what.neighbour}"


def _job(what: JobEvent | Allocated | Freed) -> str:
    # The release of tasks races with what comes after their finish (FLUX.md 51).
    released = isinstance(what, JobEvent) and what.name == "release"
    return f"release {what.job}" if released else f"job {what.job}"


def _wait(what: Waiting | Served) -> str:
    return f"wait of {what.who}"


_COMPONENTS: dict[type, Callable[[Any], str]] = {
    Exited: _process,
    Emptied: _process,
    Heard: _process,
    Late: _process,
    Grown: _process,
    Output: _output,
    OutputEnded: _output,
    Fired: lambda what: f"timer {what.timer}",
    Received: _link,
    Lost: _link,
    Contacted: _link,
    Torpid: _link,
    Responsive: _link,
    Send: _neighbour,
    Hangup: _neighbour,
    JobEvent: _job,
    Allocated: _job,
    Freed: _job,
    Waiting: _wait,
    Served: _wait,
}


# What no two worlds share in a text: durations, and who held a pipe.
_MEANS = re.compile(
    r"\b\d+(?:\.\d+)?(?:ns|us|ms|s|m|h)(?:\d+[sm])?\b|(?<=still held by ).*|(?<=EXTEND_TIMEOUT_USEC=)\d+"
)
_DEBUG = 7


def _plain(text: str) -> str:
    return _MEANS.sub("_", text)


def _nothing(_: object) -> None:
    return None


def _log(what: Log) -> Record | None:
    # Which ranks come online together is a matter of milliseconds.
    if what.level >= _DEBUG or what.text.startswith("online: "):
        return None
    return Log(what.component, what.level, _plain(what.text))


# What goes up the tree in batches, and its timers: who shares a batch depends on who was done when.
_BATCHES = Online | Results
# A child goes by no other state of its parent; whether it learns of an earlier one depends on when it came.
_STATES_GONE_BY = frozenset({"quorum", "run", "cleanup", "shutdown", "finalize", "goodbye"})


def _fired(what: Fired) -> Record | None:
    return None if what.timer == "online" or what.timer.startswith("rexec ") else what


def _message(what: Send | Received) -> Record | None:
    message = what.message
    if isinstance(message, _BATCHES) or (isinstance(message, StateIs) and message.state not in _STATES_GONE_BY):
        return None
    if isinstance(message, EventWanted | EventThere):
        return msgspec.structs.replace(what, message=msgspec.structs.replace(message, reply=0))
    if isinstance(message, Exec):
        return msgspec.structs.replace(what, message=Exec(message.run, Command(message.command.text), message.targets))
    return what


def _asked(what: Asked) -> Record:
    text = what.text or " ".join(what.words)
    if what.what == "submit":
        # The words of a task are a world's own: in one they are a real command, in another there are none.
        try:
            spec = msgspec.json.decode(text)
            text = msgspec.json.encode({**spec, "task": spec["task"]["text"]}).decode()
        except (msgspec.MsgspecError, KeyError, TypeError):
            pass  # no job: it was refused
    return Asked(what.what, text=text)


_TOLD: dict[type[Record], Callable[[Any], Record | None]] = {
    # Timers, attempts to signal, and who holds a pipe depend on races and on the world.
    Arm: _nothing,
    Cancel: _nothing,
    Kill: _nothing,
    KillFailed: _nothing,
    CloseOutput: _nothing,
    Start: lambda what: Start(what.run, Command(what.command.text)),
    OutputEnded: lambda what: OutputEnded(what.run),
    Ended: lambda what: msgspec.structs.replace(what, held_ns=0),
    Moved: lambda what: msgspec.structs.replace(what, held_ns=0),
    UnitMoved: lambda what: msgspec.structs.replace(what, held_ns=0),
    Asked: _asked,
    # What is kept has times, and what each world runs.
    Store: _nothing,
    Restored: _nothing,
    Answer: lambda what: Answer(0, {key: what.body[key] for key in ("error",) if key in what.body}),
    Notify: lambda what: Notify(_plain(what.text)),
    Log: _log,
    Fired: _fired,
    Send: _message,
    Received: _message,
    Torpid: lambda what: Torpid(what.peer, 0),
    Watch: _nothing,
    Late: lambda what: Late(what.run, 0),
    Grown: lambda what: Grown(what.run, 0),
}


def as_told(what: AnyEvent | AnyEffect | Event | Effect) -> Record | None:
    """What a line tells when times and means are taken away; None where it says nothing that two worlds share."""
    told = _TOLD.get(type(what))
    return what if told is None else told(what)
