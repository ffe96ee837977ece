"""What a process's end means for a unit: Result, success, restart (SYSTEMD.md A, G)."""

from __future__ import annotations

from typing import Literal

from brokerctl.records.units import ExitStatuses, Restart, UnitSettings

# `Result`; the first failure wins (SYSTEMD.md 17).
Result = Literal[
    "success",
    "exit-code",
    "signal",
    "core-dump",
    "timeout",
    "watchdog",
    "protocol",
    "start-limit-hit",
    "exec-condition",
]
SUCCESS: Result = "success"

HUP, INT, PIPE, TERM = 1, 2, 13, 15
# What a daemon may die of and has ended cleanly (SYSTEMD.md 13); no control process and no oneshot may (4, 90).
CLEAN_SIGNALS = frozenset({HUP, INT, PIPE, TERM})
EXIT_EXEC = 203  # the manager could not execute the command (SYSTEMD.md 2)
_SKIP_MAX = 254  # ExecCondition: 1 to this skip the unit, 255 fails it (systemd.service(5))

# For which results each `Restart=` restarts.
RESTARTS: dict[Restart, frozenset[Result]] = {
    "no": frozenset(),
    "on-success": frozenset({"success"}),
    "on-failure": frozenset({"exit-code", "signal", "core-dump", "timeout", "watchdog", "protocol"}),
    "on-abnormal": frozenset({"signal", "core-dump", "timeout", "watchdog", "protocol"}),
    "on-watchdog": frozenset({"watchdog"}),
    "on-abort": frozenset({"signal", "core-dump"}),
    "always": frozenset({"success", "exit-code", "signal", "core-dump", "timeout", "watchdog", "protocol"}),
}


def is_listed(status: int, listed: ExitStatuses) -> bool:
    """The wait status is in that list of codes and signals."""
    signum = status & 0x7F
    return signum in listed.signals if signum else status >> 8 in listed.codes


def verdict(status: int, settings: UnitSettings, *, daemon: bool) -> Result:
    """What this wait status would make of the Result."""
    signum, dumped = status & 0x7F, status & 0x80
    if is_listed(status, settings.success_exit_status) and not dumped:
        return SUCCESS  # control processes too (SYSTEMD.md 5)
    if not signum:
        return "exit-code" if status >> 8 else SUCCESS
    if daemon and signum in CLEAN_SIGNALS:
        return SUCCESS
    return "core-dump" if dumped else "signal"


def condition(status: int, settings: UnitSettings) -> Result:
    """What the end of an ExecCondition= makes of the Result (SYSTEMD.md 59)."""
    found = verdict(status, settings, daemon=False)
    return "exec-condition" if found == "exit-code" and status >> 8 <= _SKIP_MAX else found


def is_failure(result: Result) -> bool:
    """The unit ends in `failed`."""
    return result not in {SUCCESS, "exec-condition"}


def restarts(result: Result, main_status: int | None, settings: UnitSettings) -> bool:
    """Whether Restart= restarts a unit that nobody stopped (SYSTEMD.md 86, 88)."""
    if main_status is not None:
        if is_listed(main_status, settings.restart_prevent_exit_status):
            return False
        if is_listed(main_status, settings.restart_force_exit_status):
            return True
    return result in RESTARTS[settings.restart]
