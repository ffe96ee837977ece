"""A live broker: one rank's model among real processes, signals, timers and sockets.

It delivers events one at a time. For each it writes the line, asks the model, and carries out every effect in order,
each with its line; an order that can't be carried out becomes an event, queued behind those that are there. Nothing
reaches the model in another way, and nothing is written that it didn't say: so every trace of this world replays.
"""

from __future__ import annotations

import os
import signal
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from brokerctl.kernel.notify import Notifier, action_environment, watchdog_interval_ns
from brokerctl.kernel.prctl import become_subreaper, signal_when_orphaned
from brokerctl.logs.fluxlog import entry
from brokerctl.model import lifecycle
from brokerctl.model.node import Node
from brokerctl.model.tree import Tree
from brokerctl.records import (
    Abandon,
    Answer,
    AnyEffect,
    AnyEvent,
    Arm,
    Asked,
    Booted,
    Cancel,
    CloseOutput,
    Effect,
    Exit,
    Fact,
    Fired,
    Hangup,
    Kill,
    Line,
    Notify,
    Received,
    Restored,
    Send,
    Signal,
    Start,
    Store,
    Watch,
)
from brokerctl.worlds.live import store
from brokerctl.worlds.live.complaints import Complaints
from brokerctl.worlds.live.control_server import ControlServer, Request
from brokerctl.worlds.live.launch import HELD
from brokerctl.worlds.live.links import Links
from brokerctl.worlds.live.loop import Loop, Timer
from brokerctl.worlds.live.runs import Runs
from brokerctl.worlds.live.watches import Watches

if TYPE_CHECKING:
    from brokerctl.settings import Settings
    from brokerctl.trace import Topology, Writer

Sink = Callable[[Line], None]

INFO = 6
CONTROL, TBON = "control", "tbon"


class LiveBroker:
    """A broker of one rank. `run` runs it to its end; every line goes to `trace` and to each of `sinks`, in order.

    A follower connects to the socket `parent`, its parent's. Where `starter` is the pid that started this broker, its
    end counts as a SIGTERM: for the leader always, for a follower until it hangs on its parent. `breakable` lets tests
    cut its link.
    """

    def __init__(
        self,
        settings: Settings,
        topology: Topology,
        rundir: Path,
        *,
        rank: int = 0,
        parent: Path | None = None,
        starter: int = 0,
        breakable: bool = False,
        fire: lifecycle.Fire | None = None,
        trace: Writer | None = None,
        sinks: Sequence[Sink] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._environment = dict(os.environ if environment is None else environment)
        self._rank = rank
        self._settings = settings
        self._tree = Tree(topology)
        self._node = Node(rank, settings, self._tree, fire or lifecycle.compiled())
        self._hosts = topology.hosts
        self._parent = parent
        self._starter = starter
        self._breakable = breakable
        self._rundir = rundir
        self._trace = trace
        self._sinks = tuple(sinks)
        self._queue: deque[AnyEvent] = deque()
        self._timers: dict[str, Timer] = {}
        self._count = 0
        self._code: int | None = None
        self._complain = Complaints(rank)

    # ---- the life

    def run(self) -> int:
        """Run to the end; the exit code. ControlError or KernelError before anything is started, else nothing."""
        with Loop() as self._loop:
            self._store = store.Store(self._rundir / store.STORE)
            self._control = ControlServer(self._loop, self._rundir / CONTROL, self._asked)
            try:
                self._prepare()
                try:
                    self._links.open(self._rundir / TBON, self._parent)
                    self._loop.run()
                finally:
                    self._complain.left_over(self._runs.leftovers())  # above all where we break down
                    self._links.close()
                    self._watches.close()
                    self._runs.close()
                    self._notify.close()
            finally:
                self._control.close(self._code)
        assert self._code is not None
        return self._code

    def _prepare(self) -> None:
        loop = self._loop
        self._notify = Notifier()
        cookie = f"{os.getpid()}-{os.urandom(6).hex()}"
        environment = action_environment(self._environment)
        environment["BROKERCTL_RUNDIR"] = str(self._rundir)
        environment["BROKERCTL_RANK"] = str(self._rank)
        loop.ignore(signal.SIGPIPE)
        loop.ignore(signal.SIGTTOU)  # a terminal may be set to stop who logs from its background (stty tostop)
        loop.handle((*HELD, signal.SIGCHLD))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (*HELD, signal.SIGCHLD))
        self._runs = Runs(loop, self._post, cookie, environment, adopts=become_subreaper())
        self._watches = Watches(loop, self._runs, self._post)
        self._links = Links(
            loop, self._rank, self._tree, self._settings,
            post=self._post, complain=self._complain, joined=self._joined,
        )  # fmt: skip
        loop.on_signal = self._signalled
        loop.settle = self._settle
        loop.turn_ended = self._flush
        interval_ns = watchdog_interval_ns(self._environment, os.getpid())
        if interval_ns is not None:
            self._ping(interval_ns)
        self._post(Booted())
        for key, value in self._store.values.items():
            self._post(Restored(key, value))
        if self._starter and not signal_when_orphaned(self._starter, signal.SIGTERM):
            self._post(Signal(signal.SIGTERM))

    def _joined(self) -> None:
        """A follower stops with its parent, in order; who started it may go."""
        if self._starter:
            signal_when_orphaned(self._starter, 0)

    def _ping(self, interval_ns: int) -> None:
        """Tell the watchdog that the loop turns: from the loop itself, or it would prove nothing."""
        self._notify("WATCHDOG=1")
        self._loop.after(interval_ns, lambda: self._ping(interval_ns))

    # ---- events

    def _post(self, event: AnyEvent) -> None:
        self._queue.append(event)

    def _signalled(self, signum: int) -> None:
        if signum == signal.SIGCHLD:
            self._runs.child_died()
        else:
            self._post(Signal(signum))

    def _asked(self, request: Request, reply: int) -> None:
        if request.ask == "cut":
            if self._breakable:
                self._links.cut()
            self._control.answer(reply, {} if self._breakable else {"error": "this broker can't be broken"})
            return
        self._post(Asked(request.ask, reply, request.words, request.text))

    def _fired(self, name: str) -> None:
        del self._timers[name]
        self._post(Fired(name))

    def _settle(self) -> None:
        """Deliver what is queued, and what that causes, until the broker has ended."""
        while self._queue and self._code is None:
            self._deliver(self._queue.popleft())

    def _deliver(self, event: AnyEvent) -> None:
        now_ns = time.monotonic_ns()
        self._write(now_ns, "<", event)
        effects: list[AnyEffect] = []
        self._node.handle(now_ns, event, cast("list[Effect]", effects))
        for effect in effects:
            self._write(now_ns, ">", effect)
            if not isinstance(effect, Fact):
                _CARRY_OUT[type(effect)](self, now_ns, effect)

    # ---- lines

    def _write(self, now_ns: int, direction: Literal["<", ">"], what: AnyEvent | AnyEffect) -> None:
        line = Line(now_ns, self._rank, self._count, direction, what)
        self._count += 1
        if self._trace is not None:
            try:
                self._trace(line)
            except OSError as error:
                self._lose_trace(error)
        for sink in self._sinks:
            sink(line)
        if direction == ">" and self._control.followed:
            self._tell_followers(line)

    def _tell_followers(self, line: Line) -> None:
        found = entry(line, self._hosts)
        if found is not None and found.level <= INFO:
            for text in found.text.split("\n"):
                self._control.log(found.plain_head() + text, found.level)

    def _flush(self) -> None:
        if self._trace is not None:
            try:
                self._trace.flush()
            except OSError as error:
                self._lose_trace(error)

    def _lose_trace(self, error: OSError) -> None:
        """A full disk must not end a broker that is to clean up."""
        self._trace = None
        self._complain(f"trace: cannot write: {error.strerror}; it ends here")

    # ---- effects

    def _start(self, _now_ns: int, order: Start) -> None:
        self._runs.start(order.run, order.command, self._watches.environment(order.run, order.command))

    def _watch(self, now_ns: int, order: Watch) -> None:
        self._watches.watch(now_ns, order)

    def _kill(self, _now_ns: int, order: Kill) -> None:
        self._runs.kill(order.run, order.signum, order.scope)

    def _close_output(self, _now_ns: int, order: CloseOutput) -> None:
        self._runs.close_output(order.run)

    def _abandon(self, _now_ns: int, order: Abandon) -> None:
        self._runs.abandon(order.run)
        self._queue = deque(event for event in self._queue if getattr(event, "run", None) != order.run)

    def _arm(self, now_ns: int, order: Arm) -> None:
        self._cancel(now_ns, Cancel(order.timer))
        name = order.timer
        self._timers[name] = self._loop.at(now_ns + order.after_ns, lambda: self._fired(name))

    def _cancel(self, _now_ns: int, order: Cancel) -> None:
        timer = self._timers.pop(order.timer, None)
        if timer is not None:
            timer.cancel()

    def _send(self, _now_ns: int, order: Send) -> None:
        self._links.send(order.neighbour, order.message)

    def _hangup(self, _now_ns: int, order: Hangup) -> None:
        self._links.hangup(order.neighbour)
        gone = order.neighbour
        self._queue = deque(event for event in self._queue if not (type(event) is Received and event.peer == gone))

    def _tell_manager(self, _now_ns: int, order: Notify) -> None:
        failed = self._notify(order.text)
        if failed:
            self._complain(f"cannot notify the service manager: {failed}")

    def _answer(self, _now_ns: int, order: Answer) -> None:
        self._control.answer(order.reply, order.body)

    def _keep(self, _now_ns: int, order: Store) -> None:
        failed = self._store.put(order.key, order.value)
        if failed:
            self._complain(f"cannot store {order.key}: {failed}")

    def _exit(self, _now_ns: int, order: Exit) -> None:
        self._code = order.code
        self._loop.stop()


_CARRY_OUT: dict[type[Effect], Callable[..., None]] = {
    Start: LiveBroker._start,  # noqa: SLF001
    Kill: LiveBroker._kill,  # noqa: SLF001
    Watch: LiveBroker._watch,  # noqa: SLF001
    CloseOutput: LiveBroker._close_output,  # noqa: SLF001
    Abandon: LiveBroker._abandon,  # noqa: SLF001
    Arm: LiveBroker._arm,  # noqa: SLF001
    Cancel: LiveBroker._cancel,  # noqa: SLF001
    Send: LiveBroker._send,  # noqa: SLF001
    Hangup: LiveBroker._hangup,  # noqa: SLF001
    Notify: LiveBroker._tell_manager,  # noqa: SLF001
    Answer: LiveBroker._answer,  # noqa: SLF001
    Store: LiveBroker._keep,  # noqa: SLF001
    Exit: LiveBroker._exit,  # noqa: SLF001
}
