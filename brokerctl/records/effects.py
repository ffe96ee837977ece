"""Effects: all that a model ever does; orders for the world, and facts that are only told."""

from __future__ import annotations

from typing import Any, Literal

from brokerctl.records.base import Command, Record
from brokerctl.records.messages import AnyMessage


class Effect(Record, frozen=True):
    """Something that the model wants done, or tells."""


class Order(Effect, frozen=True):
    """An effect that the world carries out; where it can't, an event says so."""


class Fact(Effect, frozen=True):
    """An effect that is only told."""


Scope = Literal["group", "all"]


class Start(Order, frozen=True):
    """Start a process, leader of a new process group. `run` is its name for the rest of its life."""

    run: str
    command: Command


class Kill(Order, frozen=True):
    """Signal a run: its process group, or `all` that descends from it, which the world then watches until `Emptied`."""

    run: str
    signum: int
    scope: Scope


class Watch(Order, frozen=True):
    """Watch a run until its end, or until the next `Watch`, from now on: how long it may be silent, and its memory.

    None is not at all. `first_ns` is how long its next word may take, where that is more. `Late`, `Grown` may follow.
    """

    run: str
    limit_ns: int | None = None
    memory: int | None = None
    first_ns: int = 0


class CloseOutput(Order, frozen=True):
    """Stop waiting for the end of a run's output; `OutputEnded` follows, and names who held it."""

    run: str


class Abandon(Order, frozen=True):
    """Forget a run that survived everything; no event of it is delivered any more."""

    run: str


class Arm(Order, frozen=True):
    """(Re)arm the rank's timer of that name. A `reminder` is no pending work: it keeps nothing going."""

    timer: str
    after_ns: int
    reminder: bool = False


class Cancel(Order, frozen=True):
    """Disarm; a cancelled timer is never delivered."""

    timer: str


class Send(Order, frozen=True):
    """Hand a message to a neighbour in the tree: the parent or a child, nobody else."""

    neighbour: int
    message: AnyMessage


class Hangup(Order, frozen=True):
    """Close the connection to a neighbour, after what was sent; nothing of it is delivered any more."""

    neighbour: int


class Notify(Order, frozen=True):
    """One datagram to the service manager (sd_notify(3))."""

    text: str


class Answer(Order, frozen=True):
    """The answer to an `Asked`; a body with `error` refuses."""

    reply: int
    body: dict[str, Any]


class Store(Order, frozen=True):
    """Keep a value for the next life."""

    key: str
    value: str


class Exit(Order, frozen=True):
    """The broker ends; nothing is delivered to it after this."""

    code: int


class Moved(Fact, frozen=True):
    """A transition; `held_ns` is the time spent in `old`."""

    event: str
    old: str
    new: str
    held_ns: int


class Ignored(Fact, frozen=True):
    """An event that the state doesn't know; it changed nothing."""

    event: str
    state: str


class Ended(Fact, frozen=True):
    """A run is complete: `how` is `Exited`, the name of the signal, or what else became of it."""

    run: str
    command: str
    rc: int
    how: str
    held_ns: int


class Waiting(Fact, frozen=True):
    """`who` can't go on before `on`; until `Served`."""

    who: str
    on: str


class Served(Fact, frozen=True):
    """`who` need not wait for `on` any more."""

    who: str
    on: str


class Unreachable(Fact, frozen=True):
    """What was pending to a lost rank failed with EHOSTUNREACH."""

    rank: int
    what: str


class JobEvent(Fact, frozen=True):
    """An event of a job's eventlog (RFC 18, 21); `job` is its id, `label` what a scenario calls it."""

    job: str
    label: str
    name: str
    context: dict[str, Any]


class Allocated(Fact, frozen=True):
    """A job got these cores: `cores[i]` of `ranks[i]`."""

    job: str
    ranks: tuple[int, ...]
    cores: tuple[tuple[int, ...], ...]


class Freed(Fact, frozen=True):
    """What the job had on these ranks is the scheduler's again."""

    job: str
    ranks: tuple[int, ...]


class Drain(Fact, frozen=True):
    """These ranks are drained: no job is put there any more."""

    ranks: tuple[int, ...]
    reason: str


class Service(Fact, frozen=True):
    """A node service was started or stopped on these ranks, by what is told in `by`."""

    name: str
    ranks: tuple[int, ...]
    active: bool
    by: str


class Log(Fact, frozen=True):
    """A line of the broker's log; `level` as in syslog(3): 3 err, 4 warning, 6 info, 7 debug."""

    component: str
    level: int
    text: str


AnyEffect = (
    Start
    | Kill
    | Watch
    | CloseOutput
    | Abandon
    | Arm
    | Cancel
    | Send
    | Hangup
    | Notify
    | Answer
    | Store
    | Exit
    | Moved
    | Ignored
    | Ended
    | Waiting
    | Served
    | Unreachable
    | JobEvent
    | Allocated
    | Freed
    | Drain
    | Service
    | Log
)
