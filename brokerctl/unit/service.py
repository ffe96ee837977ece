"""A service unit's files as the record that the model of systemd runs on."""

from __future__ import annotations

from brokerctl.durations import LIMIT_NS
from brokerctl.records.units import ExecLine, NotifyAccess, UnitSettings
from brokerctl.unit.merge import Unit


def settings(unit: Unit) -> UnitSettings:
    """What the unit says of start, stop and restart; what is not said, or can't be read, is systemd's default.

    A oneshot without TimeoutStartSec has none (SYSTEMD.md 90), and TimeoutAbortSec is as TimeoutStopSec.
    """
    value = unit.value
    start_ns = value("TimeoutStartSec")
    if value("Type") == "oneshot" and not start_limit(unit):
        start_ns = None
    abort_set = unit.last("TimeoutAbortSec") is not None
    return UnitSettings(
        type=value("Type"),
        exit_type=value("ExitType"),
        exec_condition=_lines(unit, "ExecCondition"),
        exec_start_pre=_lines(unit, "ExecStartPre"),
        exec_start=_lines(unit, "ExecStart"),
        exec_start_post=_lines(unit, "ExecStartPost"),
        exec_reload=_lines(unit, "ExecReload"),
        exec_stop=_lines(unit, "ExecStop"),
        exec_stop_post=_lines(unit, "ExecStopPost"),
        timeout_start_ns=start_ns,
        timeout_stop_ns=value("TimeoutStopSec"),
        timeout_abort_ns=value("TimeoutAbortSec") if abort_set else value("TimeoutStopSec"),
        timeout_start_failure_mode=value("TimeoutStartFailureMode"),
        timeout_stop_failure_mode=value("TimeoutStopFailureMode"),
        runtime_max_ns=value("RuntimeMaxSec"),
        watchdog_ns=value("WatchdogSec") or 0,
        remain_after_exit=value("RemainAfterExit"),
        restart=value("Restart"),
        restart_ns=_finite(value("RestartSec")),
        success_exit_status=value("SuccessExitStatus"),
        restart_prevent_exit_status=value("RestartPreventExitStatus"),
        restart_force_exit_status=value("RestartForceExitStatus"),
        start_limit_burst=value("StartLimitBurst", "Unit"),
        start_limit_interval_ns=_finite(value("StartLimitIntervalSec", "Unit")),
        kill_mode=value("KillMode"),
        kill_signal=value("KillSignal"),
        restart_kill_signal=value("RestartKillSignal"),
        final_kill_signal=value("FinalKillSignal"),
        watchdog_signal=value("WatchdogSignal"),
        send_sigkill=value("SendSIGKILL"),
        send_sighup=value("SendSIGHUP"),
        notify_access=notify_access(unit),
        collect_mode=value("CollectMode", "Unit"),
    )


def start_limit(unit: Unit) -> bool:
    """Whether the unit itself limits its start."""
    return any(unit.last(key) is not None for key in ("TimeoutStartSec", "TimeoutSec"))


def notify_access(unit: Unit) -> NotifyAccess:
    """What holds in the end: Type=notify and a watchdog turn `none` into `main` (SYSTEMD.md 35)."""
    access: NotifyAccess = unit.value("NotifyAccess")
    if access == "none" and (unit.value("Type") == "notify" or unit.value("WatchdogSec") != 0):
        return "main"
    return access


def _finite(limit_ns: int | None) -> int:
    """For ever is a century where the model has no word for it."""
    return LIMIT_NS if limit_ns is None else limit_ns


def _lines(unit: Unit, key: str) -> tuple[ExecLine, ...]:
    return tuple(command.record(unit.name) for command in unit.commands(key))
