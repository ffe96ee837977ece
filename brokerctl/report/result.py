"""What became of one scenario in one world: what the report formats read."""

from __future__ import annotations

from typing import Literal

import msgspec

from brokerctl.check.eventlogs import Eventlog
from brokerctl.logs.fluxlog import Entry

Status = Literal["passed", "failed", "skipped"]

# A story beyond this is told by its end: what went wrong is there.
STORY_MAX = 10_000


class Told(msgspec.Struct, frozen=True, gc=False):
    """One log entry of the story, `t_ns` after the run's first event.

    In the story of many ranks it stands for equal ones, the last at `until_ns`, of these `ranks` (an idset).
    """

    t_ns: int
    entry: Entry
    until_ns: int = 0
    ranks: str = ""


class Failure(msgspec.Struct, frozen=True, gc=False):
    """What is not as it should be: an expectation or an invariant, by name; the text has expected and got."""

    name: str
    text: str
    t_ns: int = 0
    rank: int = 0


class Delay(msgspec.Struct, frozen=True, gc=False):
    """Who held the stop up and for how long; `how` is what became of it, where it is `over`."""

    who: str
    held_ns: int
    how: str = ""
    over: bool = True


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One scenario in one world. Times are nanoseconds: virtual in the simulator, real elsewhere.

    `stop_ns` is from the stop's first signal or request to the leader's exit, None where there was none.
    `endings` says how each life of several ended, `unit` how the service unit did. `deadlocks` are told whether they
    were expected or not.
    `checks` counts the expectations and invariants that were looked at, `unchecked` names invariants that were not;
    `reason` says why it was skipped; `replay` is the command that runs it again. `size` is the number of ranks, of
    which `unended` have neither ended nor crashed. `elapsed_ns` and, since the stop began, `stopping_ns` are real time.
    """

    name: str
    path: str
    about: str
    world: str
    policy: str
    replay: str
    status: Status = "passed"
    reason: str = ""
    outcome: str = ""
    exit_code: int | None = None
    stop_ns: int | None = None
    checks: int = 0
    failures: tuple[Failure, ...] = ()
    delays: tuple[Delay, ...] = ()
    story: tuple[Told, ...] = ()
    untold: int = 0
    elapsed_ns: int = 0
    stopping_ns: int = 0
    size: int = 1
    unended: int = 0
    unchecked: tuple[str, ...] = ()
    deadlocks: tuple[Failure, ...] = ()
    eventlogs: tuple[Eventlog, ...] = ()
    endings: tuple[str, ...] = ()
    unit: str = ""
