"""What a real manager does with a unit, in the model's words: from its debug log, and from what its processes tell.

Manager and processes are seen from outside, so some of what the model says of itself is not here: timers, the number of
processes of the control group, and SIGKILL to a process that dies before it gets it.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Mapping
from typing import Literal

import msgspec

from brokerctl.durations import MS, S
from brokerctl.errors import KernelError
from brokerctl.model.unit.states import ACTIVE, AT_REST, Sub
from brokerctl.records import Booted, Exited, Line, Log, Start
from brokerctl.records.base import UNIT, Command
from brokerctl.records.units import (
    MAIN,
    Hook,
    KillOthers,
    KillProcess,
    Notified,
    Restarted,
    Sender,
    StatusText,
    UnitEffect,
    UnitEvent,
    UnitMoved,
)
from brokerctl.worlds.live.unit_acting import OTHERS

# `<30>Nov 29 21:25:17 systemd[1]: x.service: Changed dead -> start` (RFC 3164, as the journal forwards it).
_SYSLOG = re.compile(r"<(\d+)>\w{3} [ \d]\d [\d:]{8} systemd\[1\]: (.*)", re.DOTALL)
_DEBUG = 7
# The log comes by way of the journal, milliseconds after what processes tell themselves.
HOLD_NS = 30 * MS
# Signals to all processes of a control group come within milliseconds; rungs are further apart.
BURST_NS = S // 10
_SAYS = {
    "forked": re.compile(r"Forked (\S+) as (\d+)"),
    "moved": re.compile(r"Changed (\S+) -> (\S+)"),
    "exited": re.compile(r"(Main|Control) process exited, code=(\w+), status=(\d+)/(\w+).*"),
    "killing": re.compile(
        r"(?:Killing process|Sen(?:t|ding) signal SIGKILL to (?:main |control )?process) (\d+) \(.*\)"
        r" (?:with signal SIGKILL|on client request)\."
    ),
    "resulted": re.compile(r"(?:Failed with result|Skipped due to) '([\w-]+)'\."),
    "restart": re.compile(r"Scheduled restart job, restart counter is at (\d+)\."),
    "restarting": re.compile(r"Service will restart \(restart setting\)"),
    "heard": re.compile(r"Got notification message from PID (\d+) \((.*?)(\)?)", re.DOTALL),
}
_STATUS = re.compile(r"(?:^|, )STATUS=(.*?)(?:, [A-Z][A-Z_]*=|$)", re.DOTALL)
# Of systemd 254 and later, between states that were there before.
_PASSED = frozenset({"failed-before-auto-restart", "dead-before-auto-restart", "auto-restart-queued"})
_BEGINNINGS = frozenset({Sub.CONDITION, Sub.START_PRE, Sub.START, Sub.RUNNING})
# In these a signal whose sender nobody tells is the manager's.
_SIGNALLED = frozenset({Sub.STOP_SIGTERM, Sub.STOP_WATCHDOG, Sub.FINAL_SIGTERM, Sub.FINAL_WATCHDOG})
MANAGER, UNKNOWN = 1, -1


Way = Literal["<", ">"]


class Report(msgspec.Struct):
    """What a process of the unit tells (worlds/live/unit_acting.py)."""

    t_ns: int
    run: str
    what: str
    environment: dict[str, str] = {}
    signum: int = 0
    sender: int = 0
    text: str = ""
    child: bool = False


_decode_report = msgspec.json.Decoder(Report).decode


class Observer:
    """Makes lines of one unit; `state`, `main` and `control` are what it has seen last."""

    def __init__(self, unit: str, commands: Mapping[str, Command], sink: Callable[[Line], None]) -> None:
        self.unit = unit
        self.state = Sub.DEAD
        self.pids: dict[str, int] = {}  # of main and of control processes that live
        self._commands = commands
        self._sink = sink
        self._number = 0
        self._since_ns = self._last_ns = 0
        self._result = "success"
        self._again = False
        self._hook = ""  # a control process that has not told its environment yet
        self._others_ns: dict[int, int] = {}  # when they got that signal last
        self._buffer = b""
        self._statuses: list[str] = []  # that processes have sent
        self._reports: list[Report] = []  # not told yet
        self._silent: set[str] = set()  # puppets that were started and have told nothing yet

    def tell(self, now_ns: int, what: UnitEvent | UnitEffect | Booted | Exited | Start | Log, way: Way = ">") -> None:
        """Write a line; they are told in the order in which they come to be known."""
        self._last_ns = max(self._last_ns, now_ns)
        self._sink(Line(self._last_ns, UNIT, self._number, way, what))
        self._number += 1

    @property
    def at_rest(self) -> bool:
        """It is down, and is not about to be started again."""
        return self.state in AT_REST

    # ---- the manager's log

    def logged(self, now_ns: int, datagram: bytes) -> None:
        """Take in one message of the journal, which was sent at that time."""
        match = _SYSLOG.fullmatch(datagram.decode(errors="replace").rstrip("\n"))
        if match is None or not match[2].startswith(f"{self.unit}: "):
            return
        self.catch_up(now_ns)
        text = match[2].removeprefix(f"{self.unit}: ")
        for name, pattern in _SAYS.items():
            if found := pattern.fullmatch(text):
                getattr(self, f"_{name}")(now_ns, found)
                break
        level = int(match[1]) & 7
        if level < _DEBUG:
            self.tell(now_ns, Log("systemd", level, text))

    def _forked(self, now_ns: int, found: re.Match[str]) -> None:
        name = os.path.basename(found[1])  # noqa: PTH119 - a name, no path of ours
        run = MAIN if name.startswith(f"{MAIN}.") else name
        if name not in self._commands:
            return
        if run != MAIN:
            self._hook = run
        if self._commands[name].puppet:
            self._silent.add(run)
        self.pids[run] = int(found[2])
        self.tell(now_ns, Start(run, self._commands[name]))

    def _moved(self, now_ns: int, found: re.Match[str]) -> None:
        if found[2] in _PASSED or (self._again and found[2] in AT_REST):
            return  # on its way to auto-restart, which follows at once
        if found[2] not in set(Sub):
            raise KernelError(f"{self.unit}: this systemd has a state {found[2]!r}, which is not known here")
        old, new = self.state, Sub(found[2])
        self._again = False
        if new in _BEGINNINGS and (old in AT_REST or old is Sub.AUTO_RESTART):
            self._result = "success"
        if old is Sub.AUTO_RESTART and new in AT_REST:
            self._result = "success"  # it is unloaded
        held_ns = now_ns - self._since_ns if self._since_ns else 0
        self.state, self._since_ns = new, now_ns
        self.tell(now_ns, UnitMoved(ACTIVE[new], old, new, self._result, held_ns))

    def _exited(self, now_ns: int, found: re.Match[str]) -> None:
        control = next((run for run in self.pids if run != MAIN), "")
        run = MAIN if found[1] == "Main" else control
        if not run:
            return
        status = int(found[3]) << 8 if found[2] == "exited" else int(found[3]) | (0x80 if found[2] == "dumped" else 0)
        self._tell_reports([report for report in self._reports if report.run == run])
        self._silent.discard(run)
        if run == self._hook:  # it ended before it could tell, or could not be started
            self._hook = ""
            self.tell(now_ns, Hook(run, {}))
        self.pids.pop(run, None)
        self.tell(now_ns, Exited(run, status), "<")

    def _killing(self, now_ns: int, found: re.Match[str]) -> None:
        """SIGKILL, which nobody can tell of himself; of the other signals who gets them tells."""
        pid = int(found[1])
        run = next((run for run, known in self.pids.items() if known == pid), OTHERS)
        self._kill(now_ns, run, signal.SIGKILL)

    def _kill(self, now_ns: int, run: str, signum: int) -> None:
        if run != OTHERS:
            self.tell(now_ns, KillProcess(run, signum))
        elif now_ns - self._others_ns.get(signum, -BURST_NS) >= BURST_NS:  # to each of them, but it is one deed
            self._others_ns[signum] = now_ns
            self.tell(now_ns, KillOthers(signum))

    def _resulted(self, _now_ns: int, found: re.Match[str]) -> None:
        self._result = found[1]

    def _restarting(self, _now_ns: int, _found: re.Match[str]) -> None:
        self._again = True

    def _restart(self, now_ns: int, found: re.Match[str]) -> None:
        self.tell(now_ns, Restarted(int(found[1])))

    def _heard(self, now_ns: int, found: re.Match[str]) -> None:
        if status := _STATUS.search(found[2]):
            text = status[1]
            if not found[3]:  # the log cuts long lines; who sent it has told all of it
                text = next((one for one in self._statuses if one.startswith(text)), text)
            self.tell(now_ns, StatusText(text))

    # ---- what its processes tell

    def reported(self, data: bytes) -> None:
        """Take in what came through the FIFO. It is told later: the manager's log takes longer to come."""
        *rows, self._buffer = (self._buffer + data).split(b"\n")
        for row in rows:
            report = _decode_report(row)
            self._silent.discard(report.run)
            self._statuses += [line[7:] for line in report.text.split("\n") if line.startswith("STATUS=")]
            self._reports.append(report)

    def signalled(self, t_ns: int, signum: int) -> None:
        """A main process that is a broker tells of a signal in its trace, and not who sent it."""
        self._reports.append(Report(t_ns, MAIN, "signal", signum=signum, sender=UNKNOWN))

    def is_ready(self) -> bool:
        """Every process that was started and lives has taken its signals into its own hands."""
        return not self._silent

    def due(self) -> int | None:
        """When `catch_up` has something to tell."""
        return self._reports[0].t_ns + HOLD_NS if self._reports else None

    def catch_up(self, now_ns: int) -> None:
        """Tell what processes have told a while ago."""
        if self._reports and self._reports[0].t_ns + HOLD_NS <= now_ns:
            # With what came just after the first: signals that were sent together are told together.
            until_ns = max(now_ns - HOLD_NS, self._reports[0].t_ns + HOLD_NS)
            self._tell_reports([report for report in self._reports if report.t_ns <= until_ns])

    def _tell_reports(self, told: list[Report]) -> None:
        """Tell these, which were held back."""
        self._reports = [report for report in self._reports if report not in told]
        # A process takes the signal with the lower number first; the manager sends SIGHUP after the other one.
        told.sort(key=lambda report: report.what == "signal" and report.signum == signal.SIGHUP)
        for report in told:
            if report.what == "began" and report.run != MAIN:
                self._hook = ""
                self.tell(report.t_ns, Hook(report.run, _in_words(report.environment)))
            elif report.what == "signal":
                if report.sender == MANAGER or (report.sender == UNKNOWN and self.state in _SIGNALLED):
                    self._kill(report.t_ns, report.run, report.signum)
            elif report.what == "said":
                sender: Sender = "child" if report.child else "main" if report.run == MAIN else "control"
                self.tell(report.t_ns, Notified(sender, report.text), "<")


def _in_words(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a hook, without numbers and paths that mean nothing elsewhere."""
    told = dict(environment)
    if "MAINPID" in told:
        told["MAINPID"] = MAIN
    if "NOTIFY_SOCKET" in told:
        told["NOTIFY_SOCKET"] = "notify"
    return told
