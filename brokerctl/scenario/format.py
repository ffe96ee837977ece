"""The scenario file: typed tables of TOML, and reading them; what they mean is `resolve`'s.

A key that is not here is an error. Durations are RFC 23 text, ranks RFC 22 idsets, hosts an RFC 29 hostlist. The tables
about jobs stand in `jobtables`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from brokerctl import config, stoptable, workertable
from brokerctl.errors import ConfigError, ScenarioError
from brokerctl.scenario.jobtables import HoldEntry, HousekeepingEntry, JobEntry, Perilog, ServiceEntry

# More ranks than any Flux instance has had; a limit on what one file can make us build.
SIZE_MAX = 1 << 18
LEAVES_MAX = 100
NOTIFY_MAX = 1000
CORES_MAX = 4096

ExitCode = Annotated[int, Meta(ge=0, le=255)]
Outcome = Literal["ended", "stuck", "horizon"]
WorldName = Literal["sim", "live", "flux", "systemd"]
_WORLDS: tuple[WorldName, ...] = ("sim", "live", "flux")


UnitTable = dict[str, str | int | float | bool | list[str]]


class Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    """A table of the file; names have dashes there, underscores here."""


class Instance(Table, frozen=True):
    """`[instance]`: how many brokers, who is whose parent, and on which hosts.

    `topology` is `kary:K`, `flat`, or `custom` with a parent for each rank: a rank (-1 for the leader) or a host
    (`""` for the leader). Instead of all these, `bootstrap` names Flux's own configuration file, relative to the
    scenario: its `[bootstrap]` table says who is there (flux-config-bootstrap(5)). Each node has so many `cores`.
    """

    size: Annotated[int, Meta(ge=1, le=SIZE_MAX)] = 1
    topology: str = "kary:2"
    parents: list[int | str] | None = None
    hosts: str | None = None
    cores: Annotated[int, Meta(ge=1, le=CORES_MAX)] = 2
    bootstrap: str | None = None


class ReactionEntry(Table, frozen=True):
    """What a puppet does with a signal that it catches: exits with that code after that time.

    First it sends `notify` to the service manager.
    """

    after: str = "0s"
    exit: ExitCode = 0
    notify: list[str] = []


class NotifyEntry(Table, frozen=True):
    """What a puppet sends to the service manager `at` that time of its life, and so many `times` more `every` so long.

    `child`: a child of it sends it.
    """

    text: str
    at: str = "0s"
    every: str | None = None
    times: Annotated[int, Meta(ge=1, le=NOTIFY_MAX)] = 1
    child: bool = False


class KillEntry(Table, frozen=True):
    """The signal that a puppet of a unit sends to the unit's main process (`$MAINPID`) at that time of its life."""

    signal: str
    at: str = "0s"


class PuppetEntry(Table, frozen=True):
    """`[puppet.NAME]`: a process whose behaviour is declared.

    `runs` is a duration, `forever`, or `1s..3s` for a uniform draw; `exit` a code or the name of the
    signal that it dies of. Both may be a table by ranks, with `default` for the rest. `command` is what
    logs call it. One that `asks` its broker does so at the end of what it `runs`, and ends when it is answered:
    `queue-stop`, `acquire-mute`, `cancel-running`, `queue-idle` are Flux's own cleanup actions.

    In a unit, `main-gone` is answered when the main process has ended, `systemctl VERB` when that returns. What it
    tells its manager is `notify`, whole messages; `kills` are signals that it sends to main. As a worker it beats
    until it `hangs`, so long after its start, and `leaks` so many bytes of memory a second (`200M`). Its `leaves` die
    of every signal but of those that they ignore (`leaves-ignore`).
    """

    runs: str | dict[str, str] = "0s"
    exit: int | str | dict[str, int | str] = 0
    on: dict[str, Literal["ignore", "die"] | ReactionEntry] = {}
    leaves: Annotated[int, Meta(ge=0, le=LEAVES_MAX)] = 0
    leaves_run: str = "forever"
    leaves_ignore: list[str] = []
    detached: bool = False
    kill: Literal["works", "uninterruptible"] = "works"
    start: Literal["ok", "not-found", "not-executable"] = "ok"
    prints: list[str] = []
    prints_err: list[str] = []
    asks: str = ""
    notify: list[str | NotifyEntry] = []
    kills: list[str | KillEntry] = []
    hangs: str | None = None
    leaks: str | None = None
    command: str | None = None


class ActionEntry(Table, frozen=True):
    """`[[rc1]]`, `[rc2]`, `[[cleanup]]`, `[[rc3]]`: one action, acted out by a puppet.

    With `ranks`, `all` or an idset, the leader runs it on those.
    """

    puppet: str
    timeout: str | None = None
    essential: bool = False
    ranks: str = ""


class WorkerEntry(workertable.WorkerKeys, frozen=True):
    """`[[worker]]`: a worker of the leader, acted out by a puppet; all else as in the file of `brokerctl run`."""

    puppet: str


class StopTable(stoptable.StopKeys, frozen=True):
    """`[stop]`: what the wrapper in `[unit]` is told, as by `stop.toml`; its site actions are acted out by puppets."""

    actions: list[ActionEntry] = msgspec.field(default_factory=list)


class StepEntry(Table, frozen=True):
    """`[[step]]`: at a moment, something is done to a rank."""

    at: str
    do: str
    rank: Annotated[int, Meta(ge=0)] = 0


class FaultEntry(Table, frozen=True):
    """`[[fault]]`: at a moment, something breaks, or heals, on these ranks.

    `ranks` is an idset; `1%` draws so many of all ranks from the seed, `1% of leaves` of those without children, the
    leader never. `cut`, `half-open`, `slow` (by `delay`) and `heal` are about the link to the parent. At `rank 3
    shutdown` rank 3 has entered SHUTDOWN and done what it does there on entry: `freeze` then is how a broker never
    leaves a state. With `spread` each rank has a time of its own, drawn from so long after the moment.
    """

    at: str
    do: Literal["crash", "freeze", "thaw", "cut", "heal", "half-open", "slow", "restart"]
    ranks: str
    delay: str | None = None
    spread: str = "0s"


class Live(Table, frozen=True):
    """`[live]`: what replaces the rest of the file in worlds of real time; `attrs` those of `[attrs]`, one by one."""

    attrs: dict[str, str | int | float | bool] = {}


class SpanEntry(Table, frozen=True):
    """`[[expect.spans]]`: the time between two moments lies between two durations."""

    from_: str = msgspec.field(name="from")
    to: str
    min: str = "0s"
    max: str = "none"


class ExpectUnit(Table, frozen=True):
    """`[expect.unit]`: what must come of the unit; what is not said is not checked.

    `active`, `sub` and `result` are its properties at the end, `main` the exit code or the signal of its main process,
    `status` its StatusText. `states` are SubStates in this order, others between. `signals` are those that the manager
    sends, such as `main TERM`, `control KILL`, `others KILL`: for each of the three all of them, in order; CONT counts
    only where it is written. `hooks` are all control processes in order, with words that their environment must have
    (`SERVICE_RESULT=success`, `MAINPID`) or must not (`!EXIT_CODE`). `rc` has the exit code of each `systemctl`: the
    start's, then those of the steps as they stand in the file; `none` for one that does not return. `takes` is the time
    from the first `deactivating` to the next state without processes, by 0.3 s exact; `within` its limit. `restarts`
    counts automatic ones, `left` processes that survive.
    """

    active: Literal["inactive", "active", "failed", "activating", "deactivating", "reloading"] | None = None
    sub: str | None = None
    result: str | None = None
    main: ExitCode | str | None = None
    status: str | None = None
    states: list[str] = []
    signals: list[str] | None = None
    hooks: list[str] | None = None
    rc: list[ExitCode | Literal["none"]] | None = None
    takes: str | None = None
    within: str | None = None
    restarts: Annotated[int, Meta(ge=0)] | None = None
    left: Annotated[int, Meta(ge=0)] | None = None


class Expect(Table, frozen=True):
    """`[expect]`: what must be true of the run; what is not said is not checked.

    `exit` is the leader's code, `exits` has others by rank; `within` counts from the stop's first signal
    or request to the leader's exit. `transitions` by rank are `EVENT OLD NEW`, in this order with others
    between (`exact`: no others). `log` and `notify` are parts of log lines and beginnings of notify
    messages, in this order. `lost` are the ranks that the leader was told as lost or shed, no more and no less.
    `events` by job are events of its log in this order, others between; `drained` by ranks a part of the reason, and
    all that are drained. `freed` by ranks is when they were given back to the scheduler, from the job's `free` on.
    `waits` are parts of what is told of a deadlock, in this order. `violates` names the invariants that this scenario
    is known to break: each of them, and no other, must be broken.
    """

    exit: ExitCode | None = None
    exits: dict[str, ExitCode] = {}
    within: str | None = None
    outcome: Outcome = "ended"
    transitions: dict[str, list[str]] = {}
    exact: bool = False
    actions: dict[str, int] = {}
    never: list[str] = []
    order: list[str] = []
    spans: list[SpanEntry] = []
    log: list[str] = []
    no_log: list[str] = []
    notify: list[str] = []
    lost: str | None = None
    events: dict[str, list[str]] = {}
    drained: dict[str, str] | None = None
    freed: dict[str, dict[str, str]] = {}
    waits: list[str] = []
    unit: ExpectUnit | None = None
    violates: list[str] = []


class RunEntry(Table, frozen=True):
    """`[[run]]`: one life of an instance; the next begins with what this one has stored.

    What stands here adds to the file, or replaces it: attributes and puppets one by one, the rest as a whole.
    """

    attrs: dict[str, str | int | float | bool] = {}
    puppet: dict[str, PuppetEntry] = {}
    perilog: Perilog | None = None
    housekeeping: HousekeepingEntry | None = None
    job: list[JobEntry] = []
    step: list[StepEntry] = []
    fault: list[FaultEntry] = []
    expect: Expect = Expect()


class ScenarioFile(Table, frozen=True):
    """A whole scenario file. `horizon` ends a run that does not end by itself; `fact` is what it shows, and its source.

    `unit` has systemd's own keys beside its own (`scenario.unit.OwnKeys`).
    """

    about: Annotated[str, Meta(min_length=1)]
    fact: str = ""
    seed: int = 1
    worlds: list[WorldName] = msgspec.field(default_factory=lambda: list(_WORLDS))
    policy: Literal["flux", "hardened"] = "flux"
    horizon: str = "1h"
    instance: Instance = Instance()
    attrs: dict[str, str | int | float | bool] = {}
    unit: UnitTable | None = None
    stop: StopTable | None = None
    puppet: dict[str, PuppetEntry] = {}
    rc1: list[ActionEntry] = []
    rc2: ActionEntry | None = None
    cleanup: list[ActionEntry] = []
    rc3: list[ActionEntry] = []
    worker: list[WorkerEntry] = []
    job: list[JobEntry] = []
    perilog: Perilog = Perilog()
    housekeeping: HousekeepingEntry | None = None
    hold: list[HoldEntry] = []
    service: dict[str, ServiceEntry] = {}
    step: list[StepEntry] = []
    fault: list[FaultEntry] = []
    live: Live = Live()
    expect: Expect = Expect()
    run: list[RunEntry] = []


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """A scenario file that was read: what it says, and where it stands.

    `restored` is what the life before this one has stored; `earlier` names the jobs of it.
    """

    name: str
    path: Path
    file: ScenarioFile
    restored: dict[str, str] = {}
    earlier: tuple[str, ...] = ()

    def jobs(self) -> list[str]:
        """The names of all its jobs."""
        names = list(self.earlier)
        for job in self.file.job:
            names += [job.name, *(f"{job.name}-{nth}" for nth in range(2, job.count + 1))]
        return names


@contextmanager
def one_line() -> Iterator[None]:
    """Whatever is wrong in a scenario is told in one line of printable text, even where a key is not printable."""
    try:
        yield
    except ScenarioError as error:
        text = str(error)
        if text.isprintable():
            raise
        shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
        raise ScenarioError(shown) from None


def load(path: Path) -> Scenario:
    """Read a scenario; ScenarioError in one line says which key is wrong and what was expected."""
    with one_line():
        try:
            file = config.validate(config.read_toml(path), ScenarioFile, str(path))
        except ConfigError as error:
            raise ScenarioError(str(error)) from None
        if file.instance.bootstrap is not None:
            from brokerctl.scenario import bootstrap

            file = msgspec.structs.replace(file, instance=bootstrap.instance(file.instance, path))
    return Scenario(name=path.stem, path=path, file=file)


def schema() -> dict[str, Any]:
    """The JSON Schema of a scenario file, for editors and for other programs that write scenarios."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "brokerctl scenario",
        **msgspec.json.schema(ScenarioFile),
    }
