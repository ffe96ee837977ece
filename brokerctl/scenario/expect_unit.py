"""`[expect.unit]`: a reader that sees the lines of a unit, and tells what is not as expected."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from brokerctl import durations
from brokerctl.config import signal_number
from brokerctl.durations import MS
from brokerctl.errors import ScenarioError
from brokerctl.model.unit.environment import exit_words
from brokerctl.model.unit.states import Sub
from brokerctl.model.words import short_name
from brokerctl.records import (
    Exited,
    Hook,
    KillOthers,
    KillProcess,
    Line,
    Log,
    Populated,
    Restarted,
    Returned,
    SpawnFailed,
    Start,
    StatusText,
    UnitMoved,
)
from brokerctl.records.units import MAIN
from brokerctl.scenario import puppets
from brokerctl.scenario.format import ExpectUnit, Scenario
from brokerctl.worlds.contract import START_CLIENT

# What a time of a real manager may differ by (SYSTEMD.md: ± 0.1 s on a quiet machine). Its timers are exact to 0.25 s
# (sd-event), so each limit that runs out may do so that much later: four of 1 s take 4.6 s (SYSTEMD.md 29).
TOLERANCE_NS = 300 * MS
TIMER_NS = 250 * MS
_OVER = frozenset({"inactive", "failed"})
_HOOK = re.compile(r"exec-(?:condition|start-pre|start-post|reload|stop|stop-post)\.[0-9]{1,3}(?: !?[A-Z_]+(?:=\S*)?)*")
_SIGNAL = re.compile(r"(main|control|others) ([A-Z][A-Z0-9+-]*)")

Found = tuple[str, str, int]


class UnitExpectations:
    """What a scenario expects of its unit; `checks` counts the single expectations."""

    _WANTS: frozenset[type] = frozenset(
        {
            UnitMoved,
            KillProcess,
            KillOthers,
            Hook,
            Log,
            Returned,
            StatusText,
            Restarted,
            Exited,
            SpawnFailed,
            Start,
            Populated,
        }
    )

    def __init__(self, scenario: Scenario) -> None:
        self.wants = frozenset[type]() if scenario.file.unit is None else self._WANTS
        expect = scenario.file.expect.unit
        self._where = where = f"{scenario.path}: expect.unit"
        if expect is not None and scenario.file.unit is None:
            raise ScenarioError(f"{where}: there is no unit; expected [unit] in the file")
        self._expect = expect = ExpectUnit() if expect is None else expect
        self._takes_ns = None if expect.takes is None else puppets.finite(expect.takes, f"{where}.takes")
        self._within_ns = None if expect.within is None else puppets.finite(expect.within, f"{where}.within")
        self._main = None if expect.main is None else _status(expect.main, f"{where}.main")
        self._check(expect)
        self._moved: list[UnitMoved] = []
        self._down_ns: int | None = None
        self._rest_ns: int | None = None
        self._signals: list[tuple[str, str]] = []
        self._hooks: list[Hook] = []
        self._returned: dict[int, int] = {}
        self._status = ""
        self._restarts = self._others = self._expired = 0
        self._main_status: int | None = None
        self._main_lives = False
        fields = (getattr(expect, name) for name in expect.__struct_fields__)
        self.checks = sum(len(one) if isinstance(one, list) else one is not None for one in fields)

    def _check(self, expect: ExpectUnit) -> None:
        where = self._where
        for name, states in (("states", expect.states), ("sub", [] if expect.sub is None else [expect.sub])):
            for state in states:
                if state not in set(Sub):
                    raise ScenarioError(f"{where}.{name}: {state!r} is no SubState; expected such as stop-sigterm")
        for text in expect.signals or ():
            match = _SIGNAL.fullmatch(text)
            try:
                signal_number(match[2] if match else "")
            except ValueError:
                raise ScenarioError(f"{where}.signals: {text!r} is none; expected such as 'main TERM'") from None
        for text in expect.hooks or ():
            if not _HOOK.fullmatch(text):
                raise ScenarioError(f"{where}.hooks: {text!r} is none; expected such as 'exec-stop.0 MAINPID'")

    # ---- what happens

    def see(self, line: Line) -> None:
        """The unit's next line."""
        match line.what:
            case UnitMoved():
                self._see_moved(line.t_ns, line.what)
            case Hook():
                self._hooks.append(line.what)
            case Returned(client, rc):
                self._returned[client] = rc
            case StatusText(text):
                self._status = text
            case Restarted(count):
                self._restarts = count
            case Populated(others):
                self._others = others
            case Log(_component, _level, text) if "timed out" in text:
                self._expired += 1
            case what:
                self._see_process(what)

    def _see_process(self, what: object) -> None:
        match what:
            case KillProcess(run, signum):
                self._signals.append((MAIN if run == MAIN else "control", short_name(signum)))
            case KillOthers(signum):
                self._signals.append(("others", short_name(signum)))
            case Start(run) if run == MAIN:
                self._main_lives = True
            case Exited(run, status) if run == MAIN:
                self._main_status, self._main_lives = status, False
            case SpawnFailed(run) if run == MAIN:
                self._main_lives = False
            case _:
                pass

    def _see_moved(self, t_ns: int, what: UnitMoved) -> None:
        self._moved.append(what)
        if self._down_ns is None:
            if what.active == "deactivating":
                self._down_ns = t_ns
        elif self._rest_ns is None and (what.active in _OVER or what.new == Sub.AUTO_RESTART):
            self._rest_ns = t_ns

    # ---- what is not as expected

    def ending(self) -> str:
        """How the unit has ended, in a few words; "" where there is none."""
        if not self._moved:
            return ""
        last = self._moved[-1]
        text = f"unit {last.active} ({last.new}), result {last.result}"
        if self._down_ns is None or self._rest_ns is None:
            return text
        return f"{text}, {durations.as_short(self._rest_ns - self._down_ns)} after its stop began"

    def findings(self) -> Iterable[Found]:
        """Name, text and rank of each."""
        for name, wanted, got in self._pairs():
            if wanted is not None and wanted != got:
                yield f"expect.unit.{name}", f"expected {_shown(wanted)}, got {_shown(got)}", 0
        yield from self._find_states()
        yield from self._find_signals()
        yield from self._find_hooks()
        yield from self._find_times()

    def _pairs(self) -> Iterable[tuple[str, object, object]]:
        expect, last = self._expect, self._moved[-1] if self._moved else None
        yield "active", expect.active, last.active if last else "inactive"
        yield "sub", expect.sub, last.new if last else "dead"
        yield "result", expect.result, last.result if last else "success"
        yield "main", self._main, None if self._main_status is None else " ".join(exit_words(self._main_status))
        yield "status", expect.status, self._status
        yield "restarts", expect.restarts, self._restarts
        yield "left", expect.left, self._others + self._main_lives
        if expect.rc is not None:
            clients = range(START_CLIENT, START_CLIENT + len(expect.rc))
            yield "rc", expect.rc, [self._returned.get(client, "none") for client in clients]

    def _find_states(self) -> Iterable[Found]:
        states, rest = [what.new for what in self._moved], list(self._expect.states)
        for state in states:
            if rest and state == rest[0]:
                rest.pop(0)
        if rest:
            yield "expect.unit.states", f"expected {rest[0]!r}, got no such state; there were {', '.join(states)}", 0

    def _find_signals(self) -> Iterable[Found]:
        wanted = self._expect.signals
        if wanted is None:
            return
        pairs = [(text.split()[0], short_name(signal_number(text.split()[1]))) for text in wanted]
        conts = any(name == "CONT" for _whom, name in pairs)
        got = [(whom, name) for whom, name in self._signals if conts or name != "CONT"]
        for whom in ("main", "control", "others"):
            one, two = ([name for each, name in side if each == whom] for side in (pairs, got))
            if one != two:
                yield "expect.unit.signals", f"expected {_words(one)} to {whom}, got {_words(two)}", 0

    def _find_hooks(self) -> Iterable[Found]:
        wanted = self._expect.hooks
        if wanted is None:
            return
        runs, got = [text.split()[0] for text in wanted], [hook.run for hook in self._hooks]
        if runs != got:
            yield "expect.unit.hooks", f"expected {_words(runs)} to run, got {_words(got)}", 0
            return
        for text, hook in zip(wanted, self._hooks, strict=True):
            for word in text.split()[1:]:
                name, equals, value = word.removeprefix("!").partition("=")
                there = name in hook.environment and (not equals or hook.environment[name] == value)
                if there == word.startswith("!"):
                    told = " ".join(f"{key}={value}" for key, value in sorted(hook.environment.items()))
                    yield "expect.unit.hooks", f"expected {word} for {hook.run}, got {told or 'none'}", 0

    def _find_times(self) -> Iterable[Found]:
        if self._takes_ns is None and self._within_ns is None:
            return
        if self._down_ns is None or self._rest_ns is None:
            yield "expect.unit.takes", "expected the end of a stop, got none", 0
            return
        took_ns = self._rest_ns - self._down_ns
        text = durations.as_text(took_ns)
        if self._takes_ns is not None:
            late_ns = TOLERANCE_NS + TIMER_NS * self._expired
            if not -TOLERANCE_NS <= took_ns - self._takes_ns <= late_ns:
                limits = f"{durations.as_text(TOLERANCE_NS)} less to {durations.as_text(late_ns)} more"
                yield "expect.unit.takes", f"expected {self._expect.takes} ({limits}), got {text}", 0
        if self._within_ns is not None and took_ns > self._within_ns:
            yield "expect.unit.within", f"expected at most {self._expect.within}, got {text}", 0


def _status(value: int | str, where: str) -> str:
    """What `exit_words` says of it."""
    if isinstance(value, int):
        return f"exited {value}"
    try:
        return "killed " + short_name(signal_number(value))
    except ValueError as error:
        raise ScenarioError(f"{where}: {error}") from None


def _shown(value: object) -> str:
    if isinstance(value, list):
        return _words([str(one) for one in value])
    return "none" if value is None else str(value) or "nothing"


def _words(words: Sequence[str]) -> str:
    return ", ".join(words) or "none"
