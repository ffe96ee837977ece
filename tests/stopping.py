"""Drives the wrapper's model in virtual time against a main that behaves as Flux does (FLUX.md 25, 31, 100–103)."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

from brokerctl.durations import MS, S
from brokerctl.model.stopper import Stopper
from brokerctl.records import (
    Aimed,
    Answered,
    Arm,
    Cancel,
    Effect,
    Emptied,
    Event,
    Exit,
    Exited,
    Fired,
    Kill,
    KillHolder,
    Log,
    MainGone,
    Notify,
    OutputEnded,
    Query,
    QueryFailed,
    Signal,
    SignalMain,
    Start,
)
from brokerctl.records.stops import (
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
from brokerctl.settings import StopSettings

TERM, CONT, HUP, KILL = 15, 18, 1, 9
LATENCY_NS = 10 * MS
HOLDER, RC3 = Holder(99, 5, "stubborn"), Holder(100, 6, "flux modprobe rc3")
NEXT = {"run": "cleanup", "cleanup": "shutdown", "shutdown": "finalize", "finalize": "goodbye", "goodbye": ""}


class Main:
    """A main: how long each state of its stop lasts (None: for ever), and what it does with a signal.

    `holder` is the one process that holds CLEANUP, and the signal it dies of; the state then ends 10 ms later. `frozen`
    are ranks that hold SHUTDOWN until they are shed. `cut` says that rc3 was aborted: the state is lost.
    """

    def __init__(
        self,
        state: str = "run",
        *,
        cleanup: int | None = 1 * S,
        shutdown: int | None = 0,
        finalize: int | None = 1 * S,
        frozen: tuple[int, ...] = (),
        holder: int = 0,
        rank: int = 0,
        size: int = 1,
        limits: Limits | None = None,
        writes: bool = True,
    ) -> None:
        self.state = state
        self.lasts = {"cleanup": cleanup, "shutdown": shutdown, "finalize": finalize, "goodbye": 0}
        self.frozen = set(frozen)
        self.holder = holder
        self.rank, self.size = rank, size
        self.limits = limits if limits is not None else Limits(cleanup_timeout_ns=45 * S)
        self.writes = writes
        self.since = 0
        self.signals: list[tuple[int, int]] = []
        self.history: list[tuple[int, str]] = [(0, state)]
        self.cut = False
        self.killed: list[int] = []


class Stop:
    """One wrapper, its clock, and a main. `answers` replaces what a question gets: an answer, an error, or silence."""

    def __init__(self, main: Main, settings: StopSettings | None = None, kind: str = "flux") -> None:
        self.main = main
        self.kind = kind
        self.stopper = Stopper(settings or StopSettings())
        self.now_ns = 0
        self.answers: dict[str, Callable[[Query], object]] = {}
        self.effects: list[tuple[int, Effect]] = []
        self.events: list[tuple[int, Event]] = []
        self.code: int | None = None
        self.runs: dict[str, int | None] = {}  # site action → how long it runs; None is for ever
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._armed: dict[str, int] = {}

    # ---- the clock

    def at(self, time_ns: int, do: Callable[[], None]) -> int:
        order = next(self._order)
        heapq.heappush(self._queue, (time_ns, order, do))
        return order

    def after(self, delay_ns: int, do: Callable[[], None]) -> int:
        return self.at(self.now_ns + delay_ns, do)

    def run(self, until_ns: int = 3600 * S) -> Stop:
        if not self.events:
            self.give(Aimed(self.kind, 4711, "main"))
        while self.code is None and self._queue and self._queue[0][0] <= until_ns:
            self.now_ns, _, do = heapq.heappop(self._queue)
            do()
        return self

    def give(self, event: Event) -> None:
        if self.code is not None:
            return
        out: list[Effect] = []
        self.events.append((self.now_ns, event))
        self.stopper.handle(self.now_ns, event, out)
        for effect in out:
            self.effects.append((self.now_ns, effect))
            self._carry_out(effect)

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Arm(timer, after_ns):
                number = self._armed[timer] = next(self._order)
                heapq.heappush(self._queue, (self.now_ns + after_ns, number, lambda: self._fire(timer, number)))
            case Cancel(timer):
                self._armed.pop(timer, None)
            case Query():
                self._answer(effect)
            case SignalMain(signum):
                self.signal(signum)
            case KillHolder(signum=signum):
                self.main.killed.append(signum)
                if effect.pid == RC3.pid:
                    self.main.cut = True
                elif signum == self.main.holder and self.main.state == "cleanup":
                    self.main.holder = 0
                    self.after(LATENCY_NS, lambda: self.enter("shutdown", "cleanup"))
            case Start(run):
                self._begin(run, self.runs.get(run, 0))
            case Kill(run):
                self.after(MS, lambda: self._end(run, effect.signum))
            case Exit(code):
                self.code = code

    def _fire(self, timer: str, number: int) -> None:
        if self._armed.get(timer) == number:
            del self._armed[timer]
            self.give(Fired(timer))

    def _begin(self, run: str, lasts_ns: int | None) -> None:
        if lasts_ns is not None:
            self.after(lasts_ns, lambda: self._end(run, 0))

    def _end(self, run: str, status: int) -> None:
        if run in self.stopper.runs:
            self.give(OutputEnded(run))
            self.give(Exited(run, status))
            if run in self.stopper.runs:
                self.give(Emptied(run))

    # ---- main

    def enter(self, state: str, old: str) -> None:
        main = self.main
        if main.state != old:
            return
        main.state, main.since = state, self.now_ns
        main.history.append((self.now_ns, state))
        if not state:
            self.give(MainGone())
            return
        self.settle()

    def settle(self) -> None:
        """Whatever ends main's state by itself."""
        main, state = self.main, self.main.state
        if state == "cleanup" and main.holder:
            return
        if state == "shutdown" and main.frozen:
            limit_ns = main.limits.shutdown_timeout_ns
            if limit_ns is not None:
                self.after(limit_ns, lambda: self.enter("finalize", "shutdown"))
            return
        lasts_ns = main.lasts.get(state)
        if lasts_ns is not None:
            self.after(lasts_ns, lambda: self.enter(NEXT[state], state))

    def signal(self, signum: int) -> None:
        main = self.main
        main.signals.append((self.now_ns, signum))
        if signum != TERM:
            return
        match main.state:
            case "run":
                self.enter("cleanup", "run")
            case "cleanup":
                self.enter("shutdown", "cleanup")  # aborted (FLUX.md 29)
            case "finalize":
                main.cut = True  # no dump (FLUX.md 101)
                self.enter("goodbye", "finalize")
            case "join" | "init" | "quorum" | "config-sync":
                self.enter("shutdown", main.state)

    # ---- who answers

    def look(self) -> Look:
        main = self.main
        return Look(
            main.state,
            held_ns=self.now_ns - main.since if main.state != "run" else None,
            rank=main.rank,
            size=main.size,
            limits=main.limits,
            text=f"Running {main.state}",
            done=self.now_ns if main.state == "finalize" and main.writes else 0,
        )

    def _answer(self, query: Query) -> None:
        def answer() -> None:
            made = self.answers.get(query.what, self._made)(query)
            if made is None:
                return
            if isinstance(made, str):
                self.give(QueryFailed(query.query, made))
            else:
                self.give(Answered(query.query, made))

        self.after(LATENCY_NS, answer)

    def _made(self, query: Query) -> object:
        main = self.main
        match query.what:
            case "look":
                return self.look()
            case "holders":
                # In FINALIZE rc3 looks just the same: a group of its own, started after CLEANUP began.
                found = {"cleanup": HOLDER, "finalize": RC3}.get(main.state)
                return Holders((found,) if found is not None else ())
            case "written":
                return Written(self.now_ns // 100 if main.writes else 0)
            case "peers":
                text = f"{len(main.frozen)} peers" if main.frozen else ""
                return Peers(text, tuple(Holding(rank, f"picl{rank}") for rank in sorted(main.frozen)))
            case "shed":
                ranks = tuple(ShedRank(int(word)) for word in query.words[0].split(","))
                main.frozen -= {each.rank for each in ranks}
                self.after(LATENCY_NS, self.settle)
                return Sheds(ranks)
            case _:
                return Report()

    # ---- what tests look at

    def sent(self, kind: type) -> list:
        return [effect for _, effect in self.effects if isinstance(effect, kind)]

    def terms(self) -> list[int]:
        return [at for at, signum in self.main.signals if signum == TERM]

    def logged(self) -> list[str]:
        return [effect.text for effect in self.sent(Log) if effect.level < 7]

    def notified(self, name: str) -> list[tuple[int, str]]:
        return [
            (at, effect.text.partition("=")[2])
            for at, effect in self.effects
            if isinstance(effect, Notify) and effect.text.startswith(f"{name}=")
        ]

    def state_at(self, time_ns: int) -> str:
        return [state for at, state in self.main.history if at <= time_ns][-1]

    def told_to_end(self, signum: int = TERM) -> None:
        self.give(Signal(signum))
