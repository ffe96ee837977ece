"""The processes of virtual time: puppets that ranks have started, stepped by the agenda."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from brokerctl.durations import S
from brokerctl.model.puppet import Part, Puppet, Say
from brokerctl.model.words import ESRCH
from brokerctl.records import (
    Abandon,
    Answer,
    Asked,
    CloseOutput,
    Effect,
    Emptied,
    Event,
    Exited,
    Grown,
    Heard,
    Kill,
    KillFailed,
    Late,
    Output,
    OutputEnded,
    SpawnFailed,
    Start,
    Watch,
)
from brokerctl.worlds.contract import Resolved
from brokerctl.worlds.puppets import part
from brokerctl.worlds.sim.agenda import Agenda


class Process:
    """A puppet that a rank has started, under the name of its run."""

    __slots__ = ("acts", "began_ns", "heard", "name", "puppet", "rank", "run", "told_output", "wake", "watches")

    def __init__(self, rank: int, start: Start, acts: Part, now_ns: int) -> None:
        puppet = Puppet(acts, now_ns)
        self.acts = acts
        self.began_ns = now_ns
        self.heard = start.command.notifies
        self.watches: list[int] = []  # the orders of entries in the agenda: what its watch will find
        self.rank = rank
        self.run = start.run
        self.puppet = puppet
        self.name = start.command.puppet
        self.told_output = start.command.inherit  # there is none to read
        self.wake = 0  # the order of its entry in the agenda; 0 where none is


class Processes:
    """All of them; `carry` has what a world does with the orders that are about processes."""

    def __init__(self, scenario: Resolved, agenda: Agenda) -> None:
        self._scenario = scenario
        self._agenda = agenda
        self._processes: dict[tuple[int, str], Process] = {}
        self._drawn: dict[tuple[int, str], int] = {}  # how many of a puppet a rank has started
        self._asking: dict[int, Process] = {}  # reply → who waits for it
        self._replies = 0
        self.carry: dict[type[Effect], Callable[[int, Any], None]] = {
            Start: self._start,
            Kill: self._kill,
            Watch: self._watch,
            CloseOutput: self._close_output,
            Abandon: self._abandon,
            Answer: self._answer,
        }

    def _start(self, rank: int, order: Start) -> None:
        name, agenda = order.command.puppet, self._agenda
        nth = self._drawn.get((rank, name), 0)
        self._drawn[rank, name] = nth + 1
        acts = part(self._scenario.puppets[name], self._scenario.seed, max(rank, 0), nth)  # the wrapper is the leader's
        if acts.start_errno:
            agenda.push(0, rank, SpawnFailed(order.run, acts.start_errno))
            return
        process = Process(rank, order, acts, agenda.now_ns)
        self._processes[rank, order.run] = process
        if not order.command.inherit:
            for stream, text in acts.prints:
                agenda.push(0, rank, Output(order.run, stream, text))
        self._schedule(process)

    def _kill(self, rank: int, order: Kill) -> None:
        process = self._processes.get((rank, order.run))
        if process is None or not process.puppet.signal(self._agenda.now_ns, order.signum, order.scope):
            self._agenda.push(0, rank, KillFailed(order.run, order.signum, ESRCH))
        if process is not None:
            self._schedule(process, now=True)

    def _watch(self, rank: int, order: Watch) -> None:
        """No beat and no byte is counted one by one: when they will be found missing, or too many, is known at once."""
        process, now_ns = self._processes.get((rank, order.run)), self._agenda.now_ns
        if process is None:
            return
        self._unwatch(process)
        acts = process.acts
        if order.limit_ns is not None and acts.hangs_ns is not None:
            left_ns = process.began_ns + acts.hangs_ns - now_ns
            silent_ns = order.limit_ns if left_ns > 0 else max(order.limit_ns, order.first_ns)
            self._find(process, max(0, left_ns) + silent_ns, Late(order.run, silent_ns))
        if order.memory is not None and acts.leaks:
            at_ns = process.began_ns + order.memory * S // acts.leaks
            self._find(process, max(0, at_ns - now_ns), Grown(order.run, order.memory))

    def _find(self, process: Process, delay_ns: int, event: Late | Grown) -> None:
        def found() -> None:
            process.watches.remove(order)
            self._agenda.push(0, process.rank, event)

        order = self._agenda.push(delay_ns, process.rank, found)
        process.watches.append(order)

    def _unwatch(self, process: Process) -> None:
        while process.watches:
            self._agenda.drop(process.rank, process.watches.pop())

    def _close_output(self, rank: int, order: CloseOutput) -> None:
        process = self._processes[rank, order.run]
        process.told_output = True
        self._agenda.push(0, rank, OutputEnded(order.run, holder=f"a child of {process.name}"))

    def _abandon(self, rank: int, order: Abandon) -> None:
        process = self._processes.pop((rank, order.run))
        self._unschedule(process)
        self._unwatch(process)

    def next_reply(self) -> int:
        """A number for one more asker."""
        self._replies += 1
        return self._replies

    def _answer(self, rank: int, order: Answer) -> None:
        process = self._asking.pop(order.reply, None)
        if process is None or self._processes.get((rank, process.run)) is not process:
            return
        error = order.body.get("error")
        prints = order.body.get("prints", []) if error is None else [["err", error]]
        for stream, text in prints:
            self._agenda.push(0, rank, Output(process.run, stream, text))
        process.puppet.answer(self._agenda.now_ns, process.puppet.status if error is None else 1 << 8)
        self._schedule(process, now=True)

    def _schedule(self, process: Process, *, now: bool = False) -> None:
        self._unschedule(process)
        due_ns = self._agenda.now_ns if now else process.puppet.due()
        if due_ns is not None:
            delay_ns = max(0, due_ns - self._agenda.now_ns)
            process.wake = self._agenda.push(delay_ns, process.rank, process)

    def _unschedule(self, process: Process) -> None:
        if process.wake:
            self._agenda.drop(process.rank, process.wake)
            process.wake = 0

    def advance(self, process: Process, deliver: Callable[[int, Event], None]) -> None:
        """Its time has come: tell what has happened to it."""
        process.wake = 0
        rank, run, puppet = process.rank, process.run, process.puppet
        happened = puppet.advance(self._agenda.now_ns)
        for happening in happened:
            if happening == "asked":
                reply = self.next_reply()
                self._asking[reply] = process
                what, *words = self._scenario.puppets[process.name].asks
                deliver(rank, Asked(what, reply, tuple(words), run))
            elif happening == "acted":
                self._say(process, deliver)
            elif happening == "exited":
                self._unwatch(process)
                deliver(rank, Exited(run, puppet.status))
            elif happening == "emptied":
                deliver(rank, Emptied(run))
            elif not process.told_output:
                process.told_output = True
                deliver(rank, OutputEnded(run))
        if not process.wake and self._processes.get((rank, run)) is process:
            if puppet.is_over():
                del self._processes[rank, run]
            else:
                self._schedule(process)

    def _say(self, process: Process, deliver: Callable[[int, Event], None]) -> None:
        acts, process.puppet.acts = process.puppet.acts, []
        for act in acts:
            if process.heard and isinstance(act, Say) and not act.child and act.text != "WATCHDOG=1":
                deliver(process.rank, Heard(process.run, act.text))

    def orphan(self, rank: int) -> None:
        """What the rank's broker started outlives it, and no later life of it hears of that."""
        for key, process in tuple(self._processes.items()):
            if key[0] == rank:
                self._unschedule(process)
                self._unwatch(process)
                del self._processes[key]

    def count(self, rank: int) -> int:
        """How many processes of that rank live, their children too."""
        return sum(process.puppet.lives() + process.puppet.leaves() for process in self.of(rank))

    def of(self, rank: int) -> list[Process]:
        """What the broker of that rank has started and not forgotten."""
        return [process for (each, _run), process in self._processes.items() if each == rank]

    def signal(self, process: Process, signum: int) -> None:
        """Signal one from outside, not by its broker."""
        process.puppet.signal(self._agenda.now_ns, signum, "group")
        self._schedule(process, now=True)

    def signal_all(self, rank: int, signum: int) -> None:
        """Signal all that count."""
        for key, process in tuple(self._processes.items()):
            if key[0] == rank:
                process.puppet.signal(self._agenda.now_ns, signum, "all")
                self._schedule(process, now=True)

    def release(self, name: str) -> None:
        """Uninterruptible processes of that puppet are interruptible again."""
        for process in tuple(self._processes.values()):
            if process.name == name:
                process.puppet.release(self._agenda.now_ns)
                self._schedule(process, now=True)
