"""Events: all that a model ever learns."""

from __future__ import annotations

from typing import Literal

from brokerctl.records.base import Record
from brokerctl.records.messages import AnyMessage


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


class Heard(Event, frozen=True):
    """A run told its manager this (sd_notify(3)). `WATCHDOG=1` is left out: the world counts them, as `Watch` says."""

    run: str
    text: str


class Late(Event, frozen=True):
    """A run that is watched has been silent for longer than it may; told once a `Watch`."""

    run: str
    silent_ns: int


class Grown(Event, frozen=True):
    """A run that is watched has more bytes of memory than it may; told once a `Watch`."""

    run: str
    memory: int


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
    | Heard
    | Late
    | Grown
    | Fired
    | Received
    | Lost
    | Contacted
    | Torpid
    | Responsive
    | Restored
)
