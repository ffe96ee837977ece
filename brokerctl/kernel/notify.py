"""Messages to the service manager (sd_notify(3)), byte for byte what was meant.

The socket is the one that `sdnotify` sets up. Its own `notify` is not used: it encodes as Latin-1 and swallows the
error, so a text with a Flux job id (`ƒ39firM4HrF`) is lost without a word.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

# systemd drops a longer datagram as a whole (SYSTEMD.md 48).
MESSAGE_MAX = 4096
# A manager that doesn't read gets this long to make room for a message; then the message is lost, and the stop goes on.
SEND_PATIENCE_S = 0.05
# A third: one ping may be late by a whole interval, or be lost (sd_watchdog_enabled(3) asks for half at least).
PINGS_PER_WATCHDOG = 3
_MS_NS = 1_000_000

# What belongs to the broker alone, and what a job's environment would tell of the wrong job (FLUX.md 23).
PRIVATE = frozenset({"NOTIFY_SOCKET"})
PRIVATE_PREFIXES = ("WATCHDOG_", "LISTEN_", "PMI_", "FLUX_JOB_", "FLUX_TASK_")


def action_environment(env: Mapping[str, str]) -> dict[str, str]:
    """The environment of actions: without what the broker's own managers told the broker."""
    return {name: value for name, value in env.items() if name not in PRIVATE and not name.startswith(PRIVATE_PREFIXES)}


def encode(text: str) -> bytes:
    """One datagram: UTF-8; a STATUS is one line; what is too long is cut between characters."""
    if text.startswith("STATUS="):
        text = text.replace("\n", " ").replace("\0", " ")
    data = text.encode(errors="backslashreplace")
    if len(data) > MESSAGE_MAX:
        data = data[:MESSAGE_MAX].decode(errors="ignore").encode()
    return data


class Notifier:
    """A connection to the service manager; without NOTIFY_SOCKET in the environment it does nothing."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        if os.environ.get("NOTIFY_SOCKET"):
            from sdnotify import SystemdNotifier  # only under a service manager

            self._socket = SystemdNotifier().socket
        if self._socket is not None:
            self._socket.settimeout(SEND_PATIENCE_S)

    def __call__(self, text: str) -> str:
        """Send one message; returns what went wrong, or nothing."""
        if self._socket is None:
            return ""
        try:
            self._socket.send(encode(text))
        except OSError as error:
            return error.strerror or str(error)
        return ""

    def close(self) -> None:
        """Close the socket."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def watchdog_interval_ns(env: Mapping[str, str], pid: int) -> int | None:
    """How often to send WATCHDOG=1; None where no watchdog waits for this process (sd_watchdog_enabled(3))."""
    usec, whose = env.get("WATCHDOG_USEC", ""), env.get("WATCHDOG_PID", "")
    if not _is_number(usec) or int(usec) == 0 or (whose and (not _is_number(whose) or int(whose) != pid)):
        return None
    return max(_MS_NS, int(usec) * 1000 // PINGS_PER_WATCHDOG)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 20
