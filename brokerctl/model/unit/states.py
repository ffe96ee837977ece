"""The states of a service unit, and what each does with what happens. This file owns every such decision.

As systemd 252 was seen to do (SYSTEMD.md A–G). A state is a SubState; `ACTIVE` has its ActiveState. `TABLE` says what
is done when something happens in a state; how, `start` and `stop` say. What a state does not list changes nothing: a
process that it does not wait for has ended, or it is on its way already.

`main-…` and `control-…` are the ends of those processes. In the states of `BOTH_GONE` they count when the other one has
ended, too. `control-ok` is the end of the last line of a list; a `-` line never fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Sub(StrEnum):
    """SubState of a service."""

    DEAD = "dead"
    CONDITION = "condition"
    START_PRE = "start-pre"
    START = "start"
    START_POST = "start-post"
    RUNNING = "running"
    EXITED = "exited"
    RELOAD = "reload"
    STOP = "stop"
    STOP_WATCHDOG = "stop-watchdog"
    STOP_SIGTERM = "stop-sigterm"
    STOP_SIGKILL = "stop-sigkill"
    STOP_POST = "stop-post"
    FINAL_WATCHDOG = "final-watchdog"
    FINAL_SIGTERM = "final-sigterm"
    FINAL_SIGKILL = "final-sigkill"
    FAILED = "failed"
    AUTO_RESTART = "auto-restart"


class What(StrEnum):
    """What may happen to a unit."""

    START = "start"
    STOP = "stop"  # somebody asks for it
    RELOAD = "reload"
    READY = "ready"  # READY=1
    STOPPING = "stopping"  # STOPPING=1
    WATCHDOG = "watchdog"  # missed, or triggered
    MAIN_OK = "main-ok"
    MAIN_FAILED = "main-failed"
    CONTROL_OK = "control-ok"
    CONTROL_FAILED = "control-failed"
    EMPTY = "empty"  # no process is left in the control group
    TIMEOUT = "timeout"


class Do(StrEnum):
    """What is done then; `→ state` where it is one step."""

    CONDITION = "→ condition, or the next that has a line"
    START_PRE = "→ start-pre, or start"
    START = "→ start"
    START_POST = "→ start-post, or running"
    RUN = "→ running, if anything runs; else stop"
    EARLY = "main ended before the unit was started"
    RELOAD = "→ reload"
    RELOADED = "→ running; the reload has failed if its process did"
    RELOAD_TIMEOUT = "kill the reload process → running"
    EXEC_STOP = "→ stop, or stop-sigterm without ExecStop="
    SIGTERM = "→ stop-sigterm"
    NO_SIGNAL = "→ stop-sigterm, and no signal"
    SIGABRT = "→ stop-watchdog"
    SIGKILL = "→ stop-sigkill"
    EXEC_STOP_POST = "→ stop-post, or final-sigterm without ExecStopPost="
    FINAL_SIGTERM = "→ final-sigterm"
    FINAL_SIGKILL = "→ final-sigkill"
    END = "→ dead or failed, and perhaps restart"
    START_AGAIN = "restart"
    REST = "→ dead"
    # A timeout: by the failure mode, terminate, abort or kill.
    START_EXPIRED = "stop-sigterm, stop-watchdog or stop-sigkill, by TimeoutStartFailureMode="
    STOP_EXPIRED = "stop-sigterm, stop-watchdog or stop-sigkill, by TimeoutStopFailureMode="
    SIGTERM_EXPIRED = "stop-sigkill; stop-watchdog with TimeoutStopFailureMode=abort"
    POST_EXPIRED = "final-sigterm, final-watchdog or final-sigkill, by TimeoutStopFailureMode="
    FINAL_EXPIRED = "final-sigkill; final-watchdog with TimeoutStopFailureMode=abort"


ACTIVE: Mapping[Sub, str] = {
    Sub.DEAD: "inactive",
    Sub.CONDITION: "activating",
    Sub.START_PRE: "activating",
    Sub.START: "activating",
    Sub.START_POST: "activating",
    Sub.RUNNING: "active",
    Sub.EXITED: "active",
    Sub.RELOAD: "reloading",
    Sub.STOP: "deactivating",
    Sub.STOP_WATCHDOG: "deactivating",
    Sub.STOP_SIGTERM: "deactivating",
    Sub.STOP_SIGKILL: "deactivating",
    Sub.STOP_POST: "deactivating",
    Sub.FINAL_WATCHDOG: "deactivating",
    Sub.FINAL_SIGTERM: "deactivating",
    Sub.FINAL_SIGKILL: "deactivating",
    Sub.FAILED: "failed",
    Sub.AUTO_RESTART: "activating",
}

# How long each may last: the setting's name; the others have no end by themselves.
LIMITS: Mapping[Sub, str] = {
    Sub.CONDITION: "timeout_start_ns",
    Sub.START_PRE: "timeout_start_ns",
    Sub.START: "timeout_start_ns",
    Sub.START_POST: "timeout_start_ns",
    Sub.RUNNING: "runtime_max_ns",
    Sub.RELOAD: "timeout_start_ns",
    Sub.STOP: "timeout_stop_ns",
    Sub.STOP_WATCHDOG: "timeout_abort_ns",
    Sub.STOP_SIGTERM: "timeout_stop_ns",
    Sub.STOP_SIGKILL: "timeout_stop_ns",
    Sub.STOP_POST: "timeout_stop_ns",
    Sub.FINAL_WATCHDOG: "timeout_abort_ns",
    Sub.FINAL_SIGTERM: "timeout_stop_ns",
    Sub.FINAL_SIGKILL: "timeout_stop_ns",
    Sub.AUTO_RESTART: "restart_ns",
}

# A watchdog goes on in these; in any other it rests, until a message wakes it (SYSTEMD.md 83).
WATCHED = frozenset({Sub.START_POST, Sub.RUNNING, Sub.RELOAD})
AT_REST = frozenset({Sub.DEAD, Sub.FAILED})
UP = frozenset({"active", "reloading"})

# Signals were sent to both, and both are waited for.
BOTH_GONE = frozenset(
    {
        Sub.STOP_WATCHDOG,
        Sub.STOP_SIGTERM,
        Sub.STOP_SIGKILL,
        Sub.FINAL_WATCHDOG,
        Sub.FINAL_SIGTERM,
        Sub.FINAL_SIGKILL,
    }
)
# Where the next line of a oneshot's ExecStart= follows one that has ended well: also if SIGTERM has ended it.
NEXT_MAIN = BOTH_GONE | {Sub.START}

W = What

TABLE: Mapping[Sub, Mapping[What, Do]] = {
    Sub.DEAD: {
        W.START: Do.CONDITION,
    },
    Sub.CONDITION: {
        W.STOP: Do.SIGTERM,  # SYSTEMD.md 61
        W.CONTROL_OK: Do.START_PRE,
        W.CONTROL_FAILED: Do.SIGTERM,
        W.TIMEOUT: Do.START_EXPIRED,
    },
    Sub.START_PRE: {
        W.STOP: Do.SIGTERM,
        W.CONTROL_OK: Do.START,
        W.CONTROL_FAILED: Do.SIGTERM,  # 58
        W.TIMEOUT: Do.START_EXPIRED,
    },
    Sub.START: {
        W.STOP: Do.SIGTERM,
        W.READY: Do.START_POST,
        W.MAIN_OK: Do.EARLY,
        W.MAIN_FAILED: Do.SIGTERM,
        W.TIMEOUT: Do.START_EXPIRED,
        W.WATCHDOG: Do.SIGABRT,  # here and in the stop: a message has woken it (83)
    },
    Sub.START_POST: {
        W.STOP: Do.SIGTERM,
        W.CONTROL_OK: Do.RUN,
        W.CONTROL_FAILED: Do.SIGTERM,
        W.TIMEOUT: Do.START_EXPIRED,
        W.WATCHDOG: Do.SIGABRT,
    },
    Sub.RUNNING: {
        W.STOP: Do.EXEC_STOP,  # 1, 55
        W.RELOAD: Do.RELOAD,
        W.STOPPING: Do.NO_SIGNAL,  # 44
        W.MAIN_OK: Do.RUN,  # 56: nothing runs any more, so ExecStop
        W.MAIN_FAILED: Do.SIGTERM,  # 57: no ExecStop
        W.EMPTY: Do.RUN,
        W.TIMEOUT: Do.EXEC_STOP,  # 60: RuntimeMaxSec
        W.WATCHDOG: Do.SIGABRT,  # 82
    },
    Sub.EXITED: {
        W.STOP: Do.EXEC_STOP,
        W.RELOAD: Do.RELOAD,
    },
    Sub.RELOAD: {
        W.STOP: Do.SIGTERM,  # 62
        W.CONTROL_OK: Do.RELOADED,
        W.CONTROL_FAILED: Do.RELOADED,  # 69
        W.TIMEOUT: Do.RELOAD_TIMEOUT,
        W.WATCHDOG: Do.SIGABRT,
    },
    Sub.STOP: {
        W.CONTROL_OK: Do.SIGTERM,  # 1, 2
        W.CONTROL_FAILED: Do.SIGTERM,  # 8: the rest of the lines is skipped
        W.TIMEOUT: Do.STOP_EXPIRED,  # 26
        W.WATCHDOG: Do.SIGABRT,
    },
    Sub.STOP_WATCHDOG: {
        W.STOP: Do.SIGTERM,
        W.MAIN_OK: Do.EXEC_STOP_POST,
        W.MAIN_FAILED: Do.EXEC_STOP_POST,
        W.CONTROL_OK: Do.EXEC_STOP_POST,
        W.CONTROL_FAILED: Do.EXEC_STOP_POST,
        W.EMPTY: Do.EXEC_STOP_POST,
        W.TIMEOUT: Do.SIGKILL,
        W.WATCHDOG: Do.SIGABRT,
    },
    Sub.STOP_SIGTERM: {
        W.MAIN_OK: Do.EXEC_STOP_POST,
        W.MAIN_FAILED: Do.EXEC_STOP_POST,
        W.CONTROL_OK: Do.EXEC_STOP_POST,
        W.CONTROL_FAILED: Do.EXEC_STOP_POST,
        W.EMPTY: Do.EXEC_STOP_POST,
        W.TIMEOUT: Do.SIGTERM_EXPIRED,  # 27
        W.WATCHDOG: Do.SIGABRT,
    },
    Sub.STOP_SIGKILL: {
        W.MAIN_OK: Do.EXEC_STOP_POST,
        W.MAIN_FAILED: Do.EXEC_STOP_POST,
        W.CONTROL_OK: Do.EXEC_STOP_POST,
        W.CONTROL_FAILED: Do.EXEC_STOP_POST,
        W.EMPTY: Do.EXEC_STOP_POST,
        W.TIMEOUT: Do.EXEC_STOP_POST,  # what survives SIGKILL is left behind
    },
    Sub.STOP_POST: {
        W.CONTROL_OK: Do.FINAL_SIGTERM,
        W.CONTROL_FAILED: Do.FINAL_SIGTERM,
        W.TIMEOUT: Do.POST_EXPIRED,
        W.WATCHDOG: Do.SIGABRT,  # ExecStopPost= then runs again
    },
    Sub.FINAL_WATCHDOG: {
        W.MAIN_OK: Do.END,
        W.MAIN_FAILED: Do.END,
        W.CONTROL_OK: Do.END,
        W.CONTROL_FAILED: Do.END,
        W.EMPTY: Do.END,
        W.TIMEOUT: Do.FINAL_SIGKILL,
    },
    Sub.FINAL_SIGTERM: {
        W.MAIN_OK: Do.END,
        W.MAIN_FAILED: Do.END,
        W.CONTROL_OK: Do.END,
        W.CONTROL_FAILED: Do.END,
        W.EMPTY: Do.END,
        W.TIMEOUT: Do.FINAL_EXPIRED,  # 29
    },
    Sub.FINAL_SIGKILL: {
        W.MAIN_OK: Do.END,
        W.MAIN_FAILED: Do.END,
        W.CONTROL_OK: Do.END,
        W.CONTROL_FAILED: Do.END,
        W.EMPTY: Do.END,
        W.TIMEOUT: Do.END,
    },
    Sub.FAILED: {
        W.START: Do.CONDITION,
    },
    Sub.AUTO_RESTART: {
        W.START: Do.CONDITION,
        W.STOP: Do.REST,  # 63
        W.TIMEOUT: Do.START_AGAIN,
    },
}
