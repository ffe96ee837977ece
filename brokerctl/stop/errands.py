"""Asking by commands: several at a time, each bounded, killed and reaped, whatever it does.

An *errand* is a generator: it yields the commands that it wants answered together, and gets what they said; it returns
what it found out. So an errand reads from top to bottom, is tested with recorded answers, and none waits for another.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from brokerctl.durations import MS, S, as_short
from brokerctl.errors import BrokerctlError
from brokerctl.kernel import pidfd
from brokerctl.kernel.proc import User
from brokerctl.kernel.spawn import Child, spawn

# Commands are looked up here and nowhere else: what started us may have any PATH.
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
ENVIRONMENT: Mapping[str, str] = {"PATH": PATH, "LANG": "C.UTF-8", "HOME": "/"}
# `flux overlay status` of 16,384 ranks is 1 MB, the jobs of a busy system some more.
OUTPUT_MAX = 8 << 20
WHY_MAX = 200
_CHUNK = 1 << 16
_KILL_PATIENCE_MS = 200  # SIGKILL takes about a millisecond; one in state D is left to whoever cleans up the unit


class Command(NamedTuple):
    """A command to run: an argument list, for how long at most, as whom (None: as we are), and its environment."""

    argv: Sequence[str]
    within_ns: int = 2 * S
    user: User | None = None
    environment: Mapping[str, str] = ENVIRONMENT


class Said(NamedTuple):
    """What a command said. `why` is empty where it exited 0; else `text` has what came before that."""

    text: str
    why: str = ""


def printable(text: str) -> str:
    """One line for a log, whatever is in it."""
    return "".join(char if char.isprintable() else "?" for char in text)


T = TypeVar("T")
Errand = Generator[Sequence[Command], list[Said], T]


def nothing() -> Errand[None]:
    """An errand that asks nothing."""
    yield []


class _Process:
    """One command under way."""

    def __init__(self, command: Command, deadline_ns: int, done: Callable[[Said], None]) -> None:
        self.deadline_ns = min(deadline_ns, time.monotonic_ns() + command.within_ns)
        self._began_ns = time.monotonic_ns()
        self._name = " ".join(command.argv[:3])
        self._done = done
        self._out, self._err = bytearray(), bytearray()
        self.streams: dict[int, bytearray] = {}
        self._status: int | None = None
        out, out_end = os.pipe()
        err, err_end = os.pipe()
        try:
            self.child: Child = spawn(
                command.argv, env=command.environment, stdout=out_end, stderr=err_end, cwd="/", user=command.user
            )
        except OSError:
            os.close(out)
            os.close(err)
            raise
        finally:
            os.close(out_end)
            os.close(err_end)
        for fd, buffer in ((out, self._out), (err, self._err)):
            os.set_blocking(fd, False)
            self.streams[fd] = buffer

    def read(self, fd: int) -> bool:
        """Take in what has come; False at its end."""
        buffer = self.streams[fd]
        try:
            data = os.read(fd, _CHUNK)
        except BlockingIOError:
            return True
        except OSError:
            data = b""
        buffer += data[: max(0, OUTPUT_MAX - len(buffer))]
        return bool(data)

    def exited(self) -> bool:
        """Whether its process has ended; it is reaped then."""
        if self._status is None:
            self._status = pidfd.wait(self.child.pidfd)
        return self._status is not None

    def finish(self) -> None:
        """Tell what it said; if its process has not ended, end it."""
        late = not self.exited()
        if late:
            try:
                os.killpg(self.child.pid, signal.SIGKILL)
            except OSError:
                pidfd.send(self.child.pidfd, signal.SIGKILL)
            poll = select.poll()
            poll.register(self.child.pidfd, select.POLLIN)
            poll.poll(_KILL_PATIENCE_MS)
            self.exited()
        for fd in self.streams:
            while not late and self.read(fd) and self._more(fd):
                pass
            os.close(fd)
        os.close(self.child.pidfd)
        self.streams.clear()
        self._done(Said(self._out.decode(errors="replace"), self._why(late)))

    def abandon(self) -> None:
        """Tell nobody what it said."""
        self._done = lambda _said: None

    @staticmethod
    def _more(fd: int) -> bool:
        return bool(select.select([fd], [], [], 0)[0])

    def _why(self, late: bool) -> str:
        if late:
            return f"{self._name}: no answer within {as_short(time.monotonic_ns() - self._began_ns)}"
        code = os.waitstatus_to_exitcode(self._status or 0)
        if not code:
            return ""
        said = self._err.decode(errors="replace").strip().splitlines()
        return f"{self._name}: {printable(said[-1])[:WHY_MAX] if said else f'exited with {code}'}"


class _Running(NamedTuple):
    errand: Errand[Any]
    deadline_ns: int
    done: Callable[[Any, str], None]


class Runner:
    """Carries errands out, all at once. `close` ends what is still under way."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._by_fd: dict[int, _Process] = {}  # pipes and pidfds
        self._processes: set[_Process] = set()
        self._watched: dict[int, Callable[[], None]] = {}

    def watch(self, fd: int, readable: Callable[[], None]) -> None:
        """Call a function whenever a descriptor is readable, or at its end."""
        self._watched[fd] = readable
        self._poll.register(fd, select.POLLIN)

    def start(self, errand: Errand[T], within_ns: int, done: Callable[[T | None, str], None]) -> None:
        """Begin an errand; `done` gets what it returns, or None and why not."""
        self._go_on(_Running(errand, time.monotonic_ns() + within_ns, done), None)

    def _go_on(self, running: _Running, said: list[Said] | None) -> None:
        try:
            commands = next(running.errand) if said is None else running.errand.send(said)
        except StopIteration as end:
            running.done(end.value, "")
            return
        except (BrokerctlError, OSError) as error:
            running.done(None, str(error))
            return
        except Exception as error:  # noqa: BLE001 - a bug in one answer must not cost the others
            running.done(None, f"{type(error).__name__}: {error}")
            return
        answers: list[Said | None] = [None] * len(commands)

        def told(index: int, answer: Said) -> None:
            answers[index] = answer
            if all(answers):
                self._go_on(running, [one for one in answers if one is not None])

        if not commands:
            self._go_on(running, [])
        # All are begun before the first can be answered, which happens in `turn` alone, or at once, if it can't be run.
        refused = [(i, no) for i, command in enumerate(commands) if (no := self._begin(command, running, i, told))]
        for index, answer in refused:
            told(index, answer)

    def _begin(self, command: Command, running: _Running, index: int, told: Callable[[int, Said], None]) -> Said | None:
        try:
            process = _Process(command, running.deadline_ns, lambda said: told(index, said))
        except OSError as error:
            return Said("", f"{command.argv[0]}: {error.strerror}")
        self._processes.add(process)
        for fd in (*process.streams, process.child.pidfd):
            self._by_fd[fd] = process
            self._poll.register(fd, select.POLLIN)
        return None

    @property
    def busy(self) -> bool:
        """Whether any command is under way."""
        return bool(self._processes)

    def turn(self, within_ns: int | None = None) -> None:
        """Wait for what happens next, at most that long, and take it in."""
        now_ns = time.monotonic_ns()
        ends_ns = [process.deadline_ns for process in self._processes]
        if within_ns is not None:
            ends_ns.append(now_ns + within_ns)
        wait_ms = None if not ends_ns else max(0, -((now_ns - min(ends_ns)) // MS))
        for fd, _ in self._poll.poll(wait_ms):
            self._ready(fd)
        now_ns = time.monotonic_ns()
        for process in [one for one in self._processes if one.deadline_ns <= now_ns]:
            self._end(process)

    def _ready(self, fd: int) -> None:
        process = self._by_fd.get(fd)
        if process is None:
            if fd in self._watched:
                self._watched[fd]()
        elif fd == process.child.pidfd:
            if process.exited():  # else the event was of an earlier process with this descriptor
                self._end(process)
        elif not process.read(fd):
            self._poll.unregister(fd)
            del self._by_fd[fd]

    def _end(self, process: _Process) -> None:
        if process not in self._processes:
            return
        self._processes.discard(process)
        for fd in (*process.streams, process.child.pidfd):
            if self._by_fd.pop(fd, None) is not None:
                self._poll.unregister(fd)
        process.finish()

    def close(self) -> None:
        """End every command; their errands are not told."""
        for process in list(self._processes):
            process.abandon()
            self._end(process)


def attempt(errand: Errand[T], within_ns: int) -> tuple[T | None, str]:
    """One errand to its end: what it returns, or None and why not."""
    found: list[tuple[T | None, str]] = []
    runner = Runner()
    try:
        runner.start(errand, within_ns, lambda value, why: found.append((value, why)))
        while not found:
            runner.turn()
    finally:
        runner.close()
    return found[0]


def carry_out(errand: Errand[T], within_ns: int) -> T | None:
    """One errand to its end; None where it went wrong."""
    return attempt(errand, within_ns)[0]
