"""The words that a model and a world exchange: events in, effects out, and the stamped line of a trace.

An *event* is all that a model ever learns. An *effect* is all that it ever does: an `Order` is for the world to carry
out, a `Fact` is only told. A `Line` is one of them with a time, a rank and a number; nothing else is in a trace.
Times are integers of nanoseconds: virtual ones, or CLOCK_MONOTONIC.
"""

from __future__ import annotations

from typing import Any, Literal

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


# ---- messages: rank ↔ neighbour


class Message(Record, frozen=True):
    """What neighbours in the tree tell each other."""


class Hello(Message, frozen=True):
    """Child → parent: I am here."""


class StateIs(Message, frozen=True):
    """Parent → child: the state that the parent is in now (Flux's state-machine.monitor)."""

    state: str


class ConfigGet(Message, frozen=True):
    """Child → parent: wants the configuration."""


class ConfigIs(Message, frozen=True):
    """Parent → child: the configuration, as it is."""


class Online(Message, frozen=True):
    """Child → parent: these ranks of its subtree have reached QUORUM since it last said so."""

    ranks: tuple[int, ...]


class Offline(Message, frozen=True):
    """Towards the leader: these ranks are gone. They `left` with a goodbye, were `lost`, or `shed` on purpose."""

    ranks: tuple[int, ...]
    why: Literal["left", "lost", "shed"]


class Disconnect(Message, frozen=True):
    """Parent → child: the connection is over (Flux's disconnect control message)."""


class Shed(Message, frozen=True):
    """Down the tree to that rank's parent: disconnect it (`flux overlay disconnect`)."""

    rank: int


class Exec(Message, frozen=True):
    """Down the tree: run this on these ranks of the subtree, on all of it if there are none.

    `ladder` is (signal, nanoseconds until the next) of the run's end by force; without it each rank has its own.
    """

    run: str
    command: Command
    targets: tuple[int, ...]
    ladder: tuple[tuple[int, int | None], ...] = ()


class Abort(Message, frozen=True):
    """Down the tree: end that run by the ladder; `hurry`: one rung further where that is under way."""

    run: str
    hurry: bool


class Forward(Message, frozen=True):
    """Down the tree: the processes of that run get this signal; nothing else follows from it."""

    run: str
    signum: int


class Results(Message, frozen=True):
    """Up the tree: how that run ended, and on which ranks, for each way of ending; `status` as wait(2) has it."""

    run: str
    results: tuple[tuple[int, int, str, tuple[int, ...]], ...]  # status, rc, how, ranks


class Said(Message, frozen=True):
    """Up the tree: what that run of a job wrote on one rank."""

    run: str
    rank: int
    stream: Literal["out", "err"]
    text: str


class ShellFailed(Message, frozen=True):
    """Up the tree: the broker of that rank unloads its modules under a running job, whose shell fails (FLUX.md 65)."""

    run: str
    rank: int


class EventWanted(Message, frozen=True):
    """Up the tree: a script of that job on that rank waits for an event of it; `reply` is how its broker knows it."""

    rank: int
    reply: int
    job: str
    event: str


class EventThere(Message, frozen=True):
    """Down the tree: the event that was waited for there has been posted; `error` says why it never will be."""

    rank: int
    reply: int
    error: str = ""


class Goodbye(Message, frozen=True):
    """Child → parent: my subtree is done, I would like to go."""


class GoodbyeOk(Message, frozen=True):
    """Parent → child: go."""


AnyMessage = (
    Hello
    | StateIs
    | ConfigGet
    | ConfigIs
    | Online
    | Offline
    | Disconnect
    | Shed
    | Exec
    | Abort
    | Forward
    | Results
    | Said
    | ShellFailed
    | EventWanted
    | EventThere
    | Goodbye
    | GoodbyeOk
)


# ---- events: world → model


class Event(Record, frozen=True):
    """Something that happened outside of the model."""


class Booted(Event, frozen=True):
    """The world is ready: the broker begins its life. The first event of every trace."""


class Signal(Event, frozen=True):
    """The broker process got a signal."""

    signum: int


class Asked(Event, frozen=True):
    """Somebody asks over the control socket; the model answers with `Answer(reply, …)`.

    `what` is `status`, `shutdown`, `cleanup-push` (with the command in `words`: one word is for the shell, more are
    an argument list; `text` is what logs call it, `puppet` a declared process instead) or `panic`. About jobs, all of
    the leader: `submit` (`text` is a JobSpec in JSON), `cancel ID`, `post-event ID NAME KEY=VALUE…`, `hold ID NAME`,
    `release ID NAME`, `housekeeping-kill`, `jobs`, `queue-stop`, `acquire-mute`, `cancel-running`, and `queue-idle`,
    which is answered when no job is in RUN or CLEANUP. `wait-event NAME` of any rank, in a script of a job (`text` is
    its run), is answered when that job has had the event.
    `reply` names the asker; 0 wants no answer.
    """

    what: str
    reply: int = 0
    words: tuple[str, ...] = ()
    text: str = ""
    puppet: str = ""


class Exited(Event, frozen=True):
    """The main process of a run is gone; `status` is its wait status (wait(2))."""

    run: str
    status: int


class Output(Event, frozen=True):
    """A run wrote one line. A world delivers a bounded number of them and counts the rest (`OutputEnded.dropped`)."""

    run: str
    stream: Literal["out", "err"]
    text: str


class OutputEnded(Event, frozen=True):
    """Nobody can write to a run's output any more.

    `dropped` counts the bytes beyond the cap that were not shown. `holder` names who still held the pipe when it was
    closed by `CloseOutput`: `sleep (pid 4711)`.
    """

    run: str
    dropped: int = 0
    holder: str = ""


class Emptied(Event, frozen=True):
    """After a `Kill` with scope `all`: no process of the run is left, the main one included."""

    run: str


class SpawnFailed(Event, frozen=True):
    """A `Start` that could not be carried out."""

    run: str
    errno: int


class KillFailed(Event, frozen=True):
    """A `Kill` that could not be carried out, or reached nobody (ESRCH)."""

    run: str
    signum: int
    errno: int


class Fired(Event, frozen=True):
    """A timer that was armed and never cancelled."""

    timer: str


class Received(Event, frozen=True):
    """A message from a neighbour in the tree."""

    peer: int
    message: AnyMessage


class Lost(Event, frozen=True):
    """The connection to a neighbour ended without goodbye."""

    peer: int
    why: str


class Contacted(Event, frozen=True):
    """A neighbour that never said hello in this life was heard: it knew an earlier one (FLUX.md 88)."""

    peer: int


class Torpid(Event, frozen=True):
    """A neighbour has been silent for so long, and its connection stands (FLUX.md 90)."""

    peer: int
    silent_ns: int


class Responsive(Event, frozen=True):
    """A torpid neighbour was heard again."""

    peer: int


class Restored(Event, frozen=True):
    """What an earlier life stored."""

    key: str
    value: str


# ---- effects: model → world


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


AnyEvent = (
    Booted
    | Signal
    | Asked
    | Exited
    | Output
    | OutputEnded
    | Emptied
    | SpawnFailed
    | KillFailed
    | Fired
    | Received
    | Lost
    | Contacted
    | Torpid
    | Responsive
    | Restored
)
AnyEffect = (
    Start
    | Kill
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


class Line(msgspec.Struct, frozen=True, gc=False):
    """One input (`<`) or output (`>`) of one rank's model. `n` counts from 0 per rank, without gaps."""

    t_ns: int
    rank: int
    n: int
    dir: Literal["<", ">"]
    what: AnyEvent | AnyEffect
