"""A service unit: its parameters, what it learns, and what it does. Names are systemd's, in snake_case.

A unit stands in a trace at the pseudo-rank `UNIT`. Besides what stands here it knows `Booted`, `Exited`, `SpawnFailed`
and `Fired`, and says `Start`, `Arm`, `Cancel` and `Log`. `main` is the run of its main process; any other run
is the one control process, named for its line: `exec-stop.0`, `exec-stop-post.1`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from brokerctl.durations import S
from brokerctl.records.base import Command, Record
from brokerctl.records.effects import Fact, Order
from brokerctl.records.events import Event

MAIN = "main"

ServiceType = Literal["simple", "exec", "forking", "oneshot", "dbus", "notify", "idle"]
ExitType = Literal["main", "cgroup"]
KillMode = Literal["control-group", "mixed", "process", "none"]
NotifyAccess = Literal["none", "main", "exec", "all"]
FailureMode = Literal["terminate", "abort", "kill"]
Restart = Literal["no", "on-success", "on-failure", "on-abnormal", "on-watchdog", "on-abort", "always"]
CollectMode = Literal["inactive", "inactive-or-failed"]
Sender = Literal["main", "control", "child", "outside"]


class ExecLine(Record, frozen=True):
    """One command of `Exec…=`; `ignore_failure` is its `-`, `prefixes` the others of `@:+!` as they stand."""

    command: Command
    ignore_failure: bool = False
    prefixes: str = ""


class ExitStatuses(Record, frozen=True):
    """A list of exit codes and of signals (their numbers), as `SuccessExitStatus=` has it."""

    codes: tuple[int, ...] = ()
    signals: tuple[int, ...] = ()


class UnitSettings(Record, frozen=True, kw_only=True, tag=False):
    """What a service unit says of start, stop and restart (systemd.service(5), systemd.kill(5), systemd.unit(5)).

    Durations are nanoseconds, None is `infinity` (and systemd's 0, where that means the same). Defaults are those of
    systemd 252; `timeout_start_ns` of a oneshot is `infinity` where nothing is said, and `timeout_abort_ns` is as
    `timeout_stop_ns`: who reads a unit decides that.
    """

    type: ServiceType = "simple"
    exit_type: ExitType = "main"
    exec_condition: tuple[ExecLine, ...] = ()
    exec_start_pre: tuple[ExecLine, ...] = ()
    exec_start: tuple[ExecLine, ...] = ()
    exec_start_post: tuple[ExecLine, ...] = ()
    exec_reload: tuple[ExecLine, ...] = ()
    exec_stop: tuple[ExecLine, ...] = ()
    exec_stop_post: tuple[ExecLine, ...] = ()
    timeout_start_ns: int | None = 90 * S
    timeout_stop_ns: int | None = 90 * S
    timeout_abort_ns: int | None = 90 * S
    timeout_start_failure_mode: FailureMode = "terminate"
    timeout_stop_failure_mode: FailureMode = "terminate"
    runtime_max_ns: int | None = None
    watchdog_ns: int = 0  # 0: there is none
    remain_after_exit: bool = False
    restart: Restart = "no"
    restart_ns: int = S // 10
    success_exit_status: ExitStatuses = ExitStatuses()
    restart_prevent_exit_status: ExitStatuses = ExitStatuses()
    restart_force_exit_status: ExitStatuses = ExitStatuses()
    start_limit_burst: int = 5
    start_limit_interval_ns: int = 10 * S
    kill_mode: KillMode = "control-group"
    kill_signal: int = 15
    restart_kill_signal: int | None = None  # as `kill_signal`
    final_kill_signal: int = 9
    watchdog_signal: int = 6
    send_sigkill: bool = True
    send_sighup: bool = False
    notify_access: NotifyAccess | None = None  # `main` with `type` notify, else `none`
    collect_mode: CollectMode = "inactive"


# ---- what a unit learns


class Systemctl(Event, frozen=True):
    """A client asks, as systemctl(1) does: `stop`, `start`, `restart`, `reload`, `kill`, `cancel`, `daemon-reload`,
    `reset-failed`, `freeze`, `thaw`, or `shutdown` (the machine goes down). It hears `Returned`.

    `whom` and `signum` are of `kill`.
    """  # noqa: D205

    verb: str
    client: int
    whom: Literal["all", "main", "control"] = "all"
    signum: int = 15


class Notified(Event, frozen=True):
    """A datagram came to the manager's socket (sd_notify(3)); `sender` is who in the unit sent it."""

    sender: Sender
    text: str


class Populated(Event, frozen=True):
    """So many processes are in the unit's control group, main and control process apart."""

    others: int


# ---- what a unit does


class KillProcess(Order, frozen=True):
    """Signal main or the control process, by its run, and not its children."""

    run: str
    signum: int


class KillOthers(Order, frozen=True):
    """Signal every process of the control group but main and control process."""

    signum: int


class Freeze(Order, frozen=True):
    """The control group's freezer: no process of it runs until it is thawed; SIGKILL ends it all the same."""

    frozen: bool


class Returned(Order, frozen=True):
    """A client's systemctl ends with this code; `said` is what it printed about its job."""

    client: int
    rc: int
    said: str = ""


class UnitMoved(Fact, frozen=True):
    """The unit has changed its state: ActiveState, SubState (`old` is the one before) and Result."""

    active: str
    old: str
    new: str
    result: str
    held_ns: int


class Hook(Fact, frozen=True):
    """A control process is about to start, with these variables (of those that depend on what happened).

    MAINPID is `main`, NOTIFY_SOCKET `notify`: their values mean nothing elsewhere.
    """

    run: str
    environment: Mapping[str, str]


class StatusText(Fact, frozen=True):
    """STATUS= was taken over; `systemctl status` shows it."""

    text: str


class Restarted(Fact, frozen=True):
    """An automatic restart has been scheduled: NRestarts."""

    count: int


UnitEvent = Systemctl | Notified | Populated
UnitEffect = KillProcess | KillOthers | Freeze | Returned | UnitMoved | Hook | StatusText | Restarted
