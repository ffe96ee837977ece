"""What the wrapper of a stop (`brokerctl stop`) learns and does, beside what every model does.

Its main is a process that it did not start: it signals it, asks about it, and waits for its end. Questions go to a
process that may hang, die or talk nonsense; each is answered by `Answered` or `QueryFailed`, or by its timer.
"""

from __future__ import annotations

from typing import Literal

from brokerctl.records.base import Record
from brokerctl.records.effects import Fact, Order
from brokerctl.records.events import Event

# What main is: a Flux broker, a broker of `brokerctl run` or `start`, or any other process.
Kind = Literal["flux", "brokerctl", "other"]

# `look`: main's state and status. `peers`: who holds SHUTDOWN. `shed RANKS`: disconnect these (an RFC 22 idset).
# `holders SINCE_NS`: the processes that hold CLEANUP and were started since. `before` and `after`: the report; the
# words of `after` are facts of the stop, NAME=VALUE. `written`: what main and its processes have written.
Ask = Literal["look", "peers", "shed", "holders", "written", "before", "after"]


# ---- answers


class Limits(Record, frozen=True):
    """Main's own limits, as far as they could be learned; None is no limit, or an unknown one."""

    cleanup_timeout_ns: int | None = None
    shutdown_timeout_ns: int | None = None


class Look(Record, frozen=True):
    """Answers `look`: what main does now.

    `state` is its lifecycle state, "" where nothing tells it; with `guessed` it was derived from main's status, which
    may be late. `held_ns` is since when, None if that is unknown, `left_ns` how long it may last by main's own promise.
    `text` is main's own status (the one that it told its service manager, never the wrapper's), `step` which of how
    many actions runs (`2/4`), `reason` how the stop began (`signal`, `request`, …); "" is unknown. `done` is what
    FINALIZE has brought about so far, in any unit that only grows (keys archived), `progress` the same in words.
    """

    state: str = ""
    guessed: bool = False
    held_ns: int | None = None
    left_ns: int | None = None
    rank: int = 0
    size: int = 1
    text: str = ""
    step: str = ""
    done: int = 0
    progress: str = ""
    limits: Limits | None = None
    reason: str = ""
    jobs: int = 0


class Holding(Record, frozen=True):
    """A rank that holds SHUTDOWN by itself, not because it waits for another; `severs` is its subtree (an idset)."""

    rank: int
    host: str = ""
    status: str = ""
    severs: str = ""


class Peers(Record, frozen=True):
    """Answers `peers`: who is waited for in words (`3 peers: picl[4,7-8]`), and who of them is to blame."""

    text: str = ""
    holding: tuple[Holding, ...] = ()


class ShedRank(Record, frozen=True):
    """What became of one rank that was to be shed: an error, or what it took along."""

    rank: int
    host: str = ""
    severed: str = ""
    jobs: tuple[str, ...] = ()
    error: str = ""


class Sheds(Record, frozen=True):
    """Answers `shed`."""

    ranks: tuple[ShedRank, ...] = ()


class Holder(Record, frozen=True):
    """A process that holds CLEANUP: its pid, when it was started (clock ticks since boot), its command line."""

    pid: int
    started: int
    text: str = ""


class Holders(Record, frozen=True):
    """Answers `holders`."""

    holders: tuple[Holder, ...] = ()


class Written(Record, frozen=True):
    """Answers `written`: bytes that main and its processes have written anywhere, and to storage (proc_pid_io(5)).

    Sums over the living: they grow, and shrink when a process ends.
    """

    anywhere: int = 0
    storage: int = 0


class Report(Record, frozen=True):
    """Answers `before` and `after`: lines for the journal, and which part of main's own stop has failed, if any."""

    lines: tuple[str, ...] = ()
    failed: Literal["", "cleanup", "rc3"] = ""


AnyAnswer = Look | Peers | Sheds | Holders | Written | Report


# ---- events


class Aimed(Event, frozen=True):
    """The wrapper begins, and main lives: the first event of its trace.

    `complaint` is what was wrong before it began, such as its configuration: a failure, but no reason not to stop.
    """

    kind: Kind
    pid: int = 0
    name: str = ""
    complaint: str = ""


class Answered(Event, frozen=True):
    """The answer to a query."""

    query: int
    answer: AnyAnswer


class QueryFailed(Event, frozen=True):
    """No answer will come: who was asked is dead, talked nonsense, or refused; `why` in words."""

    query: int
    why: str


class MainGone(Event, frozen=True):
    """Main has ended."""


class SignalFailed(Event, frozen=True):
    """A `SignalMain` that could not be carried out."""

    signum: int
    errno: int


# ---- effects


class Query(Order, frozen=True):
    """Ask something; an answer after `within_ns` is of no use any more."""

    query: int
    what: Ask
    words: tuple[str, ...] = ()
    within_ns: int = 0


class SignalMain(Order, frozen=True):
    """Signal main, through its pidfd."""

    signum: int


class KillHolder(Order, frozen=True):
    """Signal one process that holds CLEANUP, if it still is that process."""

    pid: int
    started: int
    signum: int


class Observed(Fact, frozen=True):
    """Main was seen in another state; `held_ns` is the time since it was first seen in `old`."""

    old: str
    new: str
    held_ns: int


StopEvent = Aimed | Answered | QueryFailed | MainGone | SignalFailed
StopEffect = Query | SignalMain | KillHolder | Observed
