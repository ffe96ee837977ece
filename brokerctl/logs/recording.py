"""Recorded runs of a real Flux: `NAME.json`, what was set up, done and observed, and `NAME.log`, what brokers logged.

Times are seconds from the launch of the instance. Jobs have labels; in texts, their ids are replaced by those.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from brokerctl.durations import S
from brokerctl.errors import TraceError
from brokerctl.ids import parse_idset
from brokerctl.logs.fluxlog import parse
from brokerctl.records import AnyEffect, Drain, Exit, JobEvent, Line, Log, Moved, Notify, Unreachable

# An exit of 128 + SIGKILL is that of a leader that was killed.
_KILLED = "Killed"
_SUBMIT = re.compile(r"t=\S+: submit (?P<label>\S+): .* -> (?P<job>ƒ\S+)")
_JOB = re.compile("ƒ[1-9A-HJ-NP-Za-km-z]+")


class Event(msgspec.Struct, frozen=True):
    """An event of an eventlog, `t` seconds after the launch; negative in an earlier life."""

    t: float
    name: str
    context: dict[str, Any] = {}


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it.

    A transition is event, old state, new state, duration, time. `broker_rc` has, by rank, what the starter of the
    brokers said of those that failed. `notify` are time, sender and text of messages to the service manager. `drained`
    is the eventlog of the nodes; `extra` what else was looked at.
    """

    rank0_transitions: list[tuple[str, str, str, str, float]]
    other_ranks_transitions: dict[str, list[tuple[str, str, str, str, float]]] = {}
    actions: list[dict[str, Any]] = []
    log_err: list[str] = []
    log_warn: list[str] = []
    signals_and_ignored: list[tuple[float, str]] = []
    exit_code: int | None = None
    broker_rc: dict[str, str] = {}
    notify: list[tuple[float, int, str]] = []
    eventlogs: dict[str, list[Event]] = {}
    drained: list[Event] = []
    extra: dict[str, Any] = {}
    notes: str = ""


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """One recorded run. `scripts`, `config_toml` and `steps` call its directory `$DIR`."""

    name: str
    about: str
    size: int
    topo: str = "default"
    attrs: dict[str, str] = {}
    config_toml: str = ""
    steps: list[str]
    scripts: dict[str, str] = {}
    observed: Observed
    log: str = ""

    @property
    def has_debug(self) -> bool:
        """Whether lines of level DEBUG were recorded too."""
        return "log-stderr-level=7" in self.steps[0]

    @property
    def jobs(self) -> frozenset[str]:
        """The labels of the jobs whose eventlogs were recorded."""
        return frozenset(self.observed.eventlogs)

    @property
    def given_up_ns(self) -> int | None:
        """When the recorder no longer waited, and killed what there was; None where the run came to its end."""
        time, _, what = self.steps[-1].partition(": ")
        return round(float(time.removeprefix("t=")) * S) if what.startswith("NOT exited") else None

    def labels(self) -> dict[str, str]:
        """Ids of jobs → their labels; from the steps, else those of the only job that there is."""
        found = {match["job"]: match["label"] for match in map(_SUBMIT.fullmatch, self.steps) if match is not None}
        if not found and len(self.jobs) == 1:
            (label,) = self.jobs
            found = dict.fromkeys(_JOB.findall(self.log), label)
            found |= dict.fromkeys(_JOB.findall(msgspec.json.encode(self.observed).decode()), label)
        return found


def read(path: Path) -> Recording:
    """A recording from `NAME.json` and the log beside it; TraceError in one line otherwise."""
    try:
        made = msgspec.json.decode(path.read_bytes(), type=Recording)
        log = path.with_suffix(".log").read_text(encoding="utf-8")
    except OSError as error:
        raise TraceError(f"{error.filename}: cannot read: {error.strerror}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise TraceError(f"{path}: no recording: {error}") from None
    if not made.steps:
        raise TraceError(f"{path}: no recording: no steps; expected at least the launch")
    return msgspec.structs.replace(made, log=log)


def write(recording: Recording, path: Path) -> None:
    """`read`'s inverse; an OSError is the caller's."""
    fields = {key: value for key, value in msgspec.to_builtins(recording).items() if key != "log"}
    path.write_bytes(msgspec.json.format(msgspec.json.encode(fields), indent=1) + b"\n")
    path.with_suffix(".log").write_text(recording.log, encoding="utf-8")


def lines(recording: Recording) -> list[Line]:
    """What a recording tells, as lines of a trace, by time: log, eventlogs, notifications, exits."""
    until_ns = recording.given_up_ns
    labels = recording.labels()
    told = [
        Line(found.t_ns or 0, found.rank, 0, ">", labelled(found.what, labels))
        for found in map(parse, recording.log.splitlines())
        if found is not None and (until_ns is None or (found.t_ns or 0) < until_ns)
    ]
    begin_ns = told[0].t_ns if told else 0
    told += _exits(recording.observed, told)
    for drain in _drained_before(recording.observed.drained):
        told.append(Line(begin_ns, 0, 0, ">", labelled(drain, labels)))
    for label, events in recording.observed.eventlogs.items():
        told += [Line(round(one.t * S), 0, 0, ">", JobEvent(label, label, one.name, one.context)) for one in events]
    for t_s, sender, text in recording.observed.notify:
        told.append(Line(round(t_s * S), sender if recording.size > 1 else 0, 0, ">", Notify(text)))
    return numbered(told)


def numbered(told: Iterable[Line]) -> list[Line]:
    """The lines by time, those of each rank numbered from 0."""
    made, numbers = [], dict[int, int]()
    for line in sorted(told, key=lambda line: line.t_ns):
        number = numbers[line.rank] = numbers.get(line.rank, -1) + 1
        made.append(msgspec.structs.replace(line, n=number))
    return made


def labelled(what: AnyEffect, labels: Mapping[str, str]) -> AnyEffect:
    """The same with ids of jobs replaced by their labels."""
    match what:
        case Log(component, level, text):
            return Log(component, level, _named(text, labels))
        case Unreachable(rank, text):
            return Unreachable(rank, _named(text, labels))
        case Drain(ranks, reason):
            return Drain(ranks, _named(reason, labels))
    return what


def _named(text: str, labels: Mapping[str, str]) -> str:
    return _JOB.sub(lambda match: labels.get(match[0], match[0]), text)


def _exits(observed: Observed, told: list[Line]) -> list[Line]:
    """The codes of brokers that came to EXIT; only those that failed are named by their starter."""
    made = []
    for line in told:
        if isinstance(line.what, Moved) and line.what.new == "exit":
            said = observed.broker_rc.get(str(line.rank), _KILLED)  # which is how an earlier life of it ended
            code = 0 if said == _KILLED else _code(said)
            made.append(Line(line.t_ns, line.rank, 0, ">", Exit(code)))
    return made


def _code(said: str) -> int:
    """Of what `flux start` says of a broker that failed: `exited with rc=N`, or strsignal(3)."""
    match = re.fullmatch(r"exited with rc=(\d+)", said)
    if match is not None:
        return int(match[1])
    return next((128 + number for number in signal.valid_signals() if signal.strsignal(number) == said), 1)


def _drained_before(events: Iterable[Event]) -> list[Drain]:
    """What is drained when a later life begins, rank by rank: Flux logs nothing of it."""
    reasons: dict[int, str] = {}
    for event in events:
        if event.t >= 0 or event.name not in {"drain", "undrain"}:
            continue
        try:
            ranks = parse_idset(event.context["idset"])
        except (KeyError, ValueError) as error:
            raise TraceError(f"drained: {event.name} at {event.t}: no idset: {error}") from None
        for rank in ranks:
            if event.name == "undrain":
                reasons.pop(rank, None)
            else:
                reasons[rank] = event.context.get("reason") or ""
    return [Drain((rank,), reason) for rank, reason in sorted(reasons.items())]
