"""Pidfds: descriptors of processes, which can't mean another process when the number is used again (pidfd_open(2))."""

from __future__ import annotations

import os
import select
import signal

_TERMINAL_STOPS = frozenset({signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU})


def wait(pidfd: int) -> int | None:
    """The wait status (wait(2)) of a child, which is reaped by this; None while it runs."""
    got = os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG)
    if got is None:
        return None
    return got.si_status << 8 if got.si_code == os.CLD_EXITED else wait_status(got.si_status, got.si_code)


def ends_within(pidfd: int, limit_ns: int) -> bool:
    """Wait for the end of a process, at most that long: whether it has come. Nothing is reaped."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(limit_ns / 1e6))


def stopped_by_terminal(pidfd: int) -> bool:
    """Whether a child has just been stopped by its terminal: Ctrl-Z, or I/O in the background."""
    try:
        got = os.waitid(os.P_PIDFD, pidfd, os.WSTOPPED | os.WNOHANG)
    except ChildProcessError:
        return False  # it is dead: it won't stop any more
    return got is not None and got.si_status in _TERMINAL_STOPS


def wait_status(signum: int, code: int) -> int:
    """The wait status of a death by signal; a core dump sets bit 7 (wait(2))."""
    return signum | (0x80 if code == os.CLD_DUMPED else 0)


def send(pidfd: int, signum: int) -> int:
    """Send a signal; returns 0, or the errno (ESRCH: it has gone)."""
    try:
        signal.pidfd_send_signal(pidfd, signum)
    except OSError as error:
        return error.errno or 1
    return 0


def open_pid(pid: int) -> int | None:
    """A pidfd of any process, or None: it has gone, or no descriptor is left."""
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None
