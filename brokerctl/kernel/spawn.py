"""The one function that starts a process.

Not `subprocess`: it costs 11 ms to import, has no way into a cgroup, and hides the errno of a failed exec behind an
exception of its own. fork(2), a few calls, execve(2); what goes wrong comes back through a pipe that exec closes.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import signal
import struct
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, NoReturn

from brokerctl.kernel.proc import User

# A process that can't get through exec (its file is on a dead server, say) must not hold up its starter. Exec takes
# about a millisecond; after this time the child counts as started, and a failure is its end, with the code of a shell.
EXEC_PATIENCE_MS = 1000
# Above this our own descriptors are out of the way of 0, 1 and 2, whatever was closed when we were started.
HIGH_FD = 10
# `exec` gives these two for what isn't there and for what can't be run (POSIX sh, 2.8.2; FLUX.md 18).
NOT_FOUND, NOT_EXECUTABLE = 127, 126

SIGNALS = signal.valid_signals()
DEFAULTED = sorted(SIGNALS - {signal.SIGKILL, signal.SIGSTOP})


class Child(NamedTuple):
    """A process that was started: its pid, which is its process group too, and a pidfd of it that the caller closes."""

    pid: int
    pidfd: int


class Place(NamedTuple):
    """What surrounds the new process; `spawn` explains each."""

    streams: Sequence[int | None] = (None, None, None)
    cwd: str | None = None
    cgroup_procs: str | None = None
    blocked: Iterable[int] = ()
    terminal: int | None = None
    user: User | None = None


class Begun(NamedTuple):
    """A process on its way to exec. `child` is to be called, once."""

    pid: int
    name: str
    told: int

    def child(self) -> Child:
        """The process, when it has got through exec; OSError with exec's errno where that failed."""
        try:
            failed = _hear(self.told)
        finally:
            os.close(self.told)
        if failed:
            os.waitpid(self.pid, 0)
            raise OSError(failed, os.strerror(failed), self.name)
        try:
            return Child(self.pid, os.pidfd_open(self.pid))
        except OSError:
            # No descriptor left: it can't be watched, so it can't be kept.
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            raise


def spawn(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    stdin: int | None = None,
    stdout: int | None = None,
    stderr: int | None = None,
    cwd: str | None = None,
    cgroup_procs: str | None = None,
    blocked: Iterable[int] = (),
    terminal: int | None = None,
    user: User | None = None,
) -> Child:
    """Start a process, leader of a new process group; OSError with exec's errno where that fails.

    Its streams are the given descriptors, else /dev/null. All other descriptors are closed in it, every signal has its
    default disposition and none but `blocked` is blocked. `cgroup_procs` is the file of a cgroup that it joins,
    `terminal` one whose foreground it becomes. A name without a slash is looked up in the PATH of `env`.
    """
    place = Place((stdin, stdout, stderr), cwd, cgroup_procs, tuple(blocked), terminal, user)
    return begin(argv, env, place).child()


def begin(argv: Sequence[str], env: Mapping[str, str], place: Place) -> Begun:
    """The first half of `spawn`: whoever starts several has all on their way before any must be through exec."""
    words = [os.fsencode(word) for word in argv]
    variables = {os.fsencode(name): os.fsencode(value) for name, value in env.items()}
    files = _candidates(words[0], variables)
    told, teller = os.pipe()
    try:
        # Until exec no handler of ours may run in the child: it would write to our wake-up socket.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            # Asked here: each page of memory that the child touches first is copied for it.
            changed = [number for number in DEFAULTED if signal.getsignal(number) is not signal.SIG_DFL]
            pid = fork()
            if pid == 0:
                _become(files, words, variables, place, changed, teller)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
    except OSError:
        os.close(told)
        raise
    finally:
        os.close(teller)
    return Begun(pid, argv[0], told)


def fork() -> int:
    """Fork without Python's warning that other threads' locks stay locked: here the child needs none.

    A broker has no threads; a test runner that runs the live world may have some, and take warnings for errors.
    """
    warnings = sys.modules.get("warnings")
    if warnings is None:
        return os.fork()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _candidates(name: bytes, env: Mapping[bytes, bytes]) -> list[bytes]:
    """The files that a command's name may mean, in order (execvp(3))."""
    if b"/" in name or not name:
        return [name]
    path = env.get(b"PATH", os.fsencode(os.defpath))
    return [os.path.join(folder or b".", name) for folder in path.split(b":")]  # noqa: PTH118 - bytes, and lean


def _hear(told: int) -> int:
    """The errno that the child tells; 0 when exec has closed the pipe, or the patience is over."""
    poll = select.poll()
    poll.register(told, select.POLLIN)
    if not poll.poll(EXEC_PATIENCE_MS):
        return 0
    data = os.read(told, 4)
    return int(struct.unpack("i", data)[0]) if len(data) == 4 else 0


def _become(
    files: Sequence[bytes],
    argv: list[bytes],
    env: Mapping[bytes, bytes],
    place: Place,
    changed: Sequence[int],
    teller: int,
) -> NoReturn:
    """In the child: everything up to exec. Never returns, and no exception leaves it."""
    code = NOT_EXECUTABLE
    number = errno.EINVAL
    try:
        teller = fcntl.fcntl(teller, fcntl.F_DUPFD_CLOEXEC, HIGH_FD)
        os.setpgid(0, 0)
        if place.cgroup_procs is not None:
            _join(place.cgroup_procs)
        if place.terminal is not None:
            _take_foreground(place.terminal)
        _set_streams(place.streams)
        if place.user is not None:
            _turn_into(place.user)
        if place.cwd is not None:
            os.chdir(place.cwd)
        for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - the limit on descriptors may be a billion
            if (fd := int(name)) > 2 and fd != teller:
                os.closerange(fd, fd + 1)  # of those only the listing's own is closed already, which is no error
        for signum in changed:
            signal.signal(signum, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, place.blocked)
        number = _exec(files, argv, env)
        code = NOT_FOUND if number == errno.ENOENT else NOT_EXECUTABLE
    except OSError as error:
        number = error.errno or errno.EINVAL
    except BaseException:  # noqa: BLE001 - whatever it is, this process must not go on as a second broker
        number = errno.EINVAL
    finally:
        try:
            signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # nobody may be listening any more
            os.write(teller, struct.pack("i", number))
        finally:
            os._exit(code)


def _join(cgroup_procs: str) -> None:
    fd = os.open(cgroup_procs, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, b"0")  # the writer itself (cgroups(7))
    finally:
        os.close(fd)


def _take_foreground(terminal: int) -> None:
    """Become the terminal's foreground group; all signals are blocked here, so SIGTTOU doesn't stop us."""
    try:
        os.tcsetpgrp(terminal, os.getpid())
    except OSError:
        return  # it has gone meanwhile: the process starts in the background of nothing


def _turn_into(user: User) -> None:
    """Give up what we are for good: groups first, as root alone may change them."""
    if os.geteuid() == 0:
        os.setgroups(user.groups)
        os.setresgid(user.gid, user.gid, user.gid)
    os.setresuid(user.uid, user.uid, user.uid)


def _set_streams(streams: Sequence[int | None]) -> None:
    """Make the three descriptors 0, 1 and 2; a source may be any of those itself."""
    high = []
    for source in streams:
        fd = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC) if source is None else source
        high.append(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, HIGH_FD))
    for target, fd in enumerate(high):
        os.dup2(fd, target)


def _exec(files: Sequence[bytes], argv: list[bytes], env: Mapping[bytes, bytes]) -> int:
    """Try the files in order; returns the errno that tells most: not ENOENT, where one was there but can't be run."""
    worst = errno.ENOENT
    for file in files:
        try:
            os.execve(file, argv, env)  # noqa: S606 - without a shell is what we want
        except OSError as error:
            if error.errno not in {errno.ENOENT, errno.ENOTDIR}:
                worst = error.errno or errno.EINVAL
                if worst != errno.EACCES:
                    break
    return worst
