"""Asking by commands: several at a time, each bounded, killed and reaped, whatever it does.

An *errand* is a generator: it yields the commands that it wants answered together, and gets what they said; it returns
what it found out. So an errand reads from top to bottom, is tested with recorded answers, and none waits for another.
"""

from __future__ import annotations

import functools
import os
import select
import signal
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from brokerctl.durations import MS, S, as_short
from brokerctl.errors import BrokerctlError
from brokerctl.kernel import pidfd
from brokerctl.kernel.proc import User
from brokerctl.kernel.spawn import Begun, Child, Place, begin

# Commands are looked up here and nowhere else: what started us may have any PATH.
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
ENVIRONMENT: Mapping[str, str] = {"PATH": PATH, "LANG": "C.UTF-8", "HOME": "/"}
# `flux overlay status` of 16,384 ranks is 1 MB, the jobs of a busy system some more.
OUTPUT_MAX = 8 << 20
WHY_MAX = 200
_CHUNK = 1 << 16
_KILL_PATIENCE_NS = 200 * MS  # SIGKILL takes about a millisecond; one in state D is left to whoever cleans up the unit


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
    """One command under way; `started` is to be called when the others of its errand are begun, too."""

    child: Child

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
            place = Place((None, out_end, err_end), cwd="/", user=command.user)
            self._begun: Begun = begin(command.argv, command.environment, place)
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

    def started(self) -> None:
        """Wait until it runs; OSError where it can't be run."""
        try:
            self.child = self._begun.child()
        except OSError:
            for fd in self.streams:
                os.close(fd)
            raise

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
            pidfd.ends_within(self.child.pidfd, _KILL_PATIENCE_NS)
            self.exited()
        for fd, buffer in self.streams.items():
            # What it has left behind may write for ever.
            while not late and len(buffer) < OUTPUT_MAX and self.read(fd) and self._more(fd):
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


def _refused(command: Command, error: OSError) -> Said:
    return Said("", f"{command.argv[0]}: {error.strerror}")


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
        refused: dict[int, Said] = {}
        begun: list[tuple[int, _Process]] = []
        for index, command in enumerate(commands):
            try:
                process = _Process(command, running.deadline_ns, functools.partial(told, index))
            except OSError as error:
                refused[index] = _refused(command, error)
            else:
                begun.append((index, process))
        for index, process in begun:
            try:
                process.started()
            except OSError as error:
                refused[index] = _refused(commands[index], error)
            else:
                self._watch(process)
        for index, answer in refused.items():
            told(index, answer)

    def _watch(self, process: _Process) -> None:
        self._processes.add(process)
        for fd in (*process.streams, process.child.pidfd):
            self._by_fd[fd] = process
            self._poll.register(fd, select.POLLIN)

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


class Pending(Generic[T]):
    """One errand that is begun at once; `result` waits for its end. At the end of its `with` nothing is left of it."""

    def __init__(self, errand: Errand[T], within_ns: int) -> None:
        self._found: list[tuple[T | None, str]] = []
        self._runner = Runner()
        self._runner.start(errand, within_ns, lambda value, why: self._found.append((value, why)))

    def __enter__(self) -> Pending[T]:
        return self

    def __exit__(self, *_error: object) -> None:
        self._runner.close()

    def result(self) -> tuple[T | None, str]:
        """What it returns, or None and why not."""
        while not self._found:
            self._runner.turn()
        return self._found[0]


def attempt(errand: Errand[T], within_ns: int) -> tuple[T | None, str]:
    """One errand to its end: what it returns, or None and why not."""
    with Pending(errand, within_ns) as pending:
        return pending.result()


def carry_out(errand: Errand[T], within_ns: int) -> T | None:
    """One errand to its end; None where it went wrong."""
    return attempt(errand, within_ns)[0]
