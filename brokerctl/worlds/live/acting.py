"""What a puppet does as a worker besides living: it says things to its manager, beats until it hangs, and leaks."""

from __future__ import annotations

import os
import socket
import time
from typing import TYPE_CHECKING

from brokerctl.durations import S
from brokerctl.heartbeat import BEATS_PER_LIMIT, encode, watchdog_limit_ns
from brokerctl.model.puppet import Say

if TYPE_CHECKING:
    from brokerctl.model.puppet import Part, Puppet

# How often a leak grows; whoever looks once a second sees a straight line.
GROW_S = 0.05
# What one process of a scenario may take at most.
LEAK_MAX = 1 << 30


class Acting:
    """The part of a worker; its loop calls `turn` at least every `wait_s` seconds."""

    def __init__(self, part: Part, began_ns: int, address: str) -> None:
        self._part = part
        self._began_ns = began_ns
        self._address = f"\0{address[1:]}" if address[0] == "@" else address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        limit_ns = watchdog_limit_ns(os.environ, os.getpid())
        self._interval_ns = None if limit_ns is None else limit_ns // BEATS_PER_LIMIT
        self._due_ns = 0
        self._taken: list[bytes] = []
        self._bytes = 0
        self.wait_s = min(
            GROW_S if part.leaks else 3600.0, 3600.0 if self._interval_ns is None else self._interval_ns / S
        )

    def turn(self, puppet: Puppet) -> None:
        """One turn of its loop."""
        acts, puppet.acts = puppet.acts, []
        for act in acts:
            if isinstance(act, Say) and not act.child:
                self._say(act.text)
        age_ns = time.monotonic_ns() - self._began_ns
        if self._part.leaks:
            self._grow(min(LEAK_MAX, self._part.leaks * age_ns // S))
        hangs_ns = self._part.hangs_ns
        if self._interval_ns is not None and age_ns >= self._due_ns and (hangs_ns is None or age_ns < hangs_ns):
            self._due_ns = age_ns + self._interval_ns
            self._say("WATCHDOG=1")

    def _say(self, text: str) -> None:
        try:
            self._socket.sendto(encode(text), self._address)
        except OSError:
            return  # its manager has gone: not this process's business

    def _grow(self, size: int) -> None:
        if size > self._bytes:
            self._taken.append(b"\1" * (size - self._bytes))  # zeros would take no memory
            self._bytes = size
