"""What a run writes: read without blocking, cut into lines, bounded.

A run may print for ever; nobody may be starved or filled up by it. Up to a cap its lines are shown, all the rest is
read and counted. Each reading is bounded too, so that a flood shares the loop with timers and signals.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Literal

Name = Literal["out", "err"]

# A line that is longer is cut in pieces (POSIX LINE_MAX is 2048; journald cuts at 48 KiB).
LINE_MAX = 4096
# What of one run is shown: enough to see what went wrong, and little enough to keep a thousand of them in a trace.
SHOWN_BYTES_MAX = 64 << 10
SHOWN_LINES_MAX = 1000
# One reading: small while every line costs the model's time, large when it is only counted.
_READ_SHOWN = 1 << 10
_READ_COUNTED = 64 << 10
# At its end a run's pipes are read out: whatever fits into a pipe at its largest (fcntl(2), F_SETPIPE_SZ).
_READ_OUT_MAX = 1 << 20


class Cap:
    """What is left to show of one run, both streams together, and how many bytes were not shown."""

    __slots__ = ("bytes_left", "dropped", "lines_left")

    def __init__(self) -> None:
        self.bytes_left = SHOWN_BYTES_MAX
        self.lines_left = SHOWN_LINES_MAX
        self.dropped = 0

    @property
    def reached(self) -> bool:
        """Nothing is shown any more."""
        return self.lines_left <= 0 or self.bytes_left <= 0

    def take(self, size: int) -> bool:
        """Whether a line of this size may be shown; once one may not, none may."""
        if self.lines_left <= 0 or size > self.bytes_left:
            self.bytes_left = 0
            return False
        self.lines_left -= 1
        self.bytes_left -= size
        return True


class Stream:
    """Our end of one pipe. `show` gets each line, without its newline."""

    __slots__ = ("_cap", "_partial", "_show", "fd", "name")

    def __init__(self, fd: int, name: Name, cap: Cap, show: Callable[[Name, str], None]) -> None:
        os.set_blocking(fd, False)
        self.fd = fd
        self.name: Name = name
        self._cap = cap
        self._show = show
        self._partial = b""

    def read(self) -> int:
        """Take in what is there, up to a bound: how many bytes; 0 if there are none now, -1 at the end of output."""
        try:
            data = os.read(self.fd, _READ_COUNTED if self._cap.reached else _READ_SHOWN)
        except BlockingIOError:
            return 0
        if not data:
            self.finish()
            return -1
        self._take(data)
        return len(data)

    def read_out(self) -> bool:
        """Take in all that is there now, up to a larger bound; False at the end of the output."""
        size = 0
        while size < _READ_OUT_MAX:
            got = self.read()
            if got <= 0:
                return got == 0
            size += got
        return True

    def finish(self) -> None:
        """Show what came without a newline at the end."""
        if self._partial:
            self._line(self._partial, 0)
            self._partial = b""

    def inode(self) -> int:
        """The pipe's number, by which its other holders are found."""
        return os.fstat(self.fd).st_ino

    def _take(self, data: bytes) -> None:
        if self._cap.reached and not self._partial:
            self._cap.dropped += len(data)
            return
        *lines, rest = (self._partial + data).split(b"\n")
        for line in lines:
            self._line(line, 1)
        while len(rest) > LINE_MAX:
            piece, rest = cut(rest)
            self._line(piece, 0)
        self._partial = rest

    def _line(self, line: bytes, newline: int) -> None:
        while True:
            piece, line = cut(line)
            size = len(piece) + (newline if not line else 0)
            if self._cap.take(size):
                self._show(self.name, piece.decode(errors="backslashreplace"))
            else:
                self._cap.dropped += size
            if not line:
                return


def cut(line: bytes) -> tuple[bytes, bytes]:
    """The first piece of a line, at most LINE_MAX bytes and not within a character, and the rest."""
    if len(line) <= LINE_MAX:
        return line, b""
    end = LINE_MAX
    while end > LINE_MAX - 4 and line[end] & 0xC0 == 0x80:
        end -= 1
    if line[end] & 0xC0 == 0x80:
        end = LINE_MAX  # no UTF-8 anyway
    return line[:end], line[end:]
