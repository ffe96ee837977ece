"""A tree of brokers on this machine, as one process keeps it: started, heard, told to stop, waited for, reaped.

The leader decides: signals go to it, and its code is the tree's. When it has ended, the others get a bounded time. A
broker that a signal has killed can end nothing any more, so what it had started is ended here.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from brokerctl.durations import S, as_text
from brokerctl.errors import KernelError
from brokerctl.kernel import pidfd, reap, scope
from brokerctl.kernel.prctl import become_subreaper
from brokerctl.kernel.spawn import spawn
from brokerctl.kernel.terminal import own_terminal, take_terminal
from brokerctl.logs.fluxlog import ERR, INFO, SEVERITIES, Entry
from brokerctl.model.words import signal_name
from brokerctl.worlds.live import launch
from brokerctl.worlds.live.loop import READ, Loop

WARNING = 4
# Between SIGTERM and SIGKILL for a broker that outlives the leader for too long.
TERM_GRACE_NS = 5 * S
# SIGKILL takes effect in milliseconds, but for a process in uninterruptible sleep, which is left behind then.
KILL_LIMIT_NS = 5 * S
CHUNK = 64 << 10
LINE_MAX = 64 << 10
# At its end a broker's pipe is read out: as much as a pipe holds by default.
READ_OUT_MAX = 64 << 10
# Orphans of a killed broker: looked for until none is found. A fork bomb would need a cgroup.
ORPHANS_LIMIT_NS = 1 * S  # what SIGKILL does not end within that is in the kernel

Tell = Callable[[Entry], None]


class _Broker:
    """One broker: its process, and what it says."""

    __slots__ = ("cookie", "fd", "pid", "pidfd", "rank", "rest", "stderr")

    def __init__(self, rank: int, pid: int, fd: int, cookie: str, stderr: int | None) -> None:
        self.rank = rank
        self.pid = pid
        self.pidfd = fd
        self.cookie = cookie
        self.stderr = stderr
        self.rest = b""


class Brokers:
    """All brokers of a tree. `tell` gets entries of a log, `pass_on` lines that are none; both must not block.

    `arguments` gives the argument list of each rank's broker.
    """

    def __init__(
        self,
        size: int,
        arguments: Callable[[int], list[str]],
        *,
        tell: Tell,
        pass_on: Callable[[bytes, int], None],
        exit_timeout_ns: int,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._size = size
        self._arguments = arguments
        self._tell = tell
        self._pass_on = pass_on
        self._exit_timeout_ns = exit_timeout_ns
        self._environment = os.environ if environment is None else environment
        self._living: dict[int, _Broker] = {}  # by rank
        self._by_pid: dict[int, _Broker] = {}
        self._name = f"start{os.getpid()}-{os.urandom(4).hex()}"
        self._code = 0
        self._terminal: int | None = None
        self.killed: set[int] = set()  # ranks whose broker died of a signal

    def run(self) -> int:
        """Start them all and stay until the last one is gone; the leader's code, 128+N if a signal killed it.

        KernelError where one can't be started; then none is left either.
        """
        with Loop() as self._loop:
            become_subreaper()
            for signum in (signal.SIGPIPE, signal.SIGTTOU):
                self._loop.ignore(signum)
            self._loop.handle((*launch.HELD, signal.SIGCHLD))
            self._loop.on_signal = self._signalled
            try:
                for rank in range(self._size):
                    self._start(rank)
                signal.pthread_sigmask(signal.SIG_UNBLOCK, (*launch.HELD, signal.SIGCHLD))
                self._loop.run()
            finally:
                self._end_all()
        return self._code

    # ---- beginning

    def _start(self, rank: int) -> None:
        cookie = f"{self._name}:{rank}"
        interactive = rank == 0 and os.isatty(2)
        reader, writer = (None, 2) if interactive else os.pipe()
        terminal = own_terminal() if rank == 0 else None
        # The service manager knows one service, and hears one broker: the leader.
        without = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID") if rank else ()
        try:
            child = spawn(
                self._arguments(rank),
                env=launch.environment(self._environment, cookie, ("BROKERCTL_RUNDIR", *without)),
                stdin=None if rank else 0,
                stdout=1,
                stderr=writer,
                blocked=launch.HELD,
                terminal=terminal,
            )
        except OSError as error:
            if reader is not None:
                os.close(reader)
            if terminal is not None:
                take_terminal()
            raise KernelError(f"cannot start the broker of rank {rank}: {error.strerror}") from None
        finally:
            if not interactive:
                os.close(writer)
        self._terminal = terminal if rank == 0 else self._terminal
        broker = _Broker(rank, child.pid, child.pidfd, cookie, reader)
        self._living[rank] = self._by_pid[child.pid] = broker
        self._loop.watch(child.pidfd, READ, lambda _: self._ended(broker))
        if reader is not None:
            os.set_blocking(reader, False)
            self._loop.watch(reader, READ, partial(self._readable, broker))

    # ---- signals

    def _signalled(self, signum: int) -> None:
        if signum == signal.SIGCHLD:
            self._child_died()
        elif 0 in self._living:
            pidfd.send(self._living[0].pidfd, signum)

    def _child_died(self) -> None:
        """Reap orphans that were adopted; brokers have their own way."""
        leader = self._living.get(0)
        if leader is not None and self._terminal is not None and pidfd.stopped_by_terminal(leader.pidfd):
            pidfd.send(leader.pidfd, signal.SIGCONT)  # there is no job control here
        if not reap.take_in(self._is_broker):
            self._loop.after(0, self._child_died)

    def _is_broker(self, pid: int) -> bool:
        """Take in the end of a broker, if the dead one is that."""
        broker = self._by_pid.get(pid)
        if broker is not None:
            self._ended(broker)
        return broker is not None

    # ---- what brokers say

    def _readable(self, broker: _Broker, _events: int) -> None:
        if self._read(broker) < 0:
            self._close_stderr(broker)

    def _read(self, broker: _Broker) -> int:
        """Take in what is there, up to a bound: how many bytes; -1 at the end."""
        if broker.stderr is None:
            return -1
        try:
            data = os.read(broker.stderr, CHUNK)
        except BlockingIOError:
            return 0
        *lines, rest = (broker.rest + data).split(b"\n")
        if not data or len(rest) > LINE_MAX:
            lines, rest = ([*lines, rest] if rest else lines), b""
        for line in lines:
            self._said(broker.rank, line)
        broker.rest = rest
        return len(data) if data else -1

    def _said(self, rank: int, line: bytes) -> None:
        found = as_entry(line)
        if found is not None:
            self._tell(found)
        else:
            self._pass_on(line + b"\n", rank)

    def _close_stderr(self, broker: _Broker) -> None:
        if broker.stderr is not None:
            self._loop.unwatch(broker.stderr)
            os.close(broker.stderr)
            broker.stderr = None

    # ---- the end

    def _ended(self, broker: _Broker) -> None:
        if self._living.get(broker.rank) is not broker:
            return
        status = pidfd.wait(broker.pidfd)
        if status is None:
            return
        self._forget(broker)
        code = os.waitstatus_to_exitcode(status)
        if code < 0:
            self.killed.add(broker.rank)
            how = signal_name(-code)
            self._say(ERR, broker.rank, f"the broker (pid {broker.pid}) was killed by {how}")
            self._end_orphans(broker)
        if broker.rank == 0:
            self._code = 128 - code if code < 0 else code
            if self._terminal is not None:
                take_terminal()
            self._loop.after(self._exit_timeout_ns, self._hurry)
        elif 0 in self._living and code > 0:
            self._say(WARNING, broker.rank, f"the broker (pid {broker.pid}) ended with {code}")
        if not self._living:
            self._loop.stop()

    def _forget(self, broker: _Broker) -> None:
        """It is reaped: read out what it said, and let go of it."""
        size = 0
        while size < READ_OUT_MAX and (got := self._read(broker)) > 0:
            size += got
        self._close_stderr(broker)
        self._loop.unwatch(broker.pidfd)
        os.close(broker.pidfd)
        del self._living[broker.rank], self._by_pid[broker.pid]

    def _end_orphans(self, broker: _Broker) -> None:
        """What a killed broker had started has nobody any more who would end it."""

        def reached(pid: int, what: str) -> None:
            self._say(WARNING, broker.rank, f"its orphan is killed: {what} (pid {pid})")

        scope.kill_carriers(broker.cookie.encode(), ORPHANS_LIMIT_NS, reached)

    def _hurry(self) -> None:
        """The leader has ended long ago: the others are told to end, and then made to."""
        for broker in self._living.values():
            waited = as_text(self._exit_timeout_ns)
            self._say(ERR, broker.rank, f"the broker (pid {broker.pid}) is still there {waited} after the leader's end")
            pidfd.send(broker.pidfd, signal.SIGTERM)
        self._loop.after(TERM_GRACE_NS, self._kill)

    def _kill(self) -> None:
        for broker in self._living.values():
            self._say(ERR, broker.rank, f"the broker (pid {broker.pid}) does not end on SIGTERM; it gets SIGKILL")
            pidfd.send(broker.pidfd, signal.SIGKILL)
        self._loop.after(KILL_LIMIT_NS, self._loop.stop)

    def _end_all(self) -> None:
        """Nobody stays, however this ended, whom a signal can end."""
        for broker in tuple(self._living.values()):
            pidfd.send(broker.pidfd, signal.SIGKILL)
        end_ns = time.monotonic_ns() + KILL_LIMIT_NS
        for broker in tuple(self._living.values()):
            if not pidfd.ends_within(broker.pidfd, max(0, end_ns - time.monotonic_ns())):
                self._say(ERR, broker.rank, f"the broker (pid {broker.pid}) survives SIGKILL; it is left behind")
            self._forget(broker)
            self._end_orphans(broker)
        reap.take_in()

    def _say(self, level: int, rank: int, text: str) -> None:
        self._tell(Entry(level, "start", rank, text))


_ENTRY = re.compile(
    rb"<([0-7])>([\w.-]{1,64})\.(?:" + "|".join(SEVERITIES).encode() + rb")\[(\d{1,9})\]: (.*)", re.DOTALL
)


def as_entry(line: bytes) -> Entry | None:
    """A line that a broker logged; None for any other, such as what rc2 says."""
    match = _ENTRY.fullmatch(line)
    if match is None:
        return None
    level, component, rank, text = match.groups()
    return Entry(int(level), component.decode(), int(rank), text.decode(errors="backslashreplace"))


def reach(folder: Path, size: int) -> Entry:
    """How to reach the brokers, in one line."""
    where = launch.rundir(folder, 0)
    return Entry(INFO, "start", 0, f"{size} brokers, of which rank 0 says: brokerctl status --rundir {where}")
