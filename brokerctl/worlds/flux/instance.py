"""A running instance of a real Flux, from outside: its log as it comes, its brokers, and what is asked of it.

Requests are Flux's own commands, each a process of its own; they run beside the loop, and what they say is handed over
when they have ended.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Self

from brokerctl.durations import MS, S
from brokerctl.errors import KernelError
from brokerctl.kernel import pidfd, proc, scope
from brokerctl.kernel.spawn import Child, spawn

if TYPE_CHECKING:
    from brokerctl.worlds.flux.stage import Stage

KILL_LIMIT_NS = 5 * S
CHUNK = 1 << 16
MESSAGE_MAX = 1 << 13
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid (unix(7))


class Process:
    """A process that was started, and what it writes, by lines; `code` when it has ended."""

    def __init__(self, child: Child, fd: int) -> None:
        self.pid, self.pidfd = child
        self.fd = fd  # -1 when it was read to its end
        self.buffer = b""
        self.code: int | None = None

    def read(self) -> list[str]:
        """The lines that there are now; at the end of the output also one without an end."""
        try:
            data = os.read(self.fd, CHUNK)
        except BlockingIOError:
            return []
        *lines, self.buffer = (self.buffer + data).split(b"\n")
        if not data:
            lines = [self.buffer] if self.buffer else []
            self.close()
        return [line.decode(errors="backslashreplace") for line in lines]

    def close(self) -> None:
        """Read no more."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


Said = Callable[[str], None]
Over = Callable[[int], None]


class Instance:
    """The brokers of one run. `begun_ns` and `realtime_ns` are the launch by two clocks."""

    def __init__(self, stage: Stage, *, notify: bool) -> None:
        self._stage = stage
        self._env = stage.environment(str(stage.folder / "notify") if notify else "")
        self._poll = select.poll()
        self._readers: dict[int, tuple[Process, Said, Over]] = {}
        self._socket = self._listen(stage.folder / "notify") if notify else None
        self._brokers: dict[int, tuple[int, int]] = {}  # rank → pid, pidfd
        self.begun_ns = self.realtime_ns = 0
        self._main: Process | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        """Leave no process and no descriptor behind."""
        try:
            left = scope.kill_carriers(self._stage.cookie.encode(), KILL_LIMIT_NS)
        finally:
            for process, _, _ in self._readers.values():
                process.close()
                self._reap(process)
            for _pid, fd in self._brokers.values():
                os.close(fd)
            if self._socket is not None:
                self._socket.close()
        if left:
            raise KernelError(f"cannot kill: {', '.join(f'{proc.command(pid)} (pid {pid})' for pid in left)}")

    def launch(self, said: Said) -> None:
        """Start it; `said` gets each line that it logs."""
        self.begun_ns, self.realtime_ns = time.monotonic_ns(), time.time_ns()
        self._main = self._start("flux start", self._stage.argv(), said, lambda _code: None)
        # Who has lost its broker, or is frozen, may hold the log when it has ended.
        self._poll.register(self._main.pidfd, select.POLLIN)

    def clock(self) -> int:
        """Nanoseconds since the launch."""
        return time.monotonic_ns() - self.begun_ns if self.begun_ns else 0

    @property
    def over(self) -> bool:
        """It has ended, and so has its log."""
        assert self._main is not None
        return self._main.fd < 0

    @property
    def code(self) -> int | None:
        """The exit code of `flux start`, which is the leader's."""
        assert self._main is not None
        return self._main.code

    # ---- what comes

    def wait(self, limit_ns: int, told: Callable[[int, str], None]) -> None:
        """Wait until something has come, at most that long, and take it in; `told(rank, text)`: a notification."""
        for fd, _ in self._poll.poll(max(0, -(-limit_ns // MS))):
            if self._socket is not None and fd == self._socket.fileno():
                self._hear(told)
                continue
            main = self._main
            if main is not None and fd == main.pidfd:
                self._finish(main.fd)
            elif fd in self._readers:
                self._take(fd)

    def _take(self, fd: int) -> bool:
        """Read once; False where there was nothing, or nothing more will come."""
        process, said, over = self._readers[fd]
        lines = process.read()
        for line in lines:
            said(line)
        if process.fd < 0:
            self._poll.unregister(fd)
            del self._readers[fd]
            self._reap(process)
            over(process.code or 0)
        return bool(lines) and process.fd >= 0

    def _finish(self, fd: int) -> None:
        """The instance has ended: read what is there, and wait for nobody who holds its log."""
        while fd in self._readers and self._take(fd):
            pass
        if fd in self._readers:
            process, _, over = self._readers.pop(fd)
            self._poll.unregister(fd)
            process.close()
            self._reap(process)
            over(process.code or 0)

    def _reap(self, process: Process) -> None:
        """Its output has ended; a moment later so has it, or it is made to. Who survives that is not waited for."""
        ended = select.poll()
        ended.register(process.pidfd, select.POLLIN)
        if not ended.poll(KILL_LIMIT_NS // MS):
            pidfd.send(process.pidfd, signal.SIGKILL)
        got = os.waitid(os.P_PIDFD, process.pidfd, os.WEXITED) if ended.poll(KILL_LIMIT_NS // MS) else None
        if process is self._main:
            self._poll.unregister(process.pidfd)
        os.close(process.pidfd)
        if got is None:
            process.code = 128 + signal.SIGKILL
        else:
            process.code = got.si_status if got.si_code == os.CLD_EXITED else 128 + got.si_status

    def _start(self, name: str, argv: list[str], said: Said, over: Over, uri: str = "") -> Process:
        ours, theirs = os.pipe2(os.O_CLOEXEC)
        env = {**self._env, "FLUX_URI": uri} if uri else self._env
        try:
            os.set_blocking(ours, False)
            child = spawn(argv, env=env, stdout=theirs, stderr=theirs, cwd=str(self._stage.folder))
        except OSError as error:
            os.close(ours)
            raise KernelError(f"cannot start {name}: {error.strerror}") from None
        finally:
            os.close(theirs)
        process = Process(child, ours)
        self._readers[ours] = (process, said, over)
        self._poll.register(ours, select.POLLIN)
        return process

    def _listen(self, path: Path) -> socket.socket:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        made.bind(str(path))
        self._poll.register(made.fileno(), select.POLLIN)
        return made

    def _hear(self, told: Callable[[int, str], None]) -> None:
        assert self._socket is not None
        data, ancillary, _flags, _peer = self._socket.recvmsg(MESSAGE_MAX, socket.CMSG_SPACE(_CREDENTIALS.size))
        pid = next((_CREDENTIALS.unpack(words)[0] for _, kind, words in ancillary if kind == socket.SCM_CREDENTIALS), 0)
        ranks = {broker: rank for rank, (broker, _) in self.brokers().items()}
        told(ranks.get(pid, 0), data.decode(errors="backslashreplace"))

    # ---- its brokers

    def brokers(self) -> dict[int, tuple[int, int]]:
        """The process of each rank, with a pidfd; looked for until all are found."""
        if len(self._brokers) < self._stage.size and self._main is not None:
            for pid in proc.children_of(self._main.pid):
                rank = _rank(pid)
                if rank is not None and rank not in self._brokers:
                    fd = pidfd.open_pid(pid)
                    if fd is not None:
                        self._brokers[rank] = pid, fd
        return self._brokers

    def signal(self, rank: int, signum: int) -> bool:
        """Send a signal to a broker; False where there is none any more."""
        found = self.brokers().get(rank)
        return found is not None and pidfd.send(found[1], signum) == 0

    # ---- what is asked of it

    def ask(
        self, rank: int, words: list[str], said: Said = lambda _line: None, over: Over = lambda _code: None
    ) -> None:
        """Run a command of Flux as a client of that rank's broker."""
        argv = [self._stage.flux, *words]
        self._start(" ".join(["flux", *words]), argv, said, over, self._stage.uri(rank))


def _rank(pid: int) -> int | None:
    """Of a broker that was started as a test instance's."""
    for entry in proc.environ(pid).split(b"\0"):
        if entry.startswith(b"PMI_RANK="):
            return int(entry.removeprefix(b"PMI_RANK="))
    return None
