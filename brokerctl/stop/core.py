"""The world part of a stop: carries out what the model decides, and stays until main has gone.

It trusts nothing but the kernel. Whoever answers its questions may hang or die; nobody may read what it says; its own
code may fail: then a few lines are left that wait for main's end, for leaving early makes systemd send main a second
SIGTERM (SYSTEMD.md 16, FLUX.md 100).
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections import deque
from collections.abc import Callable, Mapping
from types import FrameType, MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from brokerctl.errors import EXIT_BUG
from brokerctl.kernel import pidfd
from brokerctl.kernel.notify import Notifier
from brokerctl.model.lifecycle import STOPPING
from brokerctl.model.stopper import Stopper
from brokerctl.model.stopper.stopper import EXIT_TOLD, SIGCONT, SIGTERM
from brokerctl.records import (
    Abandon,
    Aimed,
    Answered,
    Arm,
    Cancel,
    CloseOutput,
    Effect,
    Event,
    Exit,
    Fired,
    Kill,
    KillHolder,
    Line,
    Log,
    MainGone,
    Notify,
    Query,
    QueryFailed,
    Signal,
    SignalFailed,
    SignalMain,
    Start,
)
from brokerctl.records.base import WRAPPER
from brokerctl.stop.saying import bug, say
from brokerctl.worlds.live.loop import READ, Loop, Timer

if TYPE_CHECKING:
    from brokerctl.settings import StopSettings
    from brokerctl.stop.aide import Aide, Serve
    from brokerctl.stop.link import Link
    from brokerctl.stop.target import Aim
    from brokerctl.worlds.live.runs import Runs

Sink = Callable[[Line], None]

# Told to end: by systemd when its time is over (TERM), by a terminal (INT, HUP, QUIT).
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
DEBUG = 7
_POLL_MS = 200
# What of our own environment a site action gets; systemd's sockets and ids are the service's business, not theirs.
KEPT = ("LANG", "LC_ALL", "TZ")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_NOTHING: Mapping[str, str] = MappingProxyType({})


def stop(
    aim: Aim,
    main: int,
    settings: StopSettings,
    *,
    environment: Mapping[str, str] = _NOTHING,
    complaint: str = "",
    trace: Sink | None = None,
    helper: Aide | None = None,
    life: Serve | None = None,
) -> int:
    """Stop what the pidfd `main` means; the exit code (docs/wrapper.md).

    `environment` is for site actions. `complaint` is what went wrong before: a failure, but no reason not to stop.
    `helper` is one that lives already: it is ended here.
    """
    core: Core | None = None
    try:
        core = Core(aim, main, settings, environment, trace, helper, life)
        return core.run(complaint)
    except Exception as error:  # noqa: BLE001 - whatever it is, main's stop comes first
        say(3, f"{bug(error)}; main's end is waited for all the same")
        if core is not None and core.told:
            return EXIT_TOLD
        return last_resort(main, decided=core is not None and core.decided())


def last_resort(main: int, *, decided: bool) -> int:
    """Wait for main's end, and for nothing else; main gets its one SIGTERM, unless it had it, or needs none."""
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    if not decided:
        pidfd.send(main, SIGTERM)
        pidfd.send(main, SIGCONT)
    poll = select.poll()
    poll.register(main, select.POLLIN)
    while not poll.poll(_POLL_MS):
        if signal.sigtimedwait(ENDING, 0) is not None:
            return EXIT_TOLD
    return EXIT_BUG


class Core:
    """One stop of one main."""

    def __init__(
        self,
        aim: Aim,
        main: int,
        settings: StopSettings,
        environment: Mapping[str, str],
        trace: Sink | None,
        helper: Aide | None,
        life: Serve | None,
    ) -> None:
        self._aim = aim
        self._main = main
        self._stopper = Stopper(settings)
        self._environment = environment
        self._trace = trace
        self._helper = helper  # until the link has it
        self._life = life
        self._queue: deque[Event] = deque()
        self._timers: dict[str, Timer] = {}
        self._link: Link | None = None  # of a main that can be asked
        self._runs: Runs | None = None
        self._count = 0
        self._code: int | None = None
        self._sent = False
        self.told = False  # to end, whether the model has taken it in or not

    def decided(self) -> bool:
        """Main has had its SIGTERM, or needs none: a stop is under way."""
        return self._sent or self._stopper.watch.state in STOPPING

    def run(self, complaint: str) -> int:
        """Run to the end."""
        with Loop() as self._loop:
            loop = self._loop
            self._notify = Notifier()
            try:
                loop.ignore(signal.SIGPIPE)
                for signum in ENDING:
                    signal.signal(signum, self._told_to_end)
                signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
                loop.settle = self._settle
                loop.watch(self._main, READ, self._main_gone)
                self._post(Aimed(self._aim.kind, self._aim.pid, self._aim.name, complaint))
                loop.run()
            finally:
                signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)  # first: what comes from here on is the last resort's
                if self._link is not None:
                    self._link.close()
                if self._helper is not None:
                    self._helper.end()
                if self._runs is not None:
                    self._runs.close()
                self._notify.close()
        assert self._code is not None
        return self._code

    # ---- events

    def _post(self, event: Event) -> None:
        self._queue.append(event)

    def _told_to_end(self, signum: int, _frame: FrameType | None) -> None:
        """A signal handler, which wakes the loop up."""
        self.told = True
        self._post(Signal(signum))

    def _main_gone(self, _events: int) -> None:
        self._loop.unwatch(self._main)
        self._post(MainGone())

    def _fired(self, name: str) -> None:
        del self._timers[name]
        self._post(Fired(name))

    def _settle(self) -> None:
        while self._queue and self._code is None:
            event = self._queue.popleft()
            now_ns = time.monotonic_ns()
            self._write(now_ns, "<", event)
            effects: list[Effect] = []
            self._stopper.handle(now_ns, event, effects)
            for effect in effects:
                self._write(now_ns, ">", effect)
                do = _CARRY_OUT.get(type(effect))
                if do is not None:
                    do(self, effect)

    def _write(self, now_ns: int, direction: Literal["<", ">"], what: Any) -> None:  # noqa: ANN401 - any record
        if self._trace is not None:
            self._trace(Line(now_ns, WRAPPER, self._count, direction, what))
        self._count += 1

    # ---- effects

    def _query(self, order: Query) -> None:
        if order.what not in {"holders", "written"}:
            self._ask(order)
            return
        from brokerctl.stop import members

        try:
            answer = (
                members.holders(self._aim, int(order.words[0]))
                if order.what == "holders"
                else members.written(self._aim)
            )
        except OSError as error:
            self._post(QueryFailed(order.query, error.strerror or str(error)))
        else:
            self._post(Answered(order.query, answer))

    def _ask(self, order: Query) -> None:
        if self._link is None:
            from brokerctl.stop import aide
            from brokerctl.stop.link import Link

            self._link = Link(self._loop, self._aim, self._post, self._life or aide.serve, self._helper)
            self._helper = None
        self._link.ask(order)

    def _signal_main(self, order: SignalMain) -> None:
        failed = pidfd.send(self._main, order.signum)
        self._sent |= order.signum == SIGTERM
        if failed:
            self._post(SignalFailed(order.signum, failed))

    def _kill_holder(self, order: KillHolder) -> None:
        from brokerctl.stop import members

        members.kill(order.pid, order.started, order.signum)

    def _tell_manager(self, order: Notify) -> None:
        self._notify(order.text)  # without a manager, or one that does not read, the stop goes on

    def _log(self, fact: Log) -> None:
        if fact.level < DEBUG:
            say(fact.level, fact.text)

    def _arm(self, order: Arm) -> None:
        self._cancel(Cancel(order.timer))
        name = order.timer
        self._timers[name] = self._loop.after(order.after_ns, lambda: self._fired(name))

    def _cancel(self, order: Cancel) -> None:
        timer = self._timers.pop(order.timer, None)
        if timer is not None:
            timer.cancel()

    def _exit(self, order: Exit) -> None:
        self._code = order.code
        self._loop.stop()

    # ---- site actions: as main's user, with an environment of their own

    def _start(self, order: Start) -> None:
        if self._runs is None:
            self._runs = self._make_runs()
        self._runs.start(order.run, order.command)

    def _make_runs(self) -> Runs:
        from brokerctl.kernel.prctl import become_subreaper
        from brokerctl.worlds.live.runs import Runs

        owner = self._aim.owner
        runs = Runs(
            self._loop, self._post, f"stop-{os.getpid()}-{os.urandom(6).hex()}", self._clean_environment(),
            adopts=become_subreaper(), user=None if owner.uid == os.geteuid() else owner,
        )  # fmt: skip
        self._loop.handle((signal.SIGCHLD,))
        self._loop.on_signal = lambda _signum: runs.child_died()
        return runs

    def _clean_environment(self) -> dict[str, str]:
        import pwd

        found = {name: os.environ[name] for name in KEPT if name in os.environ}
        found["PATH"] = PATH
        try:
            who = pwd.getpwuid(self._aim.owner.uid)
        except KeyError:
            found["HOME"] = "/"
        else:
            found.update(HOME=who.pw_dir, USER=who.pw_name, LOGNAME=who.pw_name)
        found["BROKERCTL_STOP_PID"] = str(self._aim.pid)
        found["BROKERCTL_STOP_UNIT"] = self._aim.unit
        return {**found, **self._environment}

    def _kill(self, order: Kill) -> None:
        assert self._runs is not None
        self._runs.kill(order.run, order.signum, order.scope)

    def _close_output(self, order: CloseOutput) -> None:
        assert self._runs is not None
        self._runs.close_output(order.run)

    def _abandon(self, order: Abandon) -> None:
        assert self._runs is not None
        self._runs.abandon(order.run)
        self._queue = deque(event for event in self._queue if getattr(event, "run", None) != order.run)


_CARRY_OUT: dict[type[Effect], Callable[[Core, Any], None]] = {
    Query: Core._query,  # noqa: SLF001
    SignalMain: Core._signal_main,  # noqa: SLF001
    KillHolder: Core._kill_holder,  # noqa: SLF001
    Notify: Core._tell_manager,  # noqa: SLF001
    Log: Core._log,  # noqa: SLF001
    Arm: Core._arm,  # noqa: SLF001
    Cancel: Core._cancel,  # noqa: SLF001
    Exit: Core._exit,  # noqa: SLF001
    Start: Core._start,  # noqa: SLF001
    Kill: Core._kill,  # noqa: SLF001
    CloseOutput: Core._close_output,  # noqa: SLF001
    Abandon: Core._abandon,  # noqa: SLF001
}
