"""The live world of scenarios: real brokers, real processes, real signals, on this machine and in real time.

Each rank's broker is started as anybody would start it, with its trace going to a FIFO that is read as it grows. Steps
are done from outside: signals to its process, requests over its control socket. Nothing outlives a run: whatever still
carries its cookie at the end is killed.

The lines of one rank come in their order; those of several ranks as they arrive, what arrives together by time.
"""

from __future__ import annotations

import os
import secrets
import select
import signal
import time
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Literal, Self

from brokerctl import trace
from brokerctl.durations import S, as_short
from brokerctl.errors import ControlError, KernelError
from brokerctl.kernel import pidfd, proc, scope
from brokerctl.kernel.spawn import spawn
from brokerctl.records import Asked, Exit, Line, Signal, Store
from brokerctl.worlds.contract import Capability, Deliver, Fault, Outcome, Resolved, Sink
from brokerctl.worlds.live import launch
from brokerctl.worlds.live.client import Connection
from brokerctl.worlds.live.stage import Stage

if TYPE_CHECKING:
    from brokerctl.worlds.contract import Deed, Step

# A broker boots in a tenth of a second; on a machine that is overloaded, in some.
BOOT_LIMIT_NS = 30 * S
# After the broker's last words: the pipe is read to its end, the process reaped.
END_LIMIT_NS = 10 * S
# SIGKILL takes effect in milliseconds, but for processes in uninterruptible sleep.
KILL_LIMIT_NS = 5 * S
CHUNK = 1 << 16
NOT_INHERITED = (
    "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "RUNTIME_DIRECTORY", "BROKERCTL_RUNDIR", "BROKERCTL_RANK",
)  # fmt: skip
FAULT_SIGNALS = {"crash": signal.SIGKILL, "freeze": signal.SIGSTOP, "thaw": signal.SIGCONT}


class LiveWorld:
    """The world of real processes: as many brokers as ranks, all on this machine."""

    name = "live"
    capabilities: frozenset[Capability] = frozenset({"real-processes", "ranks", "jobs"})

    def run(self, scenario: Resolved, sink: Sink, horizon_ns: int, wants: frozenset[type] | None = None) -> Outcome:
        """Run it to its end, or to the horizon; KernelError where no broker can be run here, or it broke down.

        All lines are made anyhow, as the trace of a real broker; `wants` spares the sink the others.
        """
        stage = Stage(scenario)
        try:
            with Run(stage, scenario, only(wants, sink), horizon_ns) as run:
                return run.run()
        finally:
            stage.close()


def only(wants: frozenset[type] | None, sink: Sink) -> Sink:
    """The sink, without the lines that it does not want."""

    def filtered(line: Line) -> None:
        if wants is None or type(line.what) in wants:
            sink(line)

    return filtered


class Rank:
    """The broker of one rank, from outside."""

    __slots__ = (
        "buffer", "code", "crashed", "early", "end_ns", "fifo", "frozen", "number", "pidfd", "rank", "status",
    )  # fmt: skip

    def __init__(self, rank: int, fifo: int) -> None:
        self.rank = rank
        self.fifo = fifo  # -1 when it has been read to its end
        self.pidfd = -1
        self.status: int | None = None
        self.code: int | None = None  # that it said
        self.end_ns = 0  # having said it, it must be gone then
        self.crashed = False
        self.frozen = False
        self.early: list[str] = []  # faults that came before it was up
        self.buffer = b""
        self.number = 0  # of its trace's lines read so far

    @property
    def over(self) -> bool:
        """Nothing can be told of it any more."""
        return self.fifo < 0 and self.status is not None

    @property
    def lives(self) -> bool:
        """Something can be done to it."""
        return self.status is None and self.code is None and not self.crashed

    def close_fifo(self) -> None:
        """Nothing more is read of its trace."""
        if self.fifo >= 0:
            os.close(self.fifo)
            self.fifo = -1

    def read(self) -> list[Line]:
        """What there is of the trace; at its end, its FIFO is closed. Half a line at the end is of a crashed one."""
        lines: list[Line] = []
        while self.fifo >= 0:
            try:
                data = os.read(self.fifo, CHUNK)
            except BlockingIOError:
                break
            if not data:
                self.close_fifo()
                break
            *rows, self.buffer = (self.buffer + data).split(b"\n")
            for row in rows:
                self.number += 1
                if self.number == 1:
                    trace.decode_header(row, "live trace")
                else:
                    lines.append(trace.decode_line(row, "live trace", self.number))
        return lines


class Run:
    """One run of one scenario. A world that builds on this one has more to look after besides (`_beside`)."""

    def __init__(self, stage: Stage, scenario: Resolved, sink: Sink, horizon_ns: int) -> None:
        self._stage = stage
        self._scenario = scenario
        self._sink = sink
        self._horizon_ns = horizon_ns
        self._cookie = secrets.token_hex(8)
        self._steps = list(scenario.steps)  # those whose moment has not come yet
        self._due: list[tuple[int, int, Step]] = []
        self._deadline_ns = time.monotonic_ns() + BOOT_LIMIT_NS
        self._begun = False
        self._connections: dict[int, Connection] = {}
        self._last_ns = 0
        self._stored: dict[str, str] = {}
        self._poll = select.poll()
        self._fds: dict[int, Rank] = {}
        self._ranks: list[Rank] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        """Leave nothing behind: connections, descriptors, processes."""
        living = [rank for rank in self._ranks if rank.pidfd >= 0 and rank.status is None]
        try:
            for rank in living:
                pidfd.send(rank.pidfd, signal.SIGKILL)  # one that is just being started carries no cookie yet
            self._kill_all()
            for rank in living:
                if pidfd.ends_within(rank.pidfd, KILL_LIMIT_NS):
                    pidfd.wait(rank.pidfd)
        finally:
            for connection in self._connections.values():
                connection.close()
            for rank in self._ranks:
                rank.close_fifo()
                if rank.pidfd >= 0:
                    os.close(rank.pidfd)

    def run(self) -> Outcome:
        """Start the brokers, and do what is due until they have ended or the time is up."""
        for rank in range(self._stage.size):
            self._start(rank)
        while (living := [rank for rank in self._ranks if not rank.over]) or self._goes_on():
            self._do_due()
            if living and not self._due and all(rank.frozen for rank in living):
                # Nothing can happen any more. Who is frozen when the leader has ended is a loss, no deadlock.
                if living[0].rank == 0:
                    return self._outcome("stuck", self._last_ns)
                if not self._goes_on():
                    return self._outcome("ended", self._last_ns)
            left_ns = self._next_ns() - time.monotonic_ns()
            if left_ns <= 0 and time.monotonic_ns() >= self._limit_ns():
                return self._late()
            lines: list[Line] = []
            ready = {fd for fd, _ in self._poll.poll(max(0, -(-left_ns // 1_000_000)))}
            self._beside(ready)
            for fd in ready:
                if fd in self._fds:
                    lines += self._ready(self._fds[fd], fd)
                elif fd in self._connections and not self._connections[fd].skip():
                    self._poll.unregister(fd)
                    self._connections.pop(fd).close()
            for line in sorted(lines, key=lambda line: (line.t_ns, line.rank, line.n)):
                self._line(line)
        return self._outcome("ended", self._last_ns)

    def _goes_on(self) -> bool:
        """Whether anything goes on besides the brokers."""
        return False

    def _beside(self, ready: set[int]) -> None:
        """Look after what else these descriptors are of."""

    def _start(self, number: int) -> None:
        rank = Rank(number, os.open(self._stage.trace(number), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
        self._ranks.append(rank)
        env = launch.environment(os.environ, f"{self._cookie}:{number}", NOT_INHERITED)
        stderr = os.open(self._stage.stderr(number), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            rank.pidfd = spawn(self._stage.argv(number), env=env, stdout=stderr, stderr=stderr).pidfd
        except OSError as error:
            raise KernelError(f"cannot start a broker: {error.strerror}") from None
        finally:
            os.close(stderr)
        for fd in (rank.fifo, rank.pidfd):
            self._fds[fd] = rank
            self._poll.register(fd, select.POLLIN)

    # ---- the traces

    def _ready(self, rank: Rank, fd: int) -> list[Line]:
        """What a descriptor of a rank tells; one that has told everything is not polled any more."""
        if fd == rank.pidfd:
            rank.status = pidfd.wait(fd)
            self._poll.unregister(fd)
            del self._fds[fd]
        fifo = rank.fifo
        lines = rank.read()
        if fd == rank.pidfd:
            # A broker that ends before it opened its trace leaves a FIFO that nobody will ever write to.
            rank.close_fifo()
        if fifo >= 0 and rank.fifo < 0:
            self._poll.unregister(fifo)
            del self._fds[fifo]
        for line in lines:
            if isinstance(line.what, Exit):
                rank.code = line.what.code
                rank.end_ns = time.monotonic_ns() + END_LIMIT_NS
        if rank.over:
            self._check_end(rank)
        return lines

    def _line(self, line: Line) -> None:
        if not self._begun:
            self._begun = True
            self._deadline_ns = line.t_ns + self._horizon_ns
            for step in self._steps.copy():
                self._schedule(step, line.t_ns, step.trigger.begin())
        self._last_ns = max(self._last_ns, line.t_ns)
        if isinstance(line.what, Store) and line.rank == 0:
            self._stored[line.what.key] = line.what.value
        self._sink(line)
        if line.rank >= 0:
            early = self._ranks[line.rank].early
            while early:
                self._hit(self._ranks[line.rank], early.pop(0))
        for step in self._steps.copy():
            self._schedule(step, line.t_ns, step.trigger.see(line))

    # ---- steps

    def _schedule(self, step: Step, from_ns: int, delay_ns: int | None) -> None:
        if delay_ns is not None:
            self._steps.remove(step)
            heappush(self._due, (from_ns + delay_ns, len(self._scenario.steps) - len(self._steps), step))

    def _limit_ns(self) -> int:
        return min([self._deadline_ns, *(rank.end_ns for rank in self._ranks if rank.end_ns and not rank.over)])

    def _next_ns(self) -> int:
        return min(self._due[0][0], self._limit_ns()) if self._due else self._limit_ns()

    def _do_due(self) -> None:
        while self._due and self._due[0][0] <= time.monotonic_ns():
            if not any(rank.lives for rank in self._ranks) and not self._goes_on():
                return
            self._do(heappop(self._due)[2].deed)

    def _do(self, deed: Deed) -> None:
        match deed:
            case Deliver(number, Signal(signum)):
                if self._ranks[number].lives:
                    pidfd.send(self._ranks[number].pidfd, signum)
            case Deliver(number, Asked("submit", text=text)):
                self._ask(number, "submit", text=self._stage.submission(text))
            case Deliver(number, Asked(what=what, words=words)):
                self._ask(number, what, words)
            case Fault(kind, numbers) if kind in FAULT_SIGNALS:
                for number in numbers:
                    self._hit(self._ranks[number], kind)
            case Fault("cut", numbers):
                for number in numbers:
                    self._ask(number, "cut")
            case _:
                raise KernelError(f"{self._scenario.name}: {deed!r} can't be done to real processes")

    def _hit(self, rank: Rank, kind: str) -> None:
        if not rank.lives:
            return  # a rank that is gone already has nothing left to break
        if rank.number < 2:
            rank.early.append(kind)  # in virtual time all are up from the first moment
            return
        rank.crashed = kind == "crash"
        rank.frozen = kind == "freeze"
        pidfd.send(rank.pidfd, FAULT_SIGNALS[kind])

    def _ask(self, number: int, what: str, words: tuple[str, ...] = (), text: str = "") -> None:
        if not self._ranks[number].lives:
            return
        try:
            connection = Connection(self._stage.rundir(number))
            connection.send(what, words, text)
        except ControlError:
            return  # it is ending, and nobody listens any more: in no world would it answer
        self._connections[connection.fileno()] = connection
        self._poll.register(connection.fileno(), select.POLLIN)

    # ---- ends

    def _who(self, rank: Rank) -> str:
        return "the broker" if self._stage.size == 1 else f"the broker of rank {rank.rank}"

    def _late(self) -> Outcome:
        """The time is up."""
        for rank in self._ranks:
            if not rank.number and not rank.over:
                words = self._stage.last_words(rank.rank)
                raise KernelError(f"{self._who(rank)} did not come within {as_short(BOOT_LIMIT_NS)}: {words}")
            if rank.code is not None and not rank.over and time.monotonic_ns() >= rank.end_ns:
                raise KernelError(f"{self._who(rank)} said exit code {rank.code}, but did not end")
        return self._outcome("horizon", self._deadline_ns)

    def _check_end(self, rank: Rank) -> None:
        """It ended as it said, or as it was made to."""
        assert rank.status is not None
        code = os.waitstatus_to_exitcode(rank.status)
        if rank.crashed:
            return
        if rank.code is None:
            raise KernelError(f"{self._who(rank)} broke down ({code}): {self._stage.last_words(rank.rank)}")
        if code != rank.code:
            raise KernelError(f"{self._who(rank)} said exit code {rank.code}, but ended with {code}")

    def _outcome(self, kind: Literal["ended", "stuck", "horizon"], t_ns: int) -> Outcome:
        exits = {rank.rank: rank.code for rank in self._ranks if rank.code is not None and rank.over}
        left = {id(step) for step in self._steps} | {id(step) for _, _, step in self._due}
        undone = tuple(step.text for step in self._scenario.steps if id(step) in left)
        return Outcome(kind, t_ns, exits, undone, self._stored)

    def _kill_all(self) -> None:
        """End every process that descends from this run."""
        left = scope.kill_carriers(self._cookie.encode(), KILL_LIMIT_NS)
        if left:
            what = ", ".join(f"{proc.command(pid)} (pid {pid})" for pid in left)
            raise KernelError(f"{self._scenario.name}: cannot kill: {what}")
