"""The settings that bear on start, stop and restart: how each is read, its default, how several lines add up.

Defaults are those of systemd 252. What stands in no table here is kept as text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from brokerctl.durations import MS, S
from brokerctl.records.units import ExitStatuses
from brokerctl.unit import values

# DefaultTimeoutStartSec=, DefaultTimeoutStopSec=, DefaultRestartSec= and so on, as built in (systemd-system.conf(5)).
DEFAULT_TIMEOUT_NS = 90 * S
EXEC = (
    "ExecCondition", "ExecStartPre", "ExecStart", "ExecStartPost", "ExecReload", "ExecStop", "ExecStopPost",
)  # fmt: skip


class Key(msgspec.Struct, frozen=True):
    """How a setting is read.

    An empty value `resets` it, or is unreadable like any other nonsense. `join` adds a line to those before it, else
    the last one holds. `sets` are the keys, each with its section, that it stands for.
    """

    read: Callable[[str], Any]
    default: Any = None
    resets: bool = False
    join: Callable[[Any, Any], Any] | None = None
    sets: tuple[tuple[str, str], ...] = ()


def _together(old: ExitStatuses, new: ExitStatuses) -> ExitStatuses:
    return ExitStatuses(
        tuple(sorted({*old.codes, *new.codes})),
        tuple(sorted({*old.signals, *new.signals})),
    )


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 10):
        raise ValueError(f"{text!r} is no number; expected 0 or more")
    return int(text)


_TYPES = values.one_of("simple", "exec", "forking", "oneshot", "dbus", "notify", "idle")


def _type(text: str) -> str:
    # That of systemd 253 differs in how it reloads.
    return "notify" if text == "notify-reload" else _TYPES(text)


_FAILURE_MODE = values.one_of("terminate", "abort", "kill")
_STATUSES = Key(values.exit_statuses, ExitStatuses(), resets=True, join=_together)
_BOOL = Key(values.boolean, default=False)
_SIGNAL = values.signal_number
_TEXT = Key(str, "", resets=True)

_SERVICE: Mapping[str, Key] = {
    "Type": Key(_type, "simple"),
    "ExitType": Key(values.one_of("main", "cgroup"), "main"),
    "Restart": Key(
        values.one_of("no", "on-success", "on-failure", "on-abnormal", "on-watchdog", "on-abort", "always"), "no"
    ),
    "RestartSec": Key(values.span, 100 * MS),
    "TimeoutStartSec": Key(values.timeout, DEFAULT_TIMEOUT_NS),
    "TimeoutStopSec": Key(values.timeout, DEFAULT_TIMEOUT_NS),
    "TimeoutSec": Key(values.timeout, sets=(("Service", "TimeoutStartSec"), ("Service", "TimeoutStopSec"))),
    "TimeoutAbortSec": Key(values.span, resets=True),
    "TimeoutStartFailureMode": Key(_FAILURE_MODE, "terminate"),
    "TimeoutStopFailureMode": Key(_FAILURE_MODE, "terminate"),
    "RuntimeMaxSec": Key(values.span),
    "WatchdogSec": Key(values.span, 0),
    "RemainAfterExit": _BOOL,
    "SuccessExitStatus": _STATUSES,
    "RestartPreventExitStatus": _STATUSES,
    "RestartForceExitStatus": _STATUSES,
    "NotifyAccess": Key(values.one_of("none", "main", "exec", "all"), "none"),
    "PermissionsStartOnly": _BOOL,
    "KillMode": Key(values.one_of("control-group", "mixed", "process", "none"), "control-group", resets=True),
    "KillSignal": Key(_SIGNAL, 15),
    "RestartKillSignal": Key(_SIGNAL),
    "FinalKillSignal": Key(_SIGNAL, 9),
    "WatchdogSignal": Key(_SIGNAL, 6),
    "SendSIGKILL": Key(values.boolean, default=True),
    "SendSIGHUP": _BOOL,
    "User": _TEXT,
}

_UNIT: Mapping[str, Key] = {
    "DefaultDependencies": Key(values.boolean, default=True),
    "StartLimitIntervalSec": Key(values.span, 10 * S),
    "StartLimitBurst": Key(_count, 5),
    "CollectMode": Key(values.one_of("inactive", "inactive-or-failed"), "inactive"),
    "JobTimeoutSec": Key(values.span),
}

_INTERVAL = msgspec.structs.replace(_UNIT["StartLimitIntervalSec"], sets=(("Unit", "StartLimitIntervalSec"),))
_BURST = msgspec.structs.replace(_UNIT["StartLimitBurst"], sets=(("Unit", "StartLimitBurst"),))

KEYS: Mapping[tuple[str, str], Key] = {
    **{("Service", name): key for name, key in _SERVICE.items()},
    **{("Unit", name): key for name, key in _UNIT.items()},
    # Where they stood before systemd 230, which is still read.
    ("Service", "StartLimitInterval"): _INTERVAL,
    ("Unit", "StartLimitInterval"): _INTERVAL,
    ("Service", "StartLimitBurst"): _BURST,
}
