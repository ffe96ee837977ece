"""Virtual time: one agenda of integer nanoseconds, modelled processes and links, no operating system.

The same scenario and seed give the same trace. Where nothing is pending any more and a broker still lives, the run is
*stuck* at once: what would be a hang for ever is found in the moment that it arises. Reminders keep nothing going.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from brokerctl.model.node import Node
from brokerctl.model.tree import Tree
from brokerctl.records import (
    UNIT,
    Arm,
    Asked,
    Booted,
    Cancel,
    Contacted,
    Effect,
    Event,
    Exit,
    Hangup,
    Line,
    Lost,
    Notify,
    Received,
    Responsive,
    Restored,
    Send,
    Store,
    Torpid,
)
from brokerctl.records.units import MAIN
from brokerctl.worlds.contract import Capability, Deliver, Fault, Outcome, Release, Resolved, SignalProcess, Sink, Step
from brokerctl.worlds.sim.agenda import Agenda
from brokerctl.worlds.sim.leader import Leader
from brokerctl.worlds.sim.links import Links
from brokerctl.worlds.sim.processes import Process, Processes
from brokerctl.worlds.sim.unit import HELPERS, Service
from brokerctl.worlds.sim.wrapper import Wrapper

SIGKILL = 9
HELPERS["brokerctl stop"] = Wrapper


class SimWorld:
    """The world of virtual time."""

    name = "sim"
    capabilities: frozenset[Capability] = frozenset(
        {"virtual-time", "ranks", "uninterruptible", "panic", "jobs", "unit", "half-open", "slow-links", "restart"}
    )

    def run(self, scenario: Resolved, sink: Sink, horizon_ns: int, wants: frozenset[type] | None = None) -> Outcome:
        """Run it to its end, to quiescence, or to the horizon."""
        # A big instance is hundreds of thousands of objects that all live to its end: collecting them is wasted time.
        collecting = gc.isenabled()
        gc.disable()
        try:
            return Life(scenario, sink, horizon_ns, wants).run()
        finally:
            if collecting:
                gc.enable()


class Life:
    """One run of one scenario: its brokers, the unit that the leader may be in, and their processes."""

    def __init__(self, scenario: Resolved, sink: Sink, horizon_ns: int, wants: frozenset[type] | None) -> None:
        self._tree = Tree(scenario.topology)
        self._scenario = scenario
        self._sink = sink
        self._wants = wants
        self._horizon_ns = horizon_ns
        self._size = self._tree.size if scenario.has_brokers() else 0
        self._nodes = [Node(rank, scenario.settings, self._tree) for rank in range(self._size)]
        self._numbers = [0] * self._tree.size
        self.agenda = Agenda()
        # Who is no broker, by its rank: the unit, and what its control processes are.
        self.beside: dict[int, Callable[[Event], None]] = {}
        self._links = Links(scenario.topology.parents, scenario.settings)
        self.processes = Processes(scenario, self.agenda)
        self._steps = list(scenario.steps)
        self._waiting = list(scenario.steps)  # those that a line decides
        self.stored = dict(scenario.restored)
        self._exits: dict[int, int] = {}
        self._crashed: set[int] = set()
        self._frozen: dict[int, int] = {}  # since when
        self._torpid: set[int] = set()  # told as silent to their parents
        self._carry: dict[type[Effect], Callable[[int, Any], None]] = {
            Arm: self._arm,
            Cancel: self._cancel,
            Send: self._send,
            Hangup: self._hangup,
            Exit: self._exit,
            Store: self._store,
            Notify: self._notify,
            **self.processes.carry,
        }
        self._service: Service | None = None
        if scenario.unit is not None:
            leader = Leader(self) if self._size else None
            self._service = Service(scenario, self.agenda, self, leader)
            self.beside[UNIT] = self._service.deliver

    def run(self) -> Outcome:
        """From the first event to the last."""
        agenda = self.agenda
        self._begin()
        while self._goes_on():
            entry = agenda.next()
            if entry is None:
                return self._outcome("ended" if self._is_over() else "stuck")
            if agenda.now_ns > self._horizon_ns:
                agenda.now_ns = self._horizon_ns
                return self._outcome("horizon")
            rank, item = entry
            if isinstance(item, Event):
                if rank >= 0:
                    self._deliver(rank, item)
                else:
                    self._beside(rank, item)
            elif isinstance(item, Process):
                self.processes.advance(item, self._deliver if item.rank >= 0 else self._beside)
                if self._service is not None and item.rank <= 0:
                    self._service.look()
            elif isinstance(item, Step):
                self._do(item)
            else:
                item()
        return self._outcome("ended")

    def _begin(self) -> None:
        agenda = self.agenda
        if self._service is None:
            for rank in range(self._size):
                agenda.push(0, rank, Booted())
            for key, value in self.stored.items():
                agenda.push(0, 0, Restored(key, value))
        else:  # the leader begins when its unit starts it
            self._service.begin()
            for rank in range(1, self._size):
                agenda.push(0, rank, Booted())
        for step in self._steps:
            delay_ns = step.trigger.begin()
            if delay_ns is not None:
                self._waiting.remove(step)
                agenda.push(delay_ns, -1, step)

    def _goes_on(self) -> bool:
        """Something may happen that anybody waits for. A unit may start its broker again."""
        return self._service is not None or len(self._exits) + len(self._crashed) < self._size or self._restart_comes()

    def _is_over(self) -> bool:
        """Nothing is pending, as it should be."""
        if self._service is None:
            return self._only_frozen()
        alive = (rank for rank in range(self._size) if self.lives(rank))
        return self._service.is_at_rest() and all(map(self.agenda.is_frozen, alive))

    def _restart_comes(self) -> bool:
        """Nobody lives, but a crashed rank shall have another life."""
        deeds = [step.deed for step in self._steps]
        return any(
            isinstance(deed, Fault) and deed.kind == "restart" and not self._crashed.isdisjoint(deed.ranks)
            for deed in deeds
        )

    def _only_frozen(self) -> bool:
        """The leader has ended, and who has not is frozen for good: it will never do anything more."""
        alive = [rank for rank in range(self._size) if self.lives(rank)]
        return 0 not in alive and all(map(self.agenda.is_frozen, alive))

    def _outcome(self, kind: Literal["ended", "stuck", "horizon"]) -> Outcome:
        undone = tuple(step.text for step in self._steps)
        return Outcome(kind, self.agenda.now_ns, dict(self._exits), undone, dict(self.stored))

    def has_brokers(self) -> bool:
        """There are brokers, not only a unit's processes."""
        return bool(self._nodes)

    def node(self, rank: int) -> Node:
        """A rank's model."""
        return self._nodes[rank]

    def lives(self, rank: int) -> bool:
        """The rank's broker has neither exited nor crashed."""
        return rank not in self._exits and rank not in self._crashed

    # ---- the model

    def _beside(self, rank: int, event: Event) -> None:
        self.beside[rank](event)

    def _deliver(self, rank: int, event: Event) -> None:
        """Hand an event to a rank's model, then carry out its effects, in order."""
        if rank in self._exits or rank in self._crashed:
            return
        now_ns, wants, carry, number = self.agenda.now_ns, self._wants, self._carry, self._numbers[rank]
        effects: list[Effect] = []
        all_wanted = wants is None or bool(self._waiting)
        tell = self.tell if self._waiting else self._sink
        if all_wanted or type(event) in wants:  # type: ignore[operator]
            tell(Line(now_ns, rank, number, "<", event))  # type: ignore[arg-type]
        self._nodes[rank].handle(now_ns, event, effects)
        for effect in effects:
            number += 1
            kind = type(effect)
            if all_wanted or kind in wants:  # type: ignore[operator]
                tell(Line(now_ns, rank, number, ">", effect))  # type: ignore[arg-type]
            do = carry.get(kind)
            if do is not None:
                do(rank, effect)
        self._numbers[rank] = number + 1

    def tell(self, line: Line) -> None:
        """Write a line, if anybody wants its kind; steps may wait for it."""
        if self._wants is None or type(line.what) in self._wants:
            self._sink(line)
        for step in tuple(self._waiting):
            delay_ns = step.trigger.see(line)
            if delay_ns is not None:
                self._waiting.remove(step)
                self.agenda.push(delay_ns, -1, step)

    # ---- effects

    def _arm(self, rank: int, order: Arm) -> None:
        self.agenda.arm(rank, order.timer, order.after_ns, work=not order.reminder)

    def _cancel(self, rank: int, order: Cancel) -> None:
        self.agenda.cancel(rank, order.timer)

    def _send(self, rank: int, order: Send) -> None:
        delay_ns = self._links.delay_ns(self._links.between(rank, order.neighbour))
        if delay_ns is not None:
            self.agenda.push(delay_ns, order.neighbour, Received(rank, order.message))

    def _hangup(self, rank: int, order: Hangup) -> None:
        # The other end was told by the message before; where that got lost, it is silence that tells.
        links, link = self._links, self._links.between(rank, order.neighbour)
        if links.delay_ns(link) is not None:
            links.child_knows.add(link)
        links.learn(rank, link)

    def _store(self, rank: int, order: Store) -> None:
        if rank == 0:
            self.stored[order.key] = order.value

    def _notify(self, rank: int, order: Notify) -> None:
        if rank == 0 and self._service is not None:
            self._service.notified("main", order.text)

    def _exit(self, rank: int, order: Exit) -> None:
        self._exits[rank] = order.code
        self._gone(rank, order.code << 8)

    # ---- losses

    def _gone(self, rank: int, status: int) -> None:
        """A broker process has ended, with that wait status: whoever is still connected to it will notice."""
        self.agenda.forget(rank)
        self._frozen.pop(rank, None)
        self._torpid.discard(rank)
        if rank == 0 and self._service is not None:
            self._service.ended(MAIN, status)
        parent = self._links.parents[rank]
        if parent >= 0:
            self._links.closed.add(rank)
            self._notice(parent, rank, rank)
        for child in self._tree.children[rank]:
            self._links.closed.add(child)
            self._notice(child, rank, child)

    def _notice(self, rank: int, peer: int, link: int) -> None:
        """The link is closed: that end learns it in its time, if it doesn't know and lives then."""
        links = self._links
        knows = links.child_knows if rank == link else links.parent_knows
        if link in knows or link in links.half_open or not self.lives(rank):
            return
        delay_ns = links.parent_loss_ns() if rank == link else links.child_loss_ns(self.agenda.now_ns)
        if delay_ns is not None:
            self.agenda.push(delay_ns, rank, lambda: self._lose(rank, peer, link, silent=False))

    def _lose(self, rank: int, peer: int, link: int, *, silent: bool) -> None:
        if (silent or link in self._links.closed) and self._links.learn(rank, link):
            self._deliver(rank, Lost(peer, self._links.why(silent=silent)))

    def _silence(self, rank: int, is_silent: Callable[[], bool]) -> None:
        """The link to a rank's parent stands but nothing comes: the child gives up after its heartbeat.timeout."""
        parent, delay_ns = self._links.parents[rank], self._links.silence_ns()

        def give_up() -> None:
            if is_silent():
                self._lose(rank, parent, rank, silent=True)

        if delay_ns is not None:
            self.agenda.push(delay_ns, rank, give_up)

    # ---- steps

    def _do(self, step: Step) -> None:
        self._steps.remove(step)
        deed = step.deed
        match deed:
            case Deliver(rank, event):
                if isinstance(event, Asked):
                    event = msgspec.structs.replace(event, reply=self.processes.next_reply())
                self.agenda.push(0, rank, event)
            case Release(puppet):
                self.processes.release(puppet)
            case Fault(kind, ranks, delay_ns):
                for rank in ranks:
                    self._fault(kind, rank, delay_ns)
            case SignalProcess(whom, signum):
                assert self._service is not None
                self._service.signal(MAIN if whom == "main" else self._service.unit.control, signum)

    def _fault(self, kind: str, rank: int, delay_ns: int) -> None:
        links = self._links
        match kind:
            case "crash" if self.lives(rank):
                self.crash(rank, SIGKILL)
            case "freeze" if self.lives(rank):
                self.freeze(rank)
            case "thaw":
                self.thaw(rank)
            case "restart" if rank in self._crashed:
                self.restart(rank)
            case "slow":
                links.slow[rank] = delay_ns
            case "half-open" if rank not in links.half_open:
                links.half_open[rank] = since_ns = self.agenda.now_ns
                self._silence(rank, lambda: links.half_open.get(rank) == since_ns)
            case "cut":
                self._cut(rank)
            case "heal":
                links.heal(rank)
            case _:
                pass  # a rank that is gone already has nothing left to break

    def _cut(self, rank: int) -> None:
        """The link ends; both ends notice in their time."""
        parent = self._links.parents[rank]
        self._links.closed.add(rank)
        self._notice(parent, rank, rank)
        self._notice(rank, parent, rank)

    def crash(self, rank: int, status: int) -> None:
        """A broker dies, with that wait status."""
        if self.lives(rank):
            self._crashed.add(rank)
            self._gone(rank, status)

    def freeze(self, rank: int) -> None:
        """A broker is stopped (SIGSTOP)."""
        agenda, links = self.agenda, self._links
        if rank in self._frozen:
            return
        agenda.freeze(rank)
        self._frozen[rank] = since_ns = agenda.now_ns

        def is_silent() -> bool:
            return self._frozen.get(rank) == since_ns

        for child in self._tree.children[rank]:
            self._silence(child, is_silent)
        torpid_ns = self._scenario.settings.torpid_max_ns
        if rank and torpid_ns is not None:

            def torpid() -> None:
                if is_silent() and rank not in links.closed:
                    self._torpid.add(rank)
                    self._deliver(links.parents[rank], Torpid(rank, torpid_ns))

            agenda.push(torpid_ns, links.parents[rank], torpid, work=False)

    def thaw(self, rank: int) -> None:
        """A broker that was stopped goes on."""
        self.agenda.thaw(rank)
        self._frozen.pop(rank, None)
        if rank in self._torpid and rank not in self._links.closed:
            self.agenda.push(0, self._links.parents[rank], Responsive(rank), work=False)
        self._torpid.discard(rank)

    def restart(self, rank: int) -> None:
        """A new life on that rank: children of the old one are heard within a heartbeat, and must start anew."""
        links, agenda = self._links, self.agenda
        self._crashed.discard(rank)
        self._exits.pop(rank, None)
        self.processes.orphan(rank)
        agenda.renew(rank)
        links.reopen(rank)
        self._nodes[rank] = Node(rank, self._scenario.settings, self._tree)
        agenda.push(0, rank, Booted())
        if rank == 0:
            for key, value in self.stored.items():
                agenda.push(0, 0, Restored(key, value))
        for child in self._tree.children[rank]:
            if child not in links.child_knows and self.lives(child):
                links.reopen(child)
                agenda.push(links.child_loss_ns(agenda.now_ns), rank, Contacted(child))
