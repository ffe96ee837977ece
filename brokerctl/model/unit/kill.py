"""Whom a stop signals: KillMode=, and the signals of each rung (SYSTEMD.md E, systemd.kill(5))."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from brokerctl.records.units import MAIN, KillOthers, KillProcess

if TYPE_CHECKING:
    from brokerctl.model.unit.machine import Unit

SIGHUP, SIGKILL, SIGCONT = 1, 9, 18


class Operation(StrEnum):
    """Which rung."""

    TERMINATE = "terminate"
    RESTART = "restart"  # to terminate, for a restart
    WATCHDOG = "watchdog"
    KILL = "kill"


def kill(unit: Unit, operation: Operation) -> bool:
    """Signal them; whether anybody was there to be waited for."""
    settings, signum = unit.settings, _signum(unit, operation)
    if settings.kill_mode == "none":
        return False
    hangup = settings.send_sighup and operation is Operation.TERMINATE and signum != SIGHUP
    runs = [MAIN] if unit.main else []
    runs += [unit.control] if unit.control else []
    for run in runs:
        unit.emit(KillProcess(run, signum))
        if signum not in {SIGKILL, SIGCONT}:
            unit.emit(KillProcess(run, SIGCONT))  # a stopped process could not end (79)
        if hangup:
            unit.emit(KillProcess(run, SIGHUP))
    all_at_once = settings.kill_mode == "control-group"
    at_last = settings.kill_mode == "mixed" and operation is Operation.KILL  # 72
    reached = unit.others > 0 and (all_at_once or at_last)
    if reached:
        unit.emit(KillOthers(signum))
        if hangup:
            unit.emit(KillOthers(SIGHUP))
    return bool(runs) or reached


def _signum(unit: Unit, operation: Operation) -> int:
    settings = unit.settings
    if operation is Operation.KILL:
        return settings.final_kill_signal
    if operation is Operation.WATCHDOG:
        return settings.watchdog_signal
    if operation is Operation.RESTART and settings.restart_kill_signal is not None:
        return settings.restart_kill_signal
    return settings.kill_signal
