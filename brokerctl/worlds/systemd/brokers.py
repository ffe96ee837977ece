"""Brokers of which the leader is the main process of a unit, and the others processes beside it.

All that is done to brokers, and read from them, is the live world's; the unit is a `Service` as of puppets.
"""

from __future__ import annotations

import os
import select
import time
from typing import TYPE_CHECKING, Literal

import msgspec

from brokerctl.records import Exited, Notify, Signal, Start
from brokerctl.records.units import MAIN, Notified
from brokerctl.worlds.contract import Deliver, Fault
from brokerctl.worlds.live.launch import BROKER
from brokerctl.worlds.live.world import Rank, Run
from brokerctl.worlds.systemd.service import LAST_WORDS_NS, Service
from brokerctl.worlds.systemd.stage import Leader, UnitStage

if TYPE_CHECKING:
    from brokerctl.records import Line
    from brokerctl.worlds.contract import Deed, Outcome, Resolved, Sink
    from brokerctl.worlds.live.stage import Stage
    from brokerctl.worlds.systemd.private import PrivateSystemd


class UnitRun(Run):
    """One run of one scenario whose leader lives in a unit."""

    def __init__(self, manager: PrivateSystemd, stage: Stage, scenario: Resolved, sink: Sink, horizon_ns: int) -> None:
        super().__init__(stage, scenario, sink, horizon_ns)
        self._number = 0  # of the leader's lines
        self._quiet_ns = 0  # since when the unit has been down for good
        leader = Leader(stage.argv(0)[len(BROKER) :], f"{self._cookie}:0", stage.stderr(0))
        self._unit_stage = UnitStage(manager, scenario, leader)
        self._service = Service(manager, self._unit_stage, self._poll, self._line)

    def __exit__(self, *exc: object) -> None:
        """End the unit, then the others."""
        try:
            self._service.close()
            self._unit_stage.close()
        finally:
            self._forget_leader()
            super().__exit__(*exc)

    def _forget_leader(self) -> None:
        """It is no child of ours: nobody here may wait for it."""
        for rank in self._ranks[:1]:
            if rank.pidfd >= 0:
                os.close(rank.pidfd)
                rank.pidfd = -1

    def _start(self, number: int) -> None:
        if number:
            super()._start(number)
            return
        self._ranks.append(self._leader())
        self._service.begin()

    def _leader(self) -> Rank:
        """The leader's next life, whose trace is waited for."""
        rank = Rank(0, os.open(self._stage.trace(0), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
        self._fds[rank.fifo] = rank
        self._poll.register(rank.fifo, select.POLLIN)
        return rank

    # ---- the unit beside the brokers

    def _goes_on(self) -> bool:
        if self._due or not self._service.is_over():
            self._quiet_ns = 0
            return True
        self._quiet_ns = self._quiet_ns or time.monotonic_ns()
        return time.monotonic_ns() < self._quiet_ns + LAST_WORDS_NS

    def _next_ns(self) -> int:
        soonest_ns = min(super()._next_ns(), self._service.next_ns())
        return min(soonest_ns, self._quiet_ns + LAST_WORDS_NS) if self._quiet_ns else soonest_ns

    def _beside(self, ready: set[int]) -> None:
        self._service.ready(ready)

    def _line(self, line: Line) -> None:
        if line.rank == 0:  # numbers go on over its lives
            line = msgspec.structs.replace(line, n=self._number)
            self._number += 1
        super()._line(line)
        observer, now_ns = self._service.observer, line.t_ns
        match line.what:
            case Start(run) if run == MAIN and line.rank < 0:
                if self._ranks[0].over:
                    self._ranks[0] = self._leader()
            case Exited(run, status) if run == MAIN and line.rank < 0:
                self._leader_ended(status)
            case Notify(text) if line.rank == 0:
                observer.tell(now_ns, Notified("main", text), "<")
            case Signal(signum) if line.rank == 0:
                observer.signalled(now_ns, signum)
            case _:
                pass

    def _leader_ended(self, status: int) -> None:
        rank = self._ranks[0]
        rank.status = status
        rank.crashed = rank.crashed or os.WIFSIGNALED(status)
        self._forget_leader()
        if rank.fifo >= 0:
            lines = self._ready(rank, rank.fifo)
            if rank.fifo >= 0:  # it was never opened, or somebody else holds it
                fifo = rank.fifo
                self._poll.unregister(fifo)
                del self._fds[fifo]
                rank.close_fifo()
            for line in lines:
                self._line(line)

    def _do(self, deed: Deed) -> None:
        if self._service.do(deed):
            return
        rank = self._ranks[0]
        if rank.pidfd < 0 and rank.lives and self._is_about_leader(deed):
            pid = self._service.pid_of_main()
            if pid:
                rank.pidfd = os.pidfd_open(pid)
        super()._do(deed)

    def _is_about_leader(self, deed: Deed) -> bool:
        return (isinstance(deed, Deliver) and deed.rank == 0) or (isinstance(deed, Fault) and 0 in deed.ranks)

    def _outcome(self, kind: Literal["ended", "stuck", "horizon"], t_ns: int) -> Outcome:
        self._service.finish(t_ns)
        return super()._outcome(kind, t_ns)
