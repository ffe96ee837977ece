"""The processes of virtual time: puppets that ranks have started, stepped by the agenda."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from brokerctl.model.puppet import Puppet
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
    Kill,
    KillFailed,
    Output,
    OutputEnded,
    SpawnFailed,
    Start,
)
from brokerctl.worlds.contract import Resolved
from brokerctl.worlds.puppets import part
from brokerctl.worlds.sim.agenda import Agenda


class Process:
    """A puppet that a rank has started, under the name of its run."""

    __slots__ = ("name", "puppet", "rank", "run", "told_output", "wake")

    def __init__(self, rank: int, start: Start, puppet: Puppet) -> None:
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
            CloseOutput: self._close_output,
            Abandon: self._abandon,
            Answer: self._answer,
        }

    def _start(self, rank: int, order: Start) -> None:
        name, agenda = order.command.puppet, self._agenda
        nth = self._drawn.get((rank, name), 0)
        self._drawn[rank, name] = nth + 1
        acts = part(self._scenario.puppets[name], self._scenario.seed, rank, nth)
        if acts.start_errno:
            agenda.push(0, rank, SpawnFailed(order.run, acts.start_errno))
            return
        process = Process(rank, order, Puppet(acts, agenda.now_ns))
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

    def _close_output(self, rank: int, order: CloseOutput) -> None:
        process = self._processes[rank, order.run]
        process.told_output = True
        self._agenda.push(0, rank, OutputEnded(order.run, holder=f"a child of {process.name}"))

    def _abandon(self, rank: int, order: Abandon) -> None:
        self._unschedule(self._processes.pop((rank, order.run)))

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
            elif happening == "exited":
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

    def orphan(self, rank: int) -> None:
        """What the rank's broker started outlives it, and no later life of it hears of that."""
        for key, process in tuple(self._processes.items()):
            if key[0] == rank:
                self._unschedule(process)
                del self._processes[key]

    def release(self, name: str) -> None:
        """Uninterruptible processes of that puppet are interruptible again."""
        for process in tuple(self._processes.values()):
            if process.name == name:
                process.puppet.release(self._agenda.now_ns)
                self._schedule(process, now=True)
