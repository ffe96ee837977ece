"""The simulator's peer: the same brokers, links and processes, but SimPy keeps the queue of what is to come.

Everything above the queue is the simulator's own, so both do the same work, which a test compares. SimPy is used in two
ways: as its tutorial does, with a process and a mailbox (a Store) for each rank, and in the leanest way that there is,
with nothing but Timeouts and their callbacks.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from unittest import mock

import simpy

from brokerctl.records import Fired
from brokerctl.worlds.sim import world
from brokerctl.worlds.sim.agenda import Agenda


class SimpyQueue(Agenda):
    """The agenda with SimPy's environment in the place of its own queue; SimPy too keeps equal times in order."""

    def __init__(self) -> None:
        super().__init__()
        self._environment = simpy.Environment()
        self._due: tuple | None = None

    def _enqueue(self, delay_ns: int, entry: tuple) -> None:
        timeout = simpy.Timeout(self._environment, delay_ns, entry)
        timeout.callbacks.append(self._comes)

    def _comes(self, timeout: simpy.Event) -> None:
        self._due = timeout.value

    def push(self, delay_ns: int, rank: int, item: object, *, work: bool = True) -> int:
        self._order = order = self._order + 1
        if work:
            self.pending += 1
        elif type(item) is not Fired:
            self._idle.add(order)
        self._enqueue(delay_ns, (order, rank, item))
        return order

    def next(self) -> tuple[int, object] | None:
        while self.pending:
            self._due = None
            while self._due is None:
                self._environment.step()
            order, rank, item = self._due
            if order in self._dropped:
                self._dropped.remove(order)
                continue
            self.now_ns = self._environment.now
            work = not self._idle or order not in self._idle
            if type(item) is Fired:
                work = self._timers[rank, item.timer][1]
                if rank not in self._kept:
                    del self._timers[rank, item.timer]
            self.pending -= work
            if rank in self._kept:
                self._kept[rank][order] = (item, work)
                continue
            return rank, item
        return None

    def thaw(self, rank: int) -> None:
        for order, (item, work) in self._kept.pop(rank, {}).items():
            self.pending += work
            self._enqueue(0, (order, rank, item))


class SimpyProcesses(SimpyQueue):
    """Each rank is a process that waits at its mailbox."""

    def __init__(self) -> None:
        super().__init__()
        self._mailboxes: dict[int, simpy.Store] = {}

    def _comes(self, timeout: simpy.Event) -> None:
        rank = timeout.value[1]
        mailbox = self._mailboxes.get(rank)
        if mailbox is None:
            mailbox = self._mailboxes[rank] = simpy.Store(self._environment)
            self._environment.process(self._broker(mailbox))
        mailbox.put(timeout.value)

    def _broker(self, mailbox: simpy.Store) -> Generator[simpy.Event, tuple, None]:
        while True:
            self._due = yield mailbox.get()


AGENDAS = {"sim": Agenda, "simpy": SimpyProcesses, "simpy-queue": SimpyQueue}


@contextmanager
def queue_of(name: str) -> Iterator[None]:
    """Within, simulations run on that agenda."""
    with mock.patch.object(world, "Agenda", AGENDAS[name]):
        yield
