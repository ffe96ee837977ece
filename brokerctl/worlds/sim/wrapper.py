"""`brokerctl stop` in virtual time: its model, and a helper that never fails, asking the simulated brokers.

Only main can keep it waiting: a frozen leader answers nothing. A process that holds CLEANUP is a puppet of the leader;
a site action is one of the wrapper.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from brokerctl.durations import MS
from brokerctl.ids import idset, parse_idset
from brokerctl.model.lifecycle import State
from brokerctl.model.stopper import Stopper
from brokerctl.model.words import ESRCH
from brokerctl.records import (
    WRAPPER,
    Abandon,
    Aimed,
    Answered,
    Arm,
    Asked,
    Cancel,
    CloseOutput,
    Command,
    Effect,
    Event,
    Exit,
    Kill,
    KillHolder,
    Line,
    MainGone,
    Notify,
    Query,
    QueryFailed,
    Signal,
    SignalFailed,
    SignalMain,
    Start,
)
from brokerctl.records.stops import (
    AnyAnswer,
    Holder,
    Holders,
    Holding,
    Limits,
    Look,
    Peers,
    Report,
    ShedRank,
    Sheds,
    Written,
)
from brokerctl.records.units import MAIN

if TYPE_CHECKING:
    from brokerctl.model.node import Node
    from brokerctl.worlds.sim.processes import Process
    from brokerctl.worlds.sim.unit import Service
    from brokerctl.worlds.sim.world import Life

SIGKILL, SIGCONT, SIGSTOP = 9, 18, 19
# A whole start of the wrapper, as `make bench` has it, and a question to a live broker (FLUX.md 104).
START_NS = 50 * MS
ANSWER_NS = 10 * MS
_LISTS = ("cleanup", "rc3")


class Wrapper:
    """One control process of a unit."""

    def __init__(self, life: Life, service: Service, run: str, _command: Command) -> None:
        self._life = life
        self._service = service
        self._run = run
        self._stopper = Stopper(service.stop)
        self._over = False
        self._timers: set[str] = set()
        before = life.beside.get(WRAPPER)
        self.number: int = before.number if isinstance(before, Wrapper) else 0  # lines of one rank are numbered on
        life.beside[WRAPPER] = self
        kind: Literal["flux", "other"] = "flux" if life.has_brokers() else "other"
        self._after(START_NS, lambda: self(Aimed(kind, name=MAIN)) if service.unit.main else self._end(0))

    def __call__(self, event: Event) -> None:
        """Hand an event to the model, then carry out its effects, in order."""
        if self._over:
            return
        now_ns, effects = self._life.agenda.now_ns, list[Effect]()
        self._tell(now_ns, "<", event)
        self._stopper.handle(now_ns, event, effects)
        for effect in effects:
            self._tell(now_ns, ">", effect)
        for effect in effects:
            do = _CARRY.get(type(effect))
            if do is not None:
                do(self, effect)

    def signal(self, signum: int) -> None:
        """It gets this signal."""
        if signum == SIGKILL:
            self._end(SIGKILL)
        elif signum not in {SIGCONT, SIGSTOP}:
            self._after(0, lambda: self(Signal(signum)))

    def main_gone(self) -> None:
        """The unit's main process has ended."""
        self._after(0, lambda: self(MainGone()) if self._timers or self._stopper.began_ns else None)

    def _tell(self, now_ns: int, direction: Literal["<", ">"], what: Any) -> None:  # noqa: ANN401 - any record
        self._life.tell(Line(now_ns, WRAPPER, self.number, direction, what))
        self.number += 1

    def _after(self, delay_ns: int, do: Callable[[], None]) -> None:
        self._life.agenda.push(delay_ns, WRAPPER, do)

    def _end(self, status: int) -> None:
        if self._over:
            return
        self._over = True
        for timer in self._timers:
            self._life.agenda.cancel(WRAPPER, timer)
        self._service.ended(self._run, status)

    # ---- effects

    def _arm(self, order: Arm) -> None:
        self._timers.add(order.timer)
        self._life.agenda.arm(WRAPPER, order.timer, order.after_ns, work=not order.reminder)

    def _cancel(self, order: Cancel) -> None:
        self._timers.discard(order.timer)
        self._life.agenda.cancel(WRAPPER, order.timer)

    def _signal_main(self, order: SignalMain) -> None:
        if self._service.unit.main:
            self._service.signal(MAIN, order.signum)
        else:
            self._after(0, lambda: self(SignalFailed(order.signum, ESRCH)))

    def _kill_holder(self, order: KillHolder) -> None:
        for process in self._life.processes.of(0):
            if (_pid(process), process.began_ns) == (order.pid, order.started):
                self._life.processes.signal(process, order.signum)

    def _act(self, order: Start | Kill | CloseOutput | Abandon) -> None:
        """A site action."""
        self._life.processes.carry[type(order)](WRAPPER, order)
        self._service.look()

    def _notify(self, order: Notify) -> None:
        self._service.notified("control", order.text)

    def _exit(self, order: Exit) -> None:
        self._end(order.code << 8)

    # ---- questions

    def _query(self, order: Query) -> None:
        def answer() -> None:
            made = self._answer(order)
            if made is not None:
                self(Answered(order.query, made))
            elif not self._life.lives(0):
                self(QueryFailed(order.query, "main has gone"))

        self._after(ANSWER_NS, answer)

    def _answer(self, order: Query) -> AnyAnswer | None:  # noqa: PLR0911 - one a question
        """What is known; None where only main could say, and doesn't."""
        life = self._life
        match order.what:
            case "holders":
                return Holders(tuple(self._holders(int(order.words[0]))))
            case "written":
                return Written(storage=self._done())
            case "before" | "after":
                return Report(failed=self._failed() if order.what == "after" else "")
        if not life.lives(0) or life.agenda.is_frozen(0):
            return None
        node = life.node(0)
        match order.what:
            case "peers":
                text = node.overlay.describe_peers() if node.overlay.peers else ""
                blame = sorted(
                    self._holding_cleanup(node) if node.broker.state is State.CLEANUP else self._to_blame(node)
                )
                return Peers(
                    text, tuple(Holding(rank, node.tree.host(rank), severs=_severed(node, rank)) for rank in blame)
                )
            case "shed":
                return self._shed(node, order.words[0])
            case _:
                return self._look(node)

    def _look(self, node: Node) -> Look:
        broker, settings = node.broker, node.settings
        running = next((actions for actions in broker.lists.values() if actions.running), None)
        return Look(
            state=str(broker.state),
            held_ns=node.now_ns and self._life.agenda.now_ns - broker.since_ns,
            size=node.tree.size,
            text=f"Running {running.describe()}" if running is not None else "",
            done=self._done(),
            limits=Limits(settings.cleanup_timeout_ns, settings.shutdown_timeout_ns),
            reason=broker.reason,
        )

    def _done(self) -> int:
        """rc3 makes progress all the time that it runs, unless it would never end."""
        running = [process for process in self._life.processes.of(0) if process.run.startswith("rc3.")]
        moves = any(process.puppet.due() is not None for process in running)
        return self._life.agenda.now_ns if moves else 0

    def _holders(self, since_ns: int) -> list[Holder]:
        """Processes in groups of their own, rc3 among them: that it is none is the model's to see."""
        return [
            Holder(_pid(process), process.began_ns, process.run)
            for process in self._life.processes.of(0)
            if process.run.partition(".")[0] in _LISTS and process.began_ns >= since_ns
        ]

    def _to_blame(self, node: Node) -> list[int]:
        """Who holds SHUTDOWN by itself: children that are still connected, and have nobody below them to wait for."""
        found = []
        for child in node.overlay.peers:
            below = self._life.node(child)
            waits = not self._is_silent(child) and below.broker.state is State.SHUTDOWN and below.overlay.peers
            found += self._to_blame(below) if waits else [child]
        return found

    def _holding_cleanup(self, node: Node) -> list[int]:
        """Where a prolog or epilog runs, or who is silent: nobody says goodbye before SHUTDOWN (`stop.flux`)."""
        return [
            rank
            for rank in range(1, node.tree.size)
            if node.tree.hop(0, rank) in node.overlay.peers and (self._is_silent(rank) or self._acts(rank))
        ]

    def _is_silent(self, rank: int) -> bool:
        return self._life.agenda.is_frozen(rank) or not self._life.lives(rank)

    def _acts(self, rank: int) -> bool:
        return any(process.run.endswith((".prolog", ".epilog")) for process in self._life.processes.of(rank))

    def _shed(self, node: Node, ranks: str) -> Sheds:
        done = []
        for rank in parse_idset(ranks):
            if node.tree.hop(0, rank) in node.overlay.peers:
                self._life.agenda.push(0, 0, Asked("disconnect", 0, (str(rank),)))
                done.append(ShedRank(rank, node.tree.host(rank), _severed(node, rank)))
            else:
                done.append(ShedRank(rank, error="is not connected"))
        return Sheds(tuple(done))

    def _failed(self) -> Literal["", "cleanup", "rc3"]:
        lists = self._life.node(0).broker.lists
        if "cleanup" in lists and lists["cleanup"].rc:
            return "cleanup"
        return "rc3" if "rc3" in lists and lists["rc3"].rc else ""


def _pid(process: Process) -> int:
    """A number of its own."""
    name, _, index = process.run.partition(".")
    return 1000 * (1 + _LISTS.index(name)) + int(index) if name in _LISTS else 0


def _severed(node: Node, rank: int) -> str:
    below = [each for each in node.tree.subtree(rank) if each != rank]
    return idset(below) if below else ""


_CARRY: dict[type[Effect], Callable[[Wrapper, Any], None]] = {
    Arm: Wrapper._arm,  # noqa: SLF001
    Cancel: Wrapper._cancel,  # noqa: SLF001
    **dict.fromkeys((Start, Kill, CloseOutput, Abandon), Wrapper._act),  # noqa: SLF001
    Query: Wrapper._query,  # noqa: SLF001
    SignalMain: Wrapper._signal_main,  # noqa: SLF001
    KillHolder: Wrapper._kill_holder,  # noqa: SLF001
    Notify: Wrapper._notify,  # noqa: SLF001
    Exit: Wrapper._exit,  # noqa: SLF001
}
