"""What the helper asks of systemd, through `systemctl`: every call is bounded, and a lost connection is no answer.

`systemctl` as a child, and not its bus: a client that is killed and reaped has asked for nothing more (SYSTEMD.md 96).
"""

from __future__ import annotations

import os
import time

from brokerctl.perilog import processes

# The unit's own TimeoutStopSec, 20 s, ends a script that ignores SIGTERM; this comes after it, and all of it before the
# 60 s after which Flux gives up a helper (kill-timeout, flux-config-job-manager(5)).
STOP_PATIENCE_NS = 30_000_000_000
KILL_PATIENCE_NS = 5_000_000_000
_ASK_LIMIT_NS = 5_000_000_000
_AGAIN_NS = 50_000_000
_OPTIONS = ("--no-ask-password", "--")
DOWN = frozenset({"inactive", "failed"})
UNKNOWN = "unknown"


def booted() -> bool:
    """Whether systemd runs this node at all (sd_booted(3))."""
    return os.path.isdir("/run/systemd/system")  # noqa: PTH112 - lean


def start_command(unit: str) -> list[str]:
    """The command that starts a unit, or joins its start, and waits until it has ended."""
    return ["systemctl", "start", *_OPTIONS, unit]


def state(unit: str) -> str:
    """ActiveState (`activating` also while a job waits for its turn); `unknown` where nobody answers."""
    code, text = processes.run(["systemctl", "show", "--property=ActiveState,Job", "--", unit], _ASK_LIMIT_NS)
    words = dict(line.partition("=")[::2] for line in text.splitlines())
    if code != 0 or "ActiveState" not in words:
        return UNKNOWN
    down = words["ActiveState"] in DOWN
    return "activating" if down and words.get("Job", "") not in {"", "0"} else words["ActiveState"]


def runs(unit: str) -> bool:
    """Whether a unit runs, is about to, or may for all that we know."""
    return state(unit) not in DOWN


def stop(unit: str) -> bool:
    """Stop a unit for certain, a job that starts it included; False if even SIGKILL didn't end it in time."""
    deadline_ns = time.monotonic_ns() + STOP_PATIENCE_NS
    while (left_ns := deadline_ns - time.monotonic_ns()) > 0:
        processes.run(["systemctl", "stop", *_OPTIONS, unit], left_ns)
        if not runs(unit):
            return True
        time.sleep(_AGAIN_NS / 1e9)  # systemd is executing itself anew, or somebody has started it again
    deadline_ns = time.monotonic_ns() + KILL_PATIENCE_NS
    processes.run(["systemctl", "kill", "--signal=KILL", *_OPTIONS, unit], KILL_PATIENCE_NS)
    while runs(unit):
        if time.monotonic_ns() > deadline_ns:
            return False
        time.sleep(_AGAIN_NS / 1e9)
    return True


def node_stops() -> bool:
    """Whether the node is shutting down: nothing can be started then (SYSTEMD.md 71)."""
    return processes.run(["systemctl", "is-system-running"], _ASK_LIMIT_NS)[1] == "stopping"
