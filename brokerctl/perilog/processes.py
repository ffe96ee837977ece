"""Children of the helper and of the runner: started without a shell, waited for within a bound, always reaped.

Not `kernel.spawn`: with its imports it costs more than the whole helper may. Neither `signal`, whose names take 5 ms to
make; its built-in half has the calls. All signals that matter stay blocked for good and are taken one by one where they
are waited for, so none can fall between two steps.
"""

from __future__ import annotations

import errno
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Iterable, Mapping
else:
    import _signal as signal

# What the IMP sets as well. Nothing of the caller's environment says which program is started.
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
TOOL_ENVIRONMENT = {"PATH": PATH, "LANG": "C"}

STOPS = frozenset({signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM})
_BLOCKED = STOPS | {signal.SIGCHLD}
_DEFAULTED = [signal.SIGPIPE, signal.SIGXFSZ, *_BLOCKED]  # Python ignores the first two, a caller may ignore others
NOT_FOUND = 127
_NOT_RUN = 126
# SIGKILL is certain but for a process that hangs in the kernel; such a one is left to whoever adopts it.
_KILL_PATIENCE_NS = 1_000_000_000


class Told(Exception):  # noqa: N818 - no error
    """Raised when a signal tells us to stop."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum


class Late(Exception):  # noqa: N818 - no error
    """Raised when a time is over."""


def hold_signals() -> None:
    """From now on signals wait until they are asked for; to be called first of all."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _BLOCKED)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # one that is ignored would take the children's status with it


def die_of(signum: int) -> None:
    """End this process as the signal would have done that told it to stop."""
    signal.signal(signum, signal.SIG_DFL)
    os.kill(os.getpid(), signum)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signum})


def pending() -> frozenset[int]:
    """The signals that tell us to stop and have not been taken yet."""
    return frozenset(STOPS & signal.sigpending())


def program(name: str) -> str:
    """The absolute path of a program; the name itself where there is none, and the start will fail."""
    if "/" not in name:
        for folder in PATH.split(":"):
            if os.access(f"{folder}/{name}", os.X_OK):
                return f"{folder}/{name}"
    return name


def start(argv: list[str], env: Mapping[str, str] | Mapping[bytes, bytes], output: int | None = None) -> int:
    """Start a process, leader of a group of its own, and return its pid; OSError with exec's errno where that fails.

    stdin is /dev/null; stdout and stderr are `output`, else ours.
    """
    actions: list[tuple[int, int, str, int, int] | tuple[int, int, int]] = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
    ]
    if output is not None:
        actions += [(os.POSIX_SPAWN_DUP2, output, fd) for fd in (1, 2)]
    return os.posix_spawn(
        program(argv[0]), argv, env, file_actions=actions, setpgroup=0, setsigmask=(), setsigdef=_DEFAULTED
    )


def wait(pid: int, deadline_ns: int | None, *, stoppable: bool = True) -> int:
    """The exit code of a child, -N for death by signal N; Told or Late when that comes first.

    Not stoppable, it leaves a signal that tells us to stop for a later call.
    """
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if not _woken(deadline_ns, _BLOCKED if stoppable else {signal.SIGCHLD}):
            raise Late


def pause(ns: int, deadline_ns: int | None) -> None:
    """Wait for so long; Told or Late when that comes first."""
    until_ns = time.monotonic_ns() + ns
    last_ns = until_ns if deadline_ns is None else min(until_ns, deadline_ns)
    while _woken(last_ns, _BLOCKED):
        pass
    if deadline_ns is not None and deadline_ns <= until_ns:
        raise Late


def _woken(deadline_ns: int | None, signals: Iterable[int]) -> bool:
    """Wait for one of the signals; False at the deadline. Told for one that tells us to stop."""
    if deadline_ns is None:
        signum = signal.sigwaitinfo(signals).si_signo
    else:
        got = signal.sigtimedwait(signals, max(0, deadline_ns - time.monotonic_ns()) / 1e9)
        if got is None:
            return False
        signum = got.si_signo
    if signum in STOPS:
        raise Told(signum)
    return True


def kill(pid: int) -> None:
    """SIGKILL to a child's process group, and reap the child."""
    os.killpg(pid, signal.SIGKILL)  # it isn't reaped yet, so its number is its own
    try:
        wait(pid, time.monotonic_ns() + _KILL_PATIENCE_NS, stoppable=False)
    except Late:
        return


def run(argv: list[str], limit_ns: int) -> tuple[int | None, str]:
    """Run a tool to its end and return its exit code and output; None at the limit, when it has been killed.

    Signals that tell us to stop wait until it has ended. What can't be started has the code that a shell would give it.
    """
    output = os.memfd_create("output")
    try:
        try:
            pid = start(argv, TOOL_ENVIRONMENT, output)
        except OSError as error:
            return not_started(error), error.strerror or str(error)
        try:
            return wait(pid, time.monotonic_ns() + limit_ns, stoppable=False), words(output)
        except Late:
            kill(pid)
            return None, words(output)
    finally:
        os.close(output)


def words(output: int) -> str:
    """What a child has written to a file: its first 4000 bytes."""
    return os.pread(output, 4000, 0).decode(errors="replace").strip()


def not_started(error: OSError) -> int:
    """127 for what isn't there, 126 for what can't be run (POSIX sh, 2.8.2; FLUX.md 18)."""
    return NOT_FOUND if error.errno == errno.ENOENT else _NOT_RUN
