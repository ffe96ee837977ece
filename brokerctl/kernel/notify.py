"""Messages to the service manager (sd_notify(3)), byte for byte what was meant.

The socket is the one that `sdnotify` sets up. Its own `notify` is not used: it encodes as Latin-1 and swallows the
error, so a text with a Flux job id (`ƒ39firM4HrF`) is lost without a word.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator, Mapping

from brokerctl.heartbeat import FILE_VARIABLE, MESSAGE_MAX, SEND_PATIENCE_S, encode, watchdog_limit_ns

# A third: one ping may be late by a whole interval, or be lost (sd_watchdog_enabled(3) asks for half at least).
PINGS_PER_WATCHDOG = 3
_MS_NS = 1_000_000
# Messages taken in at once; a process that floods us must not keep us from everything else.
RECEIVED_MAX = 64
_UCRED = struct.Struct("iII")  # pid, uid, gid (unix(7))

# What belongs to the broker alone, and what a job's environment would tell of the wrong job (FLUX.md 23).
PRIVATE = frozenset({"NOTIFY_SOCKET", FILE_VARIABLE})
PRIVATE_PREFIXES = ("WATCHDOG_", "LISTEN_", "PMI_", "FLUX_JOB_", "FLUX_TASK_")


def action_environment(env: Mapping[str, str]) -> dict[str, str]:
    """The environment of actions: without what the broker's own managers told the broker."""
    return {name: value for name, value in env.items() if name not in PRIVATE and not name.startswith(PRIVATE_PREFIXES)}


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
    limit_ns = watchdog_limit_ns(env, pid)
    return None if limit_ns is None else max(_MS_NS, limit_ns // PINGS_PER_WATCHDOG)


class Receiver:
    """A service manager's side: what processes that got `address` as NOTIFY_SOCKET say, and which process it was.

    The socket is an abstract one (unix(7)): it needs no directory that can be written to, and leaves no file behind.
    Anybody on this machine can send to it; the kernel vouches for who did.
    """

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._socket.bind("")  # the kernel chooses a name that is free
        self.address = "@" + self._socket.getsockname()[1:].decode()

    def fileno(self) -> int:
        """Its descriptor, readable where there is a message."""
        return self._socket.fileno()

    def receive(self) -> Iterator[tuple[int, str]]:
        """The messages that are there, each with its sender's pid; at most `RECEIVED_MAX`, the rest waits."""
        for _ in range(RECEIVED_MAX):
            try:
                data, ancillary, flags, _address = self._socket.recvmsg(MESSAGE_MAX, socket.CMSG_SPACE(_UCRED.size))
            except OSError:
                return
            # A descriptor that was sent along found no room, and is closed: that is how a BARRIER=1 is answered.
            pid = next(
                (_UCRED.unpack(part)[0] for level, kind, part in ancillary
                 if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS) and len(part) == _UCRED.size),
                0,
            )  # fmt: skip
            if pid and not flags & socket.MSG_TRUNC:
                yield pid, data.decode(errors="replace")

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
