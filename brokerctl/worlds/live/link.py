"""One connection to a neighbour: read in lines, written through a buffer, closed once; nothing blocks."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING, Protocol

from brokerctl.worlds.live.loop import READ, WRITE
from brokerctl.worlds.live.wire import NonsenseError, Splitter

if TYPE_CHECKING:
    from brokerctl.worlds.live.loop import Loop, Timer

CHUNK = 64 << 10
NOBODY = -2  # -1 is the leader's parent


class Owner(Protocol):
    """Whom a link tells what happens on it."""

    def heard(self, link: Link) -> None:
        """Something has come."""

    def take(self, link: Link, line: bytes) -> None:
        """A line has come; NonsenseError where it is none of a neighbour's."""

    def nonsense(self, link: Link, why: str) -> None:
        """What has come is nonsense."""

    def gone(self, link: Link) -> None:
        """The connection has ended."""


class Link:
    """A connection; `peer` is NOBODY until it has said who it is, `socket` None before and after."""

    __slots__ = (
        "_loop", "_owner", "_splitter", "ending", "heard_ns", "known", "outgoing", "peer", "socket", "timer", "torpid",
    )  # fmt: skip

    def __init__(self, loop: Loop, owner: Owner, peer: int = NOBODY) -> None:
        self._loop = loop
        self._owner = owner
        self._splitter = Splitter()
        self.socket: socket.socket | None = None
        self.peer = peer
        self.outgoing = bytearray()
        self.heard_ns = 0
        self.known = False  # its first line has come
        self.ending = False  # nothing is heard any more; what was sent still goes out
        self.torpid = False
        self.timer: Timer | None = None  # what silence, or the end of patience, leads to

    def attach(self, connection: socket.socket) -> None:
        """It is connected."""
        self.socket = connection
        self.heard_ns = time.monotonic_ns()
        self._watch()

    def set_timer(self, timer: Timer) -> None:
        """One timer replaces the other."""
        if self.timer is not None:
            self.timer.cancel()
        self.timer = timer

    def write(self, data: bytes) -> None:
        """Send this, now or as soon as it is taken."""
        self.outgoing += data
        self.flush()

    def flush(self) -> None:
        """Send what the other end takes now."""
        if self.socket is None:
            return
        try:
            sent = self.socket.send(self.outgoing) if self.outgoing else 0
        except BlockingIOError:
            sent = 0
        except OSError:
            sent = len(self.outgoing)  # its end is told by reading, after what it said before
        del self.outgoing[:sent]
        if self.ending and not self.outgoing:
            self.close()
        else:
            self._watch()

    def close(self) -> None:
        """Close it, whatever is still to be sent."""
        if self.timer is not None:
            self.timer.cancel()
        if self.socket is not None:
            self._loop.unwatch(self.socket.fileno())
            self.socket.close()
            self.socket = None

    def _watch(self) -> None:
        assert self.socket is not None
        self._loop.watch(self.socket.fileno(), READ | (WRITE if self.outgoing else 0), self._ready)

    def _ready(self, events: int) -> None:
        if events & WRITE:
            self.flush()
        if events & READ and self.socket is not None:
            self._read(self.socket)

    def _read(self, connection: socket.socket) -> None:
        try:
            data = connection.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._owner.gone(self)
            return
        if self.ending:
            return  # read and forgotten, so that its own words don't hold it up
        self.heard_ns = time.monotonic_ns()
        self._owner.heard(self)
        try:
            for line in self._splitter.feed(data):
                self._owner.take(self, line)
        except NonsenseError as error:
            self._owner.nonsense(self, str(error))
