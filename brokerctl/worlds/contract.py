"""What a world is: it carries a model's effects out, feeds events back, and writes every line of both.

A scenario reaches a world as `Resolved`: everything drawn and decided, no text left to interpret.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Literal, Protocol

import msgspec

from brokerctl.records import AnyEvent, Asked, Line, Systemctl, UnitSettings
from brokerctl.settings import Settings, StopSettings
from brokerctl.trace import Topology
from brokerctl.worlds.puppets import PuppetSpec

Sink = Callable[[Line], None]

# The last three: what no UNIX socket and no process that was killed for good can be made to do.
Capability = Literal[
    "virtual-time",
    "real-processes",
    "ranks",
    "uninterruptible",
    "panic",
    "jobs",
    "unit",
    "half-open",
    "slow-links",
    "restart",
]


class Trigger(Protocol):
    """When a step is due: at a time, or some time after a line of the trace."""

    def begin(self) -> int | None:
        """Nanoseconds from the first event of the run, or None if lines decide."""

    def see(self, line: Line) -> int | None:
        """Nanoseconds after this line, or None if it isn't the one; asked until it answers once."""


class Deliver(msgspec.Struct, frozen=True, tag=True):
    """A step: the rank gets this event (a signal or a request); `UNIT` that of a client of the service manager."""

    rank: int
    event: AnyEvent | Systemctl


class Release(msgspec.Struct, frozen=True, tag=True):
    """A step: processes of this puppet that are uninterruptible become killable (the fault ends)."""

    puppet: str


class SignalProcess(msgspec.Struct, frozen=True, tag=True):
    """A step: somebody from outside signals the unit's main or control process."""

    whom: Literal["main", "control"]
    signum: int


FaultKind = Literal["crash", "freeze", "thaw", "cut", "heal", "half-open", "slow", "restart"]


class Fault(msgspec.Struct, frozen=True, tag=True):
    """A step: something breaks, or heals, on these ranks; `cut`, `half-open`, `slow` are about the link to the parent.

    `crash` is kill -9, `freeze` is SIGSTOP, `thaw` SIGCONT; `restart` begins a new life of a crashed rank. A `cut`
    link ends, a `half-open` one stands but carries nothing, a `slow` one takes `delay_ns` more.
    """

    kind: FaultKind
    ranks: tuple[int, ...]
    delay_ns: int = 0


Deed = Deliver | Release | Fault | SignalProcess

_FAULT_NEEDS: Mapping[FaultKind, Capability] = {
    "half-open": "half-open",
    "heal": "half-open",  # only such a link, or a slow one, can be as before
    "slow": "slow-links",
    "restart": "restart",
}


def needs_of(deeds: Iterable[Deed]) -> frozenset[Capability]:
    """What a world must be capable of to do these."""
    needs: set[Capability] = set()
    for deed in deeds:
        if isinstance(deed, Release):
            needs.add("uninterruptible")
        elif isinstance(deed, Deliver) and isinstance(deed.event, Asked) and deed.event.what == "panic":
            needs.add("panic")
        elif isinstance(deed, Fault) and deed.kind in _FAULT_NEEDS:
            needs.add(_FAULT_NEEDS[deed.kind])
    return frozenset(needs)


class Step(msgspec.Struct, frozen=True):
    """One thing that a scenario does; `text` is how the scenario wrote its moment."""

    trigger: Trigger
    deed: Deed
    text: str


START_CLIENT = 0  # who starts the unit when a run begins


class UnitSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A service unit that a scenario runs in; it is started (`systemctl start`) when the run begins.

    `main` is the leader's broker, or a puppet (of `settings.exec_start`). `text` is the unit's files without `Exec…=`
    lines, for a real service manager. `stop` is what the wrapper in front of its stop is told.
    """

    settings: UnitSettings
    main: Literal["broker", "puppet"]
    text: str = ""
    stop: StopSettings = StopSettings()


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    """A scenario, ready to run. Triggers keep state: resolve anew for every run.

    `restored` is what the leader's earlier life has stored.
    """

    name: str
    settings: Settings
    topology: Topology
    puppets: Mapping[str, PuppetSpec] = {}
    steps: tuple[Step, ...] = ()
    seed: int = 1
    needs: frozenset[Capability] = frozenset()
    restored: Mapping[str, str] = {}
    unit: UnitSpec | None = None

    def has_brokers(self) -> bool:
        """There are brokers, not only a unit's puppets."""
        return self.unit is None or self.unit.main == "broker"


class Outcome(msgspec.Struct, frozen=True):
    """How a run ended.

    `ended`: every rank's broker has exited, or crashed; followers that are frozen for good count as that. A unit is
    inactive or failed. `stuck`: nothing is pending any more, and nothing can happen. `horizon`: the time was up.
    `exits` has the codes of the brokers that did exit; `undone` the texts of steps that never came; `stored` what the
    leader has stored last.
    """

    kind: Literal["ended", "stuck", "horizon"]
    t_ns: int
    exits: Mapping[int, int]
    undone: tuple[str, ...] = ()
    stored: Mapping[str, str] = {}


class World(Protocol):
    """One way of running a scenario."""

    name: str
    capabilities: frozenset[Capability]

    def run(self, scenario: Resolved, sink: Sink, horizon_ns: int, wants: frozenset[type] | None = None) -> Outcome:
        """Run it to its end; every line goes to `sink` in order.

        `wants` names the kinds that the sink needs, None is all of them. A world need not make lines that nobody
        wants; their numbers are counted all the same.
        """
