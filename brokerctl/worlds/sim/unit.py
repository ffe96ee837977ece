"""A service unit in virtual time: the model of systemd, the processes of its control group, and who notifies it.

Main may be the leader's broker, which its world acts out; every other process is a puppet. A command that is no puppet
and that no `HELPERS` knows ends at once with 0.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from brokerctl.model.puppet import Hit, Puppet
from brokerctl.model.unit import Unit
from brokerctl.model.unit.states import AT_REST
from brokerctl.records import (
    UNIT,
    WRAPPER,
    Arm,
    Booted,
    Cancel,
    Command,
    Effect,
    Event,
    Exited,
    Freeze,
    KillOthers,
    KillProcess,
    Line,
    Notified,
    Populated,
    Returned,
    SpawnFailed,
    Start,
    Systemctl,
)
from brokerctl.records.units import MAIN
from brokerctl.worlds.contract import START_CLIENT, Resolved
from brokerctl.worlds.puppets import part
from brokerctl.worlds.sim.agenda import Agenda

if TYPE_CHECKING:
    from brokerctl.worlds.sim.world import Life

SIGKILL, SIGCONT, SIGSTOP = 9, 18, 19
LEFT_OVER = "left-over"  # the run of a process that has survived its life of the unit; nobody waits for its end
_OWN_CLIENTS = 1_000_000  # clients that processes of the unit start, beyond those of steps


class Main(Protocol):
    """The broker that is the unit's main process, as its world shows it."""

    def start(self) -> None:
        """It begins a life."""

    def signal(self, signum: int) -> None:
        """It gets this signal."""

    def freeze(self, *, frozen: bool) -> None:
        """It does not run until it is thawed."""

    def processes(self) -> int:
        """How many processes of it live, besides itself."""

    def kill_processes(self, signum: int) -> None:
        """Those get this signal."""


class Helper(Protocol):
    """A control process that is a model of its own; it says `service.ended(run, status)` when it is over."""

    def signal(self, signum: int) -> None:
        """It gets this signal."""

    def main_gone(self) -> None:
        """The main process has ended."""


# By the words of a command: who acts it out, made for each run.
HELPERS: dict[str, Callable[[Life, Service, str, Command], Helper]] = {}


class Process:
    """One process of the unit with its children."""

    __slots__ = ("held", "kept", "name", "puppet", "run", "wake")

    def __init__(self, run: str, name: str, puppet: Puppet) -> None:
        self.run = run
        self.name = name
        self.puppet = puppet
        self.held: set[str] = set()  # what keeps it from running: `stopped` by SIGSTOP, `frozen` by the freezer
        self.kept: list[int] = []  # signals that wait until it runs
        self.wake = 0


class Service:
    """The unit of one run."""

    def __init__(self, scenario: Resolved, agenda: Agenda, life: Life, main: Main | None) -> None:
        assert scenario.unit is not None
        self._scenario = scenario
        self._agenda = agenda
        self._life = life
        self._main = main
        self.unit = Unit(scenario.unit.settings)
        self.stop = scenario.unit.stop
        self._number = 0
        self._processes: list[Process] = []
        self._helpers: dict[str, Helper] = {}
        self._drawn: dict[str, int] = {}
        self._waiting: dict[int, Process] = {}  # client → the process that asked
        self._next_client = _OWN_CLIENTS
        self._told_others = 0
        self._carry: dict[type[Effect], Callable[[Any], None]] = {
            Start: self._start,
            KillProcess: lambda order: self.signal(order.run, order.signum),
            KillOthers: self._kill_others,
            Freeze: self._freeze,
            Arm: lambda order: agenda.arm(UNIT, order.timer, order.after_ns, work=True),
            Cancel: lambda order: agenda.cancel(UNIT, order.timer),
            Returned: self._returned,
        }

    def begin(self) -> None:
        """The manager is there, and starts the unit."""
        self._agenda.push(0, UNIT, Booted())
        self._agenda.push(0, UNIT, Systemctl("start", START_CLIENT))

    def is_at_rest(self) -> bool:
        """The unit is inactive or failed, and nobody wants anything of it."""
        return self.unit.state in AT_REST and self.unit.jobs.is_idle()

    # ---- the model

    def deliver(self, event: Event) -> None:
        """Hand an event to the model, then carry out its effects, in order."""
        if not isinstance(event, Populated):
            self.look()
        now_ns, tell, effects = self._agenda.now_ns, self._life.tell, list[Effect]()
        tell(Line(now_ns, UNIT, self._number, "<", event))  # type: ignore[arg-type]
        self._number += 1
        self.unit.handle(now_ns, event, effects)
        for effect in effects:
            tell(Line(now_ns, UNIT, self._number, ">", effect))  # type: ignore[arg-type]
            self._number += 1
        for effect in effects:
            do = self._carry.get(type(effect))
            if do is not None:
                do(effect)

    def look(self) -> None:
        """The control group: the manager is told when what lives in it has changed."""
        others = sum(process.puppet.leaves() for process in self._processes)
        others += sum(process.run not in {MAIN, self.unit.control} for process in self._processes if _lives(process))
        if self._main is not None:
            others += self._main.processes()
        others += self._life.processes.count(WRAPPER)
        if others != self._told_others:
            self._told_others = others
            self.deliver(Populated(others))

    def notified(self, sender: Any, text: str) -> None:  # noqa: ANN401 - a Sender
        """A process of the unit sent a datagram."""
        self._agenda.push(0, UNIT, Notified(sender, text))

    def ended(self, run: str, status: int) -> None:
        """The process of that run is gone."""
        if run == LEFT_OVER:
            return
        self._helpers.pop(run, None)
        self._agenda.push(0, UNIT, Exited(run, status))
        if run == MAIN:
            for helper in self._helpers.values():
                helper.main_gone()
            for process in self._processes:
                self._main_gone(process)

    # ---- orders

    def _start(self, order: Start) -> None:
        command = order.command
        for process in self._processes:
            if process.run == order.run:
                process.run = LEFT_OVER
        if order.run == MAIN and self._main is not None:
            self._main.start()
            return
        make = None if command.puppet else _helper(command.text)
        if make is not None:
            self._helpers[order.run] = make(self._life, self, order.run, command)
            return
        if not command.puppet:
            self.ended(order.run, 0)
            return
        nth = self._drawn.get(command.puppet, 0)
        self._drawn[command.puppet] = nth + 1
        acts = part(self._scenario.puppets[command.puppet], self._scenario.seed, 0, nth)
        if acts.start_errno:
            self._agenda.push(0, UNIT, SpawnFailed(order.run, acts.start_errno))
            return
        process = Process(order.run, command.puppet, Puppet(acts, self._agenda.now_ns))
        if self.unit.frozen:
            process.held.add("frozen")
        self._processes.append(process)
        self._schedule(process)

    def _find(self, run: str) -> Process | None:
        return next((one for one in self._processes if one.run == run and _lives(one)), None)

    def signal(self, run: str, signum: int) -> None:
        """That process gets a signal, not its children."""
        if run == MAIN and self._main is not None:
            if self.unit.main:
                self._main.signal(signum)
            return
        helper = self._helpers.get(run)
        if helper is not None:
            helper.signal(signum)
            return
        process = self._find(run)
        if process is not None:
            self._hit(process, signum)

    def _hit(self, process: Process, signum: int) -> None:
        if signum in {SIGSTOP, SIGCONT}:
            self._hold(process, "stopped", on=signum == SIGSTOP)
        elif process.held and signum != SIGKILL:
            process.kept.append(signum)
        else:
            process.held.clear()
            process.puppet.signal(self._agenda.now_ns, signum, "process")
            self._schedule(process, now=True)

    def _hold(self, process: Process, why: str, *, on: bool) -> None:
        """Keep it from running, or let it run if nothing else keeps it."""
        if on:
            process.held.add(why)
            self._unschedule(process)
            return
        process.held.discard(why)
        if process.held:
            return
        for signum in process.kept:
            process.puppet.signal(self._agenda.now_ns, signum, "process")
        process.kept.clear()
        self._schedule(process, now=True)

    def _kill_others(self, order: KillOthers) -> None:
        control = self.unit.control
        for process in tuple(self._processes):
            process.puppet.signal_leaves(order.signum)
            if process.run not in {MAIN, control} and _lives(process):
                process.puppet.signal(self._agenda.now_ns, order.signum, "process")
            self._schedule(process, now=True)
        if self._main is not None:
            self._main.kill_processes(order.signum)
        self._life.processes.signal_all(WRAPPER, order.signum)

    def _freeze(self, order: Freeze) -> None:
        for process in self._processes:
            self._hold(process, "frozen", on=order.frozen)
        if self._main is not None:
            self._main.freeze(frozen=order.frozen)

    def _returned(self, order: Returned) -> None:
        process = self._waiting.pop(order.client, None)
        if process is not None and _lives(process):
            process.puppet.answer(self._agenda.now_ns, process.puppet.status if order.rc == 0 else order.rc << 8)
            self._schedule(process, now=True)

    # ---- processes

    def _schedule(self, process: Process, *, now: bool = False) -> None:
        self._unschedule(process)
        due_ns = self._agenda.now_ns if now else process.puppet.due()
        if due_ns is not None and not process.held:
            process.wake = self._agenda.push(max(0, due_ns - self._agenda.now_ns), UNIT, lambda: self._advance(process))

    def _unschedule(self, process: Process) -> None:
        if process.wake:
            self._agenda.drop(UNIT, process.wake)
            process.wake = 0

    def _advance(self, process: Process) -> None:
        """Its time has come: what it has done, and whether it has ended."""
        process.wake = 0
        puppet = process.puppet
        happened: Sequence[str] = puppet.advance(self._agenda.now_ns)
        if puppet.acts:
            self._acts(process)
        if "asked" in happened:
            self._asks(process)
        if "exited" in happened:
            self.ended(process.run, puppet.status)
        if puppet.lives() or puppet.leaves():
            if not process.wake:
                self._schedule(process)
        else:
            self._processes.remove(process)
        self.look()

    def _acts(self, process: Process) -> None:
        acts, process.puppet.acts = process.puppet.acts, []
        sender = "main" if process.run == MAIN else "control"
        for act in acts:
            if isinstance(act, Hit):
                self.signal(MAIN, act.signum)
            else:
                self.notified("child" if act.child else sender, act.text)

    def _asks(self, process: Process) -> None:
        what, *words = self._scenario.puppets[process.name].asks
        if what == "systemctl":
            self._next_client += 1
            self._waiting[self._next_client] = process
            self._agenda.push(0, UNIT, Systemctl(words[0], self._next_client))
        elif not self.unit.main:
            self._main_gone(process, asked=True)

    def _main_gone(self, process: Process, *, asked: bool = False) -> None:
        """Who waits for the end of main goes on."""
        what = self._scenario.puppets[process.name].asks[:1]
        if what == ("main-gone",) and (asked or process.puppet.is_asking()):
            process.puppet.answer(self._agenda.now_ns, process.puppet.status)
            self._schedule(process, now=True)


def _helper(text: str) -> Callable[[Life, Service, str, Command], Helper] | None:
    """Who acts out that command: `brokerctl stop`, `/usr/bin/python3 -I -m brokerctl stop`; nobody its `--post`."""
    for words, make in HELPERS.items():
        if re.search(rf"(?:^|[\s/]){re.escape(words)}(?!\S)", text) and "--post" not in text.split():
            return make
    return None


def _lives(process: Process) -> bool:
    return process.puppet.lives()
