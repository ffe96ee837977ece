"""Moments: when a step is due, and what an expectation speaks of. This file owns their grammar.

    moment   = duration | event , [ offset ] ;
    event    = ( [ "rank" , number ] , ( STATE | action | job ) | "unit" , unit ) , [ "nth" , number ] ;
    action   = [ "rexec." ] , LIST , "." , number , ( "start" | "end" )
             | "worker." , NAME , ( "start" | "ready" | "end" ) ;
    LIST     = "rc1" | "rc2" | "cleanup" | "rc3" ;
    job      = NAME , EVENT ;              (* an event of that job's eventlog: RFC 21 *)
    unit     = SUBSTATE | PROCESS , ( "start" | "end" | SIGNAL ) ;   (* PROCESS: main, exec-stop.0 *)
    offset   = ( "+" | "-" ) , duration ;
    duration = (* RFC 23, finite *) ;

A duration alone counts from the first event of the run. A STATE is the moment of entering it; `start` is when the
action's process is started, or an action on many ranks is sent out, `end` when the action is complete;
`rexec.cleanup.0` is what one of these ranks runs. The rank is 0 and `nth` is 1 (the first time) if not said.
`cleanup.3 start + 30s`, `rank 2 finalize nth 1`, `1.5s`.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Literal

import msgspec

from brokerctl import durations
from brokerctl.errors import ScenarioError
from brokerctl.model.lifecycle import State
from brokerctl.model.unit.states import Sub
from brokerctl.model.words import short_name
from brokerctl.records import (
    UNIT,
    Ended,
    Exited,
    Heard,
    JobEvent,
    KillProcess,
    Line,
    Moved,
    SpawnFailed,
    Start,
    UnitMoved,
    Waiting,
)

Kind = Literal["time", "state", "start", "ready", "end", "job", "unit-state", "unit-start", "unit-end", "unit-signal"]

_KINDS: dict[Kind, frozenset[type]] = {
    "time": frozenset({Moved}),
    "state": frozenset({Moved}),
    "start": frozenset({Start, Waiting}),
    "ready": frozenset({Heard}),
    "end": frozenset({Ended}),
    "job": frozenset({JobEvent}),
    "unit-state": frozenset({UnitMoved}),
    "unit-start": frozenset({Start}),
    "unit-end": frozenset({Exited, SpawnFailed}),
    "unit-signal": frozenset({KillProcess}),
}
# RFC 21; scripts and plugins post others, which have no moment.
EVENTS = (
    "submit", "validate", "depend", "priority", "alloc", "prolog-start", "prolog-finish", "start", "finish", "release",
    "epilog-start", "epilog-finish", "free", "clean", "exception", "flux-restart",
)  # fmt: skip
# The unit's main process, and a line of its commands.
_PROCESS = re.compile(r"main|exec-(?:condition|start-pre|start-post|reload|stop|stop-post)\.[0-9]{1,3}")
_SIGNAL = re.compile(r"[A-Z][A-Z0-9]{1,7}")
_STATES = frozenset(str(state) for state in State)
# What has a name of its own in a trace, and of which it has a start and an end.
RUN = r"(?:rexec\.)?(?:rc1|rc2|cleanup|rc3)\.(?:0|[1-9][0-9]{0,4})|worker\.[A-Za-z0-9_-]{1,64}"
_RUN = re.compile(RUN)
_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")


class Moment(msgspec.Struct, frozen=True):
    """A moment that was read. `subject` is the state, the action or the job; `offset_ns` of a time is that time."""

    kind: Kind
    subject: str = ""
    rank: int = 0
    nth: int = 1
    offset_ns: int = 0
    event: str = ""

    def __str__(self) -> str:
        if self.kind == "time":
            return durations.as_text(self.offset_ns)
        words = ["unit"] if self.rank == UNIT else [f"rank {self.rank}"] if self.rank else []
        states = {"state", "unit-state"}
        words.append(self.subject if self.kind in states else f"{self.subject} {self.event or self.kind}")
        if self.nth > 1:
            words.append(f"nth {self.nth}")
        if self.offset_ns:
            words.append(f"{'+' if self.offset_ns > 0 else '-'} {durations.as_text(abs(self.offset_ns))}")
        return " ".join(words)

    @property
    def wants(self) -> frozenset[type]:
        """The kinds of record that it is known by; a time is known by the first line of a run."""
        return _KINDS[self.kind]

    def matches(self, line: Line) -> bool:
        """Whether this line is such an event, the how-manieth whatever."""
        what = line.what
        if line.rank != self.rank:
            return False
        if self.rank == UNIT:
            return self._matches_unit(what)
        if self.kind == "state":
            return isinstance(what, Moved) and what.new == self.subject
        if self.kind == "job":
            return isinstance(what, JobEvent) and (what.label, what.name) == (self.subject, self.event)
        if isinstance(what, Heard):
            return self.kind == "ready" and what.run == self.subject and "READY=1" in what.text.split("\n")
        who = what.who if isinstance(what, Waiting) else what.run if isinstance(what, Start | Ended) else None
        return self.kind == ("end" if isinstance(what, Ended) else "start") and who == self.subject

    def _matches_unit(self, what: object) -> bool:
        if isinstance(what, UnitMoved):
            return self.kind == "unit-state" and what.new == self.subject
        if isinstance(what, Start):
            return self.kind == "unit-start" and what.run == self.subject
        if isinstance(what, KillProcess):
            name = short_name(what.signum)
            return self.kind == "unit-signal" and (what.run, name) == (self.subject, self.event)
        return self.kind == "unit-end" and isinstance(what, Exited | SpawnFailed) and what.run == self.subject

    def trigger(self) -> MomentTrigger:
        """The moment as a step's trigger; it keeps count, so each run needs its own."""
        return MomentTrigger(self)


class MomentTrigger:
    """Implements `worlds.contract.Trigger`: the world asks it about every line until it answers once."""

    def __init__(self, moment: Moment) -> None:
        self._moment = moment
        self._seen = 0

    def begin(self) -> int | None:
        """Nanoseconds from the first event, or None if lines decide."""
        return self._moment.offset_ns if self._moment.kind == "time" else None

    def see(self, line: Line) -> int | None:
        """Nanoseconds after this line, or None if it isn't the one."""
        if not self._moment.matches(line):
            return None
        self._seen += 1
        return self._moment.offset_ns if self._seen == self._moment.nth else None


class Watcher:
    """Finds the moment in a trace as its lines go by; `at_ns` and `index` stay None if it never comes.

    `index` counts the lines: of two moments at the same time, the one with the smaller index came first.
    """

    def __init__(self, moment: Moment) -> None:
        self.moment = moment
        self.at_ns: int | None = None
        self.index = 0
        self._seen = 0

    def see(self, index: int, line: Line) -> None:
        """Look at the next line."""
        if self.moment.kind == "time":
            if self.at_ns is None:
                self.at_ns = line.t_ns + self.moment.offset_ns
        elif self.moment.matches(line):
            self._seen += 1
            if self._seen == self.moment.nth:
                self.at_ns, self.index = line.t_ns + self.moment.offset_ns, index


def parse(text: str, size: int, jobs: Collection[str] = ()) -> Moment:
    """The moment that a text means in an instance of that size and these jobs; ValueError says what was expected."""
    words = text.split()
    if not words:
        raise ValueError("is empty; expected a moment")
    if words[0][0].isdigit() or words[0][0] == ".":
        return Moment("time", offset_ns=_duration(" ".join(words)))
    offset_ns = _offset(words)
    nth = _counted(words, "nth", 1, at_end=True)
    if words[:1] == ["unit"]:
        return _of_unit(text, words[1:], nth, offset_ns)
    rank = _counted(words, "rank", 0, at_end=False)
    if rank >= size:
        raise ValueError(f"rank {rank} is out of range; expected less than {size}")
    if nth < 1:
        raise ValueError("nth counts from 1")
    if len(words) == 2 and words[0] in jobs and not rank:
        if words[1] not in EVENTS:
            raise ValueError(f"jobs have no {words[1]!r}; expected an event such as finish or epilog-start")
        return Moment("job", words[0], 0, nth, offset_ns, words[1])
    return _event(text, words, rank, nth, offset_ns)


def of_step(text: str, size: int, where: str, jobs: Collection[str] = ()) -> Moment:
    """The moment of a step or a fault, which must not lie before what it speaks of; ScenarioError with `where`."""
    try:
        moment = parse(text, size, jobs)
    except ValueError as error:
        raise ScenarioError(f"{where}: {error}") from None
    if moment.offset_ns < 0:
        raise ScenarioError(f"{where}: {text!r} can't be foreseen; expected no time before an event")
    return moment


def _of_unit(text: str, words: list[str], nth: int, offset_ns: int) -> Moment:
    if nth >= 1:
        if len(words) == 1 and words[0] in set(Sub):
            return Moment("unit-state", words[0], UNIT, nth, offset_ns)
        if len(words) == 2 and _PROCESS.fullmatch(words[0]):
            if words[1] in {"start", "end"}:
                kind: Kind = "unit-start" if words[1] == "start" else "unit-end"
                return Moment(kind, words[0], UNIT, nth, offset_ns, words[1])
            if _SIGNAL.fullmatch(words[1]):
                return Moment("unit-signal", words[0], UNIT, nth, offset_ns, words[1])
    raise ValueError(f"{text!r} is no moment of a unit; expected such as 'unit stop-sigterm' or 'unit exec-stop.0 end'")


def _event(text: str, words: list[str], rank: int, nth: int, offset_ns: int) -> Moment:
    if len(words) == 1 and words[0] in _STATES:
        return Moment("state", words[0], rank, nth, offset_ns)
    if len(words) == 2 and _RUN.fullmatch(words[0]):
        if words[1] == "start":
            return Moment("start", words[0], rank, nth, offset_ns)
        if words[1] == "end":
            return Moment("end", words[0], rank, nth, offset_ns)
        if words[1] == "ready" and words[0].startswith("worker."):
            return Moment("ready", words[0], rank, nth, offset_ns)
        raise ValueError(f"{words[0]} has no {words[1]!r}; expected start or end")
    if len(words) == 2 and all(map(_NAME.fullmatch, words)):
        raise ValueError(f"{words[0]!r} is no action and no job; expected such as 'cleanup.0 start'")
    raise ValueError(f"{text!r} is no moment; expected a time, a state, or such as 'cleanup.0 start'")


def _offset(words: list[str]) -> int:
    """Take `+ DURATION` or `- DURATION`, also written `+DURATION`, from the end."""
    for at in range(1, len(words)):
        sign = words[at][0]
        if sign in "+-":
            rest = [words[at][1:], *words[at + 1 :]] if len(words[at]) > 1 else words[at + 1 :]
            del words[at:]
            value_ns = _duration(" ".join(rest))
            return value_ns if sign == "+" else -value_ns
    return 0


def _counted(words: list[str], keyword: str, default: int, *, at_end: bool) -> int:
    """Take `KEYWORD N` from the beginning or the end, if it is there."""
    at = len(words) - 2 if at_end else 0
    if at < 0 or words[at : at + 1] != [keyword]:
        return default
    number = "".join(words[at + 1 : at + 2])
    if not _NUMBER.fullmatch(number):
        raise ValueError(f"{keyword} needs a number")
    del words[at : at + 2]
    return int(number)


def _duration(text: str) -> int:
    value_ns = durations.parse(text)
    if value_ns is None:
        raise ValueError(f"{text!r} never comes; expected a finite duration")
    return value_ns
