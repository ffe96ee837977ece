"""Our own standard streams: never missing, and whoever reads stderr, or doesn't, can't stall or end us."""

from __future__ import annotations

import os
import select
import sys

# A pipe that polls as writable has room for this much (pipe(7): PIPE_BUF), so a write of it can't block.
ATOMIC = 4096


def write(fd: int, data: bytes) -> bool:
    """Write all of it if that is possible at once; False if some was dropped: nobody reads, or it is closed."""
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    for start in range(0, len(data), ATOMIC):
        try:
            ready = poll.poll(0)
            if not ready or not ready[0][1] & select.POLLOUT:
                return False
            os.write(fd, data[start : start + ATOMIC])
        except OSError:
            return False
    return True


def open_standard_streams() -> None:
    """Whatever was closed when we were started must not become the next file that is opened."""
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number: this one
            os.set_inheritable(fd, True)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)
