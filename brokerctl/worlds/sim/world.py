"""Virtual time: one queue of integer nanoseconds, modelled processes and links, no operating system.

The same scenario and seed give the same trace. Where nothing is pending any more and a broker still lives, the run is
*stuck* at once: what would be a hang for ever is found in the moment that it arises. Reminders keep nothing going.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

import msgspec

from brokerctl.model.node import Node
from brokerctl.model.puppet import Puppet
from brokerctl.model.tree import Tree
from brokerctl.model.words import ESRCH
from brokerctl.records import (
    Abandon,
    Arm,
    Asked,
    Booted,
    Cancel,
    CloseOutput,
    Effect,
    Emptied,
    Event,
    Exit,
    Exited,
    Fired,
    Kill,
    KillFailed,
    Line,
    Output,
    OutputEnded,
    Received,
    Send,
    SpawnFailed,
    Start,
)
from brokerctl.worlds.contract import Capability, Deliver, Outcome, Resolved, Sink, Step
from brokerctl.worlds.puppets import part

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal

LINK_NS = 100_000  # a message to a neighbour: 0.1 ms


class SimWorld:
    """The world of virtual time."""

    name = "sim"
    capabilities: frozenset[Capability] = frozenset({"virtual-time", "ranks", "uninterruptible", "panic"})

    def run(self, scenario: Resolved, sink: Sink, horizon_ns: int) -> Outcome:
        """Run it to its end, to quiescence, or to the horizon."""
        return _Life(scenario, sink, horizon_ns).run()


class _Process:
    """A puppet that a rank has started, under the name of its run."""

    __slots__ = ("name", "puppet", "rank", "run", "told_output", "wake")

    def __init__(self, rank: int, start: Start, puppet: Puppet) -> None:
        self.rank = rank
        self.run = start.run
        self.puppet = puppet
        self.name = start.command.puppet
        self.told_output = start.command.inherit  # there is none to read
        self.wake = 0  # the order of its entry in the queue, 0 where none is


_Item = Event | _Process | Step


class _Life:
    """One run of one scenario."""

    def __init__(self, scenario: Resolved, sink: Sink, horizon_ns: int) -> None:
        tree = Tree(scenario.topology)
        self._scenario = scenario
        self._sink = sink
        self._horizon_ns = horizon_ns
        self._nodes = [Node(rank, scenario.settings, tree) for rank in range(tree.size)]
        self._numbers = [0] * tree.size
        self._now_ns = 0
        self._queue: list[tuple[int, int, int, _Item]] = []  # time, order, rank, what happens then
        self._order = 0
        self._pending = 0  # entries of the queue that are work: neither stale nor reminders
        self._timers: dict[tuple[int, str], tuple[int, bool]] = {}  # the order of its entry, and whether it is work
        self._processes: dict[tuple[int, str], _Process] = {}
        self._drawn: dict[tuple[int, str], int] = {}  # how many of a puppet a rank has started
        self._steps = list(scenario.steps)
        self._waiting = list(scenario.steps)  # those that a line decides
        self._replies = 0
        self._exits: dict[int, int] = {}

    def run(self) -> Outcome:
        for rank in range(len(self._nodes)):
            self._push(0, rank, Booted())
        for step in self._steps:
            delay_ns = step.trigger.begin()
            if delay_ns is not None:
                self._waiting.remove(step)
                self._push(delay_ns, -1, step)
        while len(self._exits) < len(self._nodes):
            if not self._pending:
                return self._outcome("stuck")
            time_ns, order, rank, item = heappop(self._queue)
            if self._is_stale(order, rank, item):
                continue
            if time_ns > self._horizon_ns:
                self._now_ns = self._horizon_ns
                return self._outcome("horizon")
            self._now_ns = time_ns
            self._happen(rank, item)
        return self._outcome("ended")

    def _outcome(self, kind: Literal["ended", "stuck", "horizon"]) -> Outcome:
        undone = tuple(step.text for step in self._steps)
        return Outcome(kind, self._now_ns, dict(self._exits), undone)

    # ---- the queue

    def _push(self, delay_ns: int, rank: int, item: _Item, *, work: bool = True) -> int:
        self._order += 1
        self._pending += work
        heappush(self._queue, (self._now_ns + delay_ns, self._order, rank, item))
        return self._order

    def _is_stale(self, order: int, rank: int, item: _Item) -> bool:
        """Whether a popped entry was cancelled meanwhile; if not, it is pending no more."""
        if type(item) is Fired:
            key = (rank, item.timer)
            armed = self._timers.get(key)
            if armed is None or armed[0] != order:
                return True
            del self._timers[key]
            self._pending -= armed[1]
            return False
        if type(item) is _Process:
            if item.wake != order:
                return True
            item.wake = 0
        self._pending -= 1
        return False

    def _happen(self, rank: int, item: _Item) -> None:
        if isinstance(item, _Process):
            self._advance(item)
        elif isinstance(item, Step):
            self._do(item)
        else:
            self._deliver(rank, item)

    # ---- the model

    def _deliver(self, rank: int, event: Event) -> None:
        """Hand an event to a rank's model, then carry out its effects, in order."""
        if rank in self._exits:
            return
        self._tell(rank, "<", event)
        effects: list[Effect] = []
        self._nodes[rank].handle(self._now_ns, event, effects)
        for effect in effects:
            self._tell(rank, ">", effect)
            carry = _CARRY.get(type(effect))
            if carry is not None:
                carry(self, rank, effect)

    def _tell(self, rank: int, direction: Literal["<", ">"], what: Event | Effect) -> None:
        number = self._numbers[rank]
        self._numbers[rank] = number + 1
        line = Line(self._now_ns, rank, number, direction, what)  # type: ignore[arg-type]
        self._sink(line)
        if self._waiting:
            for step in tuple(self._waiting):
                delay_ns = step.trigger.see(line)
                if delay_ns is not None:
                    self._waiting.remove(step)
                    self._push(delay_ns, -1, step)

    # ---- effects

    def _arm(self, rank: int, order: Arm) -> None:
        self._cancel(rank, Cancel(order.timer))
        entry = self._push(order.after_ns, rank, Fired(order.timer), work=not order.reminder)
        self._timers[rank, order.timer] = (entry, not order.reminder)

    def _cancel(self, rank: int, order: Cancel) -> None:
        armed = self._timers.pop((rank, order.timer), None)
        if armed is not None:
            self._pending -= armed[1]

    def _send(self, rank: int, order: Send) -> None:
        parents = self._scenario.topology.parents
        assert parents[rank] == order.neighbour or parents[order.neighbour] == rank, "only neighbours talk"
        self._push(LINK_NS, order.neighbour, Received(rank, order.message))

    def _start(self, rank: int, order: Start) -> None:
        name = order.command.puppet
        nth = self._drawn.get((rank, name), 0)
        self._drawn[rank, name] = nth + 1
        acts = part(self._scenario.puppets[name], self._scenario.seed, rank, nth)
        if acts.start_errno:
            self._push(0, rank, SpawnFailed(order.run, acts.start_errno))
            return
        process = _Process(rank, order, Puppet(acts, self._now_ns))
        self._processes[rank, order.run] = process
        if not order.command.inherit:
            for stream, text in acts.prints:
                self._push(0, rank, Output(order.run, stream, text))
        self._schedule(process)

    def _kill(self, rank: int, order: Kill) -> None:
        process = self._processes.get((rank, order.run))
        if process is None or not process.puppet.signal(self._now_ns, order.signum, order.scope):
            self._push(0, rank, KillFailed(order.run, order.signum, ESRCH))
        if process is not None:
            self._schedule(process, now=True)

    def _close_output(self, rank: int, order: CloseOutput) -> None:
        process = self._processes[rank, order.run]
        process.told_output = True
        self._push(0, rank, OutputEnded(order.run, holder=f"a child of {process.name}"))

    def _abandon(self, rank: int, order: Abandon) -> None:
        process = self._processes.pop((rank, order.run))
        self._unschedule(process)

    def _exit(self, rank: int, order: Exit) -> None:
        self._exits[rank] = order.code

    # ---- processes

    def _schedule(self, process: _Process, *, now: bool = False) -> None:
        self._unschedule(process)
        due_ns = self._now_ns if now else process.puppet.due()
        if due_ns is not None:
            process.wake = self._push(max(0, due_ns - self._now_ns), process.rank, process)

    def _unschedule(self, process: _Process) -> None:
        if process.wake:
            process.wake = 0
            self._pending -= 1

    def _advance(self, process: _Process) -> None:
        rank, run, puppet = process.rank, process.run, process.puppet
        for happening in puppet.advance(self._now_ns):
            if happening == "exited":
                self._deliver(rank, Exited(run, puppet.status))
            elif happening == "emptied":
                self._deliver(rank, Emptied(run))
            elif not process.told_output:
                process.told_output = True
                self._deliver(rank, OutputEnded(run))
        if not process.wake and (rank, run) in self._processes:
            self._schedule(process)

    # ---- steps

    def _do(self, step: Step) -> None:
        self._steps.remove(step)
        deed = step.deed
        if not isinstance(deed, Deliver):
            self._release(deed.puppet)
            return
        event = deed.event
        if isinstance(event, Asked):
            self._replies += 1
            event = msgspec.structs.replace(event, reply=self._replies)
        self._deliver(deed.rank, event)

    def _release(self, name: str) -> None:
        for process in tuple(self._processes.values()):
            if process.name == name:
                process.puppet.release(self._now_ns)
                self._schedule(process, now=True)


_CARRY: dict[type[Effect], Callable[..., None]] = {
    Arm: _Life._arm,
    Cancel: _Life._cancel,
    Send: _Life._send,
    Start: _Life._start,
    Kill: _Life._kill,
    CloseOutput: _Life._close_output,
    Abandon: _Life._abandon,
    Exit: _Life._exit,
}
