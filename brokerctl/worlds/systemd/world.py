"""The world of a real service manager: a scenario's unit as a real unit of a private systemd.

The unit's processes are puppets, or the leader's broker and the wrapper of its stop. Steps are real systemctl(1) calls.
One manager serves all runs of this process, one after the other; a run that leaves it busy, or takes it down, costs the
next one a boot.
"""

from __future__ import annotations

import atexit
import select
import tempfile
import time
from contextlib import closing
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Literal

from brokerctl.errors import KernelError
from brokerctl.records import Booted
from brokerctl.worlds.contract import Capability, Outcome, Resolved, Sink
from brokerctl.worlds.live.stage import Stage
from brokerctl.worlds.live.world import only
from brokerctl.worlds.systemd.brokers import UnitRun
from brokerctl.worlds.systemd.private import PrivateSystemd, unsupported
from brokerctl.worlds.systemd.service import LAST_WORDS_NS, Service
from brokerctl.worlds.systemd.stage import UnitStage

if TYPE_CHECKING:
    from brokerctl.records import Line
    from brokerctl.worlds.contract import Step

# Each is a process of 20 MB.
RANKS_MAX = 64


class SystemdWorld:
    """The world of a real systemd, version and all."""

    name = "systemd"
    capabilities: frozenset[Capability] = frozenset({"real-processes", "ranks", "jobs", "unit"})

    def run(self, scenario: Resolved, sink: Sink, horizon_ns: int, wants: frozenset[type] | None = None) -> Outcome:
        """Run it to its end, or to the horizon; KernelError where the manager can't be had, or broke down."""
        manager = _manager()
        try:
            if scenario.has_brokers():
                return _run_brokers(manager, scenario, only(wants, sink), horizon_ns)
            return _run_puppets(manager, scenario, only(wants, sink), horizon_ns)
        finally:
            _tidy(manager)


def _run_brokers(manager: PrivateSystemd, scenario: Resolved, sink: Sink, horizon_ns: int) -> Outcome:
    stage = Stage(scenario)
    try:
        with UnitRun(manager, stage, scenario, sink, horizon_ns) as run:
            return run.run()
    finally:
        stage.close()


def _run_puppets(manager: PrivateSystemd, scenario: Resolved, sink: Sink, horizon_ns: int) -> Outcome:
    stage, poll = UnitStage(manager, scenario), select.poll()
    try:
        run = _Run(poll, scenario, sink, horizon_ns)
        with closing(Service(manager, stage, poll, run.line)) as service:
            return run.run(service)
    finally:
        stage.close()


def unfit(scenario: Resolved) -> str:
    """Why this world can't run the scenario, here; or nothing."""
    if scenario.unit is None:
        return "world systemd runs scenarios with a [unit]"
    if len(scenario.topology.parents) > RANKS_MAX:
        return f"world systemd runs at most {RANKS_MAX} brokers"
    reason = unsupported()
    return f"no private systemd: {reason}" if reason else ""


_shared: PrivateSystemd | None = None


def _manager() -> PrivateSystemd:
    """The manager of this process's runs; it shares the directory for temporary files, where brokers have theirs."""
    global _shared  # noqa: PLW0603 - a boot takes longer than many a run
    folder = tempfile.gettempdir()
    if _shared is not None and not _sees(_shared, folder):
        _close()
    if _shared is None:
        _shared = PrivateSystemd([folder], log_level="debug")
        atexit.register(_close)
    return _shared


def _sees(manager: PrivateSystemd, folder: str) -> bool:
    try:
        return manager.path(folder).samefile(folder)
    except (OSError, KernelError):
        return False


def _tidy(manager: PrivateSystemd) -> None:
    """Leave nothing to the next run, in the manager or of it."""
    try:
        busy = manager.is_busy()
        if not busy:
            manager.forget()
    except KernelError:
        busy = True
    if busy:
        _close()


def _close() -> None:
    global _shared
    if _shared is not None:
        manager, _shared = _shared, None
        atexit.unregister(_close)
        manager.close()


class _Run:
    """One run of one scenario whose unit's main process is a puppet."""

    def __init__(self, poll: select.poll, scenario: Resolved, sink: Sink, horizon_ns: int) -> None:
        self._poll = poll
        self._sink = sink
        self._scenario = scenario
        self._horizon_ns = horizon_ns
        self._last_ns = 0
        self._steps = list(scenario.steps)  # those whose moment has not come yet
        self._due: list[tuple[int, int, Step]] = []

    def run(self, service: Service) -> Outcome:
        """Start the unit, and do what is due until it is down for good or the time is up."""
        deadline_ns = time.monotonic_ns() + self._horizon_ns
        service.begin()
        quiet_ns = 0  # since when nothing is to be done any more
        while True:
            now_ns = time.monotonic_ns()
            self._do_due(service, now_ns)
            if self._due or not service.is_over():
                quiet_ns = 0
            elif not quiet_ns:
                quiet_ns = now_ns
            elif now_ns >= quiet_ns + LAST_WORDS_NS:
                return self._outcome(service, "ended", self._last_ns)
            if now_ns >= deadline_ns:
                return self._outcome(service, "horizon", deadline_ns)
            next_ns = min(
                [deadline_ns, service.next_ns(), *(max(due_ns, now_ns + 1) for due_ns, _, _ in self._due[:1])]
            )
            if quiet_ns:
                next_ns = min(next_ns, quiet_ns + LAST_WORDS_NS)
            service.ready({fd for fd, _ in self._poll.poll(max(0, -(-(next_ns - now_ns) // 1_000_000)))})

    def line(self, line: Line) -> None:
        """Take in the next line."""
        if isinstance(line.what, Booted):
            for step in self._steps.copy():
                self._schedule(step, line.t_ns, step.trigger.begin())
        self._last_ns = line.t_ns
        self._sink(line)
        for step in self._steps.copy():
            self._schedule(step, line.t_ns, step.trigger.see(line))

    def _schedule(self, step: Step, from_ns: int, delay_ns: int | None) -> None:
        if delay_ns is not None:
            self._steps.remove(step)
            heappush(self._due, (from_ns + delay_ns, len(self._scenario.steps) - len(self._steps), step))

    def _do_due(self, service: Service, now_ns: int) -> None:
        while self._due and self._due[0][0] <= now_ns and service.is_ready():
            deed = heappop(self._due)[2].deed
            if not service.do(deed):
                raise KernelError(f"{self._scenario.name}: {deed!r} can't be done to a real unit")

    def _outcome(self, service: Service, kind: Literal["ended", "horizon"], t_ns: int) -> Outcome:
        service.finish(t_ns)
        left = {id(step) for step in self._steps} | {id(step) for _, _, step in self._due}
        undone = tuple(step.text for step in self._scenario.steps if id(step) in left)
        return Outcome(kind, t_ns, {}, undone)
