"""What neighbours in the tree tell each other."""

from __future__ import annotations

from typing import Literal

from brokerctl.records.base import Command, Record


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
