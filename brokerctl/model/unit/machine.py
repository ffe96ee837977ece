"""One service unit as systemd 252 runs it: events in, effects out (SYSTEMD.md A–G).

What a state does with an event is `states.TABLE`'s; here stands how it is done. Jobs and their clients are `jobs`,
messages of the service `messages`, limits and the watchdog `clocks`, the way up `start`, the way down `stop`.
"""

from __future__ import annotations

from collections.abc import Callable

from brokerctl.model.unit import clocks, messages, result
from brokerctl.model.unit.deeds import DEEDS
from brokerctl.model.unit.environment import environment, exit_words
from brokerctl.model.unit.jobs import Jobs
from brokerctl.model.unit.result import SUCCESS, Result
from brokerctl.model.unit.states import ACTIVE, BOTH_GONE, NEXT_MAIN, TABLE, UP, WATCHED, Sub, What
from brokerctl.records import Booted, Effect, Event, Exited, Fired, Log, SpawnFailed, Start
from brokerctl.records.units import (
    MAIN,
    ExecLine,
    Hook,
    Notified,
    NotifyAccess,
    Populated,
    Systemctl,
    UnitMoved,
    UnitSettings,
)

NOTICE, INFO = 5, 6


class Unit:
    """One unit. `handle` is the only way in; the effects it appends are the only way out.

    `control` is the run of the one control process, if any. `others` counts the processes of the control group besides
    main and control process.
    """

    __slots__ = (
        "_index", "_lines", "active_ns", "clocks", "control", "emit", "frozen", "jobs", "main", "main_status", "now_ns",
        "nth_main", "others", "restart_asked", "restarts", "result", "settings", "since_ns", "started", "state",
        "status", "stopped", "stopping",
    )  # fmt: skip

    emit: Callable[[Effect], None]

    def __init__(self, settings: UnitSettings) -> None:
        self.settings = settings
        self.now_ns = self.since_ns = self.active_ns = 0  # since when it is in its state, and is active
        self.state = Sub.DEAD
        self.result: Result = SUCCESS
        self.main = False  # it lives
        self.main_status: int | None = None  # its wait status, where it has lived in this life and ended
        self.nth_main = 0  # which line of ExecStart=
        self.control = ""
        self._lines: tuple[ExecLine, ...] = ()  # of the list that the control process is of
        self._index = 0
        self.others = 0
        self.status = ""
        self.stopping = False  # STOPPING=1 came
        self.stopped = False  # somebody asked for the stop: no restart
        self.restart_asked = False  # a restart is why it stops
        self.restarts = 0
        self.started: list[int] = []  # when it was started, for the start limit
        self.frozen = False
        self.clocks = clocks.Clocks(self)
        self.jobs = Jobs(self)

    def handle(self, now_ns: int, event: Event, out: list[Effect]) -> None:
        """Take in one event at this time; append what is to be done, in order."""
        self.now_ns = now_ns
        self.emit = out.append
        match event:
            case Booted():
                pass
            case Systemctl():
                self.jobs.asked(event)
            case Exited(run, status):
                self._ended(run, status)
            case SpawnFailed(run):
                self._ended(run, result.EXIT_EXEC << 8)
            case Notified(sender, text):
                messages.received(self, sender, text)
            case Populated(others):
                self.others = others
                if not (self.main or self.control or others):
                    self.happens(What.EMPTY)
            case Fired(timer):
                self.clocks.fired(timer)
            case _:
                raise AssertionError(event)
        self.jobs.run()

    def happens(self, what: What, failure: Result = SUCCESS) -> bool:
        """Do what the state has for it; False where it has nothing. A failure counts if it is the first."""
        do = TABLE[self.state].get(what)
        if do is None:
            return False
        self.fail(failure)
        DEEDS[do](self)
        return True

    def fail(self, failure: Result) -> None:
        """The first failure stays (SYSTEMD.md 17)."""
        if self.result == SUCCESS:
            self.result = failure

    def log(self, level: int, text: str) -> None:
        """A line of the manager in the journal."""
        self.emit(Log("systemd", level, text))

    def enter(self, state: Sub) -> None:
        """The one place where the state changes."""
        held_ns, old = self.now_ns - self.since_ns, self.state
        self.state, self.since_ns = state, self.now_ns
        if ACTIVE[state] in UP and ACTIVE[old] not in UP:
            self.active_ns = self.now_ns
        if state not in WATCHED:
            self.clocks.unwatch()
        if state is not old:
            self.emit(UnitMoved(ACTIVE[state], old, state, self.result, held_ns))
        self.clocks.limit()
        self.jobs.moved()

    # ---- processes

    def _ended(self, run: str, status: int) -> None:
        if run == MAIN:
            self._main_ended(status)
        elif run == self.control:
            self._control_ended(status)

    def _log_exit(self, whose: str, status: int, *, good: bool) -> None:
        code, text = exit_words(status)
        self.log(INFO if good else NOTICE, f"{whose} exited, code={code}, status={text}")

    def _main_ended(self, status: int) -> None:
        settings, oneshot = self.settings, self.settings.type == "oneshot"
        found = result.verdict(status, settings, daemon=not oneshot)
        self._log_exit("Main process", status, good=found == SUCCESS)
        if settings.exec_start[self.nth_main].ignore_failure:
            found = SUCCESS
        self.main, self.main_status = False, status
        self.fail(found)
        if oneshot and found == SUCCESS and self.state in NEXT_MAIN and self.nth_main + 1 < len(settings.exec_start):
            self.nth_main += 1
            self.start_main()
            self.clocks.limit_of_start()
            return
        if settings.exit_type == "cgroup" and self.others:
            return  # SYSTEMD.md 80
        if not (self.control and self.state in BOTH_GONE):
            self.happens(What.MAIN_OK if found == SUCCESS else What.MAIN_FAILED, found)

    def _control_ended(self, status: int) -> None:
        line = self._lines[self._index]
        if self.state is Sub.CONDITION:
            found = result.condition(status, self.settings)
        else:
            found = result.verdict(status, self.settings, daemon=False)
        self._log_exit("Control process", status, good=found == SUCCESS)
        if line.ignore_failure:
            found = SUCCESS
        name, self.control = self.control.partition(".")[0], ""
        if self.state is Sub.RELOAD:
            self.jobs.reload_failed = found != SUCCESS  # and the unit has not (SYSTEMD.md 69)
        else:
            self.fail(found)
        if found == SUCCESS and self._index + 1 < len(self._lines):
            self._start_control(name, self._index + 1)  # a fresh limit for each (SYSTEMD.md 9, 32)
            self.clocks.limit()
        elif not (self.main and self.state in BOTH_GONE):
            self.happens(What.CONTROL_OK if found == SUCCESS else What.CONTROL_FAILED)

    def access(self) -> NotifyAccess:
        """NotifyAccess=, as it counts (SYSTEMD.md 35)."""
        access = self.settings.notify_access or "none"
        return "main" if access == "none" and self.settings.type in {"notify", "dbus"} else access

    def start_main(self) -> None:
        """Start the line of ExecStart= that is due."""
        self.main, self.main_status = True, None
        self.emit(Start(MAIN, self.settings.exec_start[self.nth_main].command))

    def _start_control(self, name: str, index: int) -> None:
        self._index, self.control = index, f"{name}.{index}"
        told = environment(self.control, self.result, self.main_status, self.access(), main=self.main)
        self.emit(Hook(self.control, told))
        self.emit(Start(self.control, self._lines[index].command))

    def run_lines(self, state: Sub, name: str, lines: tuple[ExecLine, ...]) -> bool:
        """Begin with a list of commands, in that state; False where there is none."""
        if not lines:
            return False
        self._lines = lines
        self._start_control(name, 0)
        self.enter(state)
        return True

    def forget(self) -> None:
        """What an unloaded unit does not know any more."""
        self.started.clear()
        self.restarts = 0
