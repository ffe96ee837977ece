"""Reaping of orphans that a subreaper adopts, without stealing the status of a child that somebody waits for."""

from __future__ import annotations

import os
from collections.abc import Callable

# Dead children taken in at once; the rest wait for the next turn, after timers and signals had theirs.
REAP_MAX = 256


def peek() -> int | None:
    """The pid of one dead child that waits to be reaped, which stays as it is; None if there is none."""
    try:
        dead = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return None if dead is None else dead.si_pid


def collect(pid: int) -> None:
    """Reap a dead child whose status nobody wants."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return


def take_in(awaited: Callable[[int], bool] = lambda _pid: False) -> bool:
    """Reap the dead, up to a bound; False if there may be more.

    `awaited(pid)` takes in one that is waited for, itself, and says that it did.
    """
    for _ in range(REAP_MAX):
        pid = peek()
        if pid is None:
            return True
        if not awaited(pid):
            collect(pid)
    return False


def childless() -> bool:
    """Whether this process has no child at all, dead or alive. For a subreaper: no descendant either."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True
    return False
