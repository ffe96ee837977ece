"""A process of our own program: a fork without exec, which needs no second start of the interpreter (1 ms, not 60).

It has nothing of its parent but memory: no descriptor, no signal handler, and it dies with it.
"""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Callable
from typing import NoReturn

from brokerctl.kernel.prctl import signal_when_orphaned
from brokerctl.kernel.spawn import DEFAULTED, HIGH_FD, Child, fork


def beget(body: Callable[[int, int], None], reader: int, writer: int) -> Child:
    """Run `body(reader, writer)` in a process of its own, leader of a new process group.

    The two descriptors get other numbers there; stdin is /dev/null, stdout is our stderr. Whatever `body` does, it ends
    there. OSError where no process can be made.
    """
    parent = os.getpid()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        pid = fork()
        if pid == 0:
            _live(body, reader, writer, parent)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    try:
        return Child(pid, os.pidfd_open(pid))
    except OSError:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise


def _live(body: Callable[[int, int], None], reader: int, writer: int, parent: int) -> NoReturn:
    code = 1
    try:
        os.setpgid(0, 0)
        signal.set_wakeup_fd(-1)
        for signum in DEFAULTED:
            signal.signal(signum, signal.SIG_DFL)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        if signal_when_orphaned(parent, signal.SIGKILL):
            reader, writer = _keep(reader, writer)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            body(reader, writer)
            code = 0
    except BaseException as error:  # noqa: BLE001 - it must not go on as a second one of its parent
        os.write(2, f"<4>{type(error).__name__}: {error}\n".encode(errors="backslashreplace"))
    finally:
        os._exit(code)


def _keep(*fds: int) -> list[int]:
    """Close everything but the standard streams and these, whose numbers begin at 3."""
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD, HIGH_FD) for fd in fds]
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    for number, fd in enumerate(high, 3):
        os.dup2(fd, number)
    os.closerange(3 + len(high), max(int(name) for name in os.listdir("/proc/self/fd")) + 1)  # noqa: PTH208 - lean
    return list(range(3, 3 + len(high)))
