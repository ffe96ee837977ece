"""The live world of scenarios: a real broker, real processes, real signals, on this machine and in real time.

The broker is started as anybody would start it, with its trace going to a FIFO that is read as it grows. Steps are done
from outside: signals to its process, requests over its control socket. Nothing outlives a run: whatever still carries
its cookie at the end is killed.
"""

from __future__ import annotations

import os
import secrets
import select
import signal
import time
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Self

from brokerctl import trace
from brokerctl.durations import S, as_short
from brokerctl.errors import ControlError, KernelError
from brokerctl.kernel import pidfd, proc
from brokerctl.kernel.spawn import spawn
from brokerctl.records import Asked, Exit, Signal
from brokerctl.worlds.contract import Capability, Deliver, Outcome, Resolved, Sink
from brokerctl.worlds.live.client import Connection
from brokerctl.worlds.live.stage import Stage

if TYPE_CHECKING:
    from brokerctl.records import Line
    from brokerctl.worlds.contract import Deed, Step

# A broker boots in a tenth of a second; on a machine that is overloaded, in some.
BOOT_LIMIT_NS = 30 * S
# After the broker's last words: the pipe is read to its end, the process reaped.
END_LIMIT_NS = 10 * S
# SIGKILL takes effect in milliseconds, but for processes in uninterruptible sleep.
KILL_LIMIT_NS = 5 * S
CHUNK = 1 << 16
NOT_INHERITED = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "RUNTIME_DIRECTORY", "BROKERCTL_RUNDIR")


class LiveWorld:
    """The world of real processes; one rank, as one machine has one broker."""

    name = "live"
    capabilities: frozenset[Capability] = frozenset({"real-processes"})

    def run(self, scenario: Resolved, sink: Sink, horizon_ns: int, wants: frozenset[type] | None = None) -> Outcome:
        """Run it to its end, or to the horizon; KernelError where no broker can be run here, or it broke down.

        All lines are made anyhow, as the trace of a real broker; `wants` spares the sink the others.
        """
        stage = Stage(scenario)
        try:
            with _Run(stage, scenario, sink if wants is None else _only(wants, sink), horizon_ns) as run:
                return run.run()
        finally:
            stage.close()


def _only(wants: frozenset[type], sink: Sink) -> Sink:
    def filtered(line: Line) -> None:
        if type(line.what) in wants:
            sink(line)

    return filtered


class _Run:
    """One run of one scenario."""

    def __init__(self, stage: Stage, scenario: Resolved, sink: Sink, horizon_ns: int) -> None:
        self._stage = stage
        self._scenario = scenario
        self._sink = sink
        self._horizon_ns = horizon_ns
        self._cookie = secrets.token_hex(8)
        self._steps = list(scenario.steps)  # those whose moment has not come yet
        self._due: list[tuple[int, int, Step]] = []
        self._deadline_ns = time.monotonic_ns() + BOOT_LIMIT_NS
        self._connections: dict[int, Connection] = {}
        self._buffer = b""
        self._number = 0  # of the trace's lines read so far
        self._last_ns = 0
        self._code: int | None = None
        self._status: int | None = None
        self._fifo = os.open(stage.trace, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._pidfd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        """Leave nothing behind: connections, descriptors, processes."""
        try:
            self._kill_all()
            if self._pidfd >= 0 and self._status is None:
                os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED)
        finally:
            for connection in self._connections.values():
                connection.close()
            os.close(self._fifo)
            if self._pidfd >= 0:
                os.close(self._pidfd)

    def run(self) -> Outcome:
        """Start the broker, and do what is due until it has ended or the time is up."""
        self._start()
        poll = select.poll()
        poll.register(self._fifo, select.POLLIN)
        poll.register(self._pidfd, select.POLLIN)
        open_fifo = True
        while open_fifo or self._status is None:
            self._do_due(poll)
            left_ns = self._next_ns() - time.monotonic_ns()
            if left_ns <= 0 and time.monotonic_ns() >= self._deadline_ns:
                return self._late()
            for fd, _ in poll.poll(max(0, -(-left_ns // 1_000_000))):
                if fd == self._fifo:
                    open_fifo = self._read()
                    if not open_fifo:
                        poll.unregister(fd)
                elif fd == self._pidfd:
                    self._status = pidfd.wait(fd)
                    poll.unregister(fd)
                    # A broker that ends before it opened its trace leaves a FIFO that nobody will ever write to.
                    open_fifo = open_fifo and self._read()
                elif not self._connections[fd].skip():
                    poll.unregister(fd)
                    self._connections.pop(fd).close()
        return self._ended()

    def _start(self) -> None:
        env = {name: value for name, value in os.environ.items() if name not in NOT_INHERITED}
        outer = env.get(proc.COOKIE)
        env[proc.COOKIE] = f"{outer},{self._cookie}:broker" if outer else f"{self._cookie}:broker"
        stderr = os.open(self._stage.stderr, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._pidfd = spawn(self._stage.argv(), env=env, stdout=stderr, stderr=stderr).pidfd
        except OSError as error:
            raise KernelError(f"cannot start a broker: {error.strerror}") from None
        finally:
            os.close(stderr)

    # ---- the trace

    def _read(self) -> bool:
        """Read what there is of the trace; False at its end."""
        while True:
            try:
                data = os.read(self._fifo, CHUNK)
            except BlockingIOError:
                return True
            if not data:
                return False
            *lines, self._buffer = (self._buffer + data).split(b"\n")
            for line in lines:
                self._number += 1
                if self._number == 1:
                    trace.decode_header(line, "live trace")
                else:
                    self._line(trace.decode_line(line, "live trace", self._number))

    def _line(self, line: Line) -> None:
        if self._number == 2:
            self._deadline_ns = line.t_ns + self._horizon_ns
            for step in self._steps.copy():
                self._schedule(step, line.t_ns, step.trigger.begin())
        self._last_ns = line.t_ns
        if isinstance(line.what, Exit):
            self._code = line.what.code
            self._deadline_ns = time.monotonic_ns() + END_LIMIT_NS
        self._sink(line)
        for step in self._steps.copy():
            self._schedule(step, line.t_ns, step.trigger.see(line))

    # ---- steps

    def _schedule(self, step: Step, from_ns: int, delay_ns: int | None) -> None:
        if delay_ns is not None:
            self._steps.remove(step)
            heappush(self._due, (from_ns + delay_ns, len(self._scenario.steps) - len(self._steps), step))

    def _next_ns(self) -> int:
        return min(self._due[0][0], self._deadline_ns) if self._due else self._deadline_ns

    def _do_due(self, poll: select.poll) -> None:
        while self._due and self._due[0][0] <= time.monotonic_ns() and self._code is None:
            self._do(heappop(self._due)[2].deed, poll)

    def _do(self, deed: Deed, poll: select.poll) -> None:
        match deed:
            case Deliver(event=Signal(signum=signum)):
                pidfd.send(self._pidfd, signum)
            case Deliver(event=Asked(what=what, words=words)):
                try:
                    connection = Connection(self._stage.rundir)
                    connection.send(what, words)
                except ControlError:
                    return  # it is ending, and nobody listens any more: in no world would it answer
                self._connections[connection.fileno()] = connection
                poll.register(connection.fileno(), select.POLLIN)
            case _:
                raise KernelError(f"{self._scenario.name}: {deed!r} can't be done to real processes")

    # ---- ends

    def _late(self) -> Outcome:
        """The time is up."""
        if self._number < 2:
            raise KernelError(f"no broker within {as_short(BOOT_LIMIT_NS)}: {self._stage.last_words()}")
        if self._code is not None:
            raise KernelError(f"the broker said exit code {self._code}, but did not end")
        return Outcome("horizon", self._deadline_ns, {}, self._undone())

    def _ended(self) -> Outcome:
        assert self._status is not None
        code = os.waitstatus_to_exitcode(self._status)
        if self._code is None:
            raise KernelError(f"the broker broke down ({code}): {self._stage.last_words()}")
        if code != self._code:
            raise KernelError(f"the broker said exit code {self._code}, but ended with {code}")
        return Outcome("ended", self._last_ns, {0: self._code}, self._undone())

    def _undone(self) -> tuple[str, ...]:
        left = {id(step) for step in self._steps} | {id(step) for _, _, step in self._due}
        return tuple(step.text for step in self._scenario.steps if id(step) in left)

    def _kill_all(self) -> None:
        """End every process that descends from this run."""
        cookie = self._cookie.encode()
        end_ns = time.monotonic_ns() + KILL_LIMIT_NS
        while pids := proc.carriers(cookie):
            if time.monotonic_ns() > end_ns:
                what = ", ".join(f"{proc.command(pid)} (pid {pid})" for pid in pids)
                raise KernelError(f"{self._scenario.name}: cannot kill: {what}")
            for pid in pids:
                fd = pidfd.open_pid(pid)
                if fd is not None:
                    if proc.carries(pid, cookie):
                        pidfd.send(fd, signal.SIGKILL)
                    os.close(fd)
            time.sleep(0.002)
