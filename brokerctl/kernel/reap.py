"""Reaping of orphans that a subreaper adopts, without stealing the status of a child that somebody waits for."""

from __future__ import annotations

import os


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


def childless() -> bool:
    """Whether this process has no child at all, dead or alive. For a subreaper: no descendant either."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True
    return False
