"""Workers as processes of this machine, known by their heartbeat files: nobody but this monitor ends one of them.

A pid in a file is a claim. It is opened as a pidfd, and only if the process behind that began when the file says is it
the worker; the same is checked before every signal. Another process that has the number by now is never signalled. Nor,
by a monitor that is root, one of another user than the file's: whoever may write a file could have anybody killed.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Iterable

from brokerctl.durations import S
from brokerctl.kernel import pidfd, proc
from brokerctl.model.ladder import Ladder
from brokerctl.monitors import beatfile
from brokerctl.monitors.contract import Capability, Health
from brokerctl.settings import Rung

# systemd's own habit, with supervisord's time (10 s); after SIGKILL as the last rung of a broker's ladder.
LADDER = (Rung(signal.SIGTERM, 10 * S), Rung(signal.SIGKILL, 5 * S))


class _Worker:
    """One worker: its file, and the process that was found behind it."""

    __slots__ = (
        "_stamp", "beat", "deadline_ns", "fd", "file", "foreign", "ladder", "memory_max", "name", "reading", "stuck",
    )  # fmt: skip

    def __init__(self, name: str, file: str, memory_max: int | None) -> None:
        self.name = name
        self.file = file
        self.memory_max = memory_max
        self.fd = -1
        self.beat: beatfile.Beat | None = None  # of the process that `fd` is
        self.reading: beatfile.Reading | None = None
        self.ladder: Ladder | None = None
        self.deadline_ns: int | None = None
        self.stuck = ""
        self.foreign = False  # its file names somebody else's process
        self._stamp = (0, 0)

    def refresh(self, now_ns: int, boot: str) -> beatfile.Reading:
        """What its file says; it is read only if it is another one than before."""
        try:
            found = os.stat(self.file, follow_symlinks=False)  # noqa: PTH116 - for each of a thousand, each second
            stamp = (found.st_ino, found.st_mtime_ns)
        except OSError:
            stamp = (-1, -1)
        if self.reading is None or stamp != self._stamp or self.reading.beat is None:
            self._stamp = stamp
            self.reading = beatfile.read(self.file)
            self._meet(self.reading)
            return self.reading
        beat = self.reading.beat
        # As long as its pidfd is not readable, the process behind it is the same.
        met = self.fd >= 0 and beat == self.beat
        if met and self.reading.verdict == "alive" and now_ns <= beat.beat_ns + beat.limit_ns:
            return self.reading
        verdict, text = beatfile.judge(beat, now_ns, boot, None if met else proc.stat)
        self.reading = self.reading._replace(verdict=verdict, text=text, age_ns=max(0, now_ns - beat.beat_ns))
        return self.reading

    def _meet(self, reading: beatfile.Reading) -> None:
        """Open the process that a file speaks of, if it is that one."""
        beat = reading.beat
        self.foreign = beat is not None and not _may_speak_for(reading.uid, beat.pid)
        if self.fd >= 0 and beat is not None and self.beat is not None:
            same = (beat.pid, beat.start_ticks) == (self.beat.pid, self.beat.start_ticks)
            if same and not self.foreign:
                self.beat = beat
                return
            self.forget()
        if beat is None or self.foreign or reading.verdict not in {"alive", "late", "stopping"}:
            return
        fd = pidfd.open_pid(beat.pid)
        if fd is None:
            return
        # The pidfd is of whoever has the number now; began it when the file says, and is it the owner's?
        if not (_is_it(beat) and _may_speak_for(reading.uid, beat.pid)):
            os.close(fd)
            return
        self.fd, self.beat = fd, beat

    def send(self, signum: int) -> bool:
        """Signal it, if it is still the one."""
        if self.fd < 0 or self.beat is None or not _is_it(self.beat):
            return False
        return pidfd.send(self.fd, signum) == 0

    def memory(self) -> int | None:
        """Its resident memory in bytes, if anybody wants to know."""
        return None if self.memory_max is None or self.beat is None else proc.memory(self.beat.pid)

    def forget(self) -> None:
        """It is gone, or another life has taken its place."""
        if self.fd >= 0:
            os.close(self.fd)
        self.fd, self.beat, self.ladder, self.deadline_ns, self.stuck = -1, None, None, None, ""


def _is_it(beat: beatfile.Beat) -> bool:
    """The process that has that number now began when the file says."""
    found = proc.stat(beat.pid)
    return found is not None and found.start_ticks == beat.start_ticks and found.state not in "ZX"


def _may_speak_for(uid: int, pid: int) -> bool:
    """Whether a file of that owner may be about that process. Who is not root can't signal others' processes anyway."""
    user = proc.credentials(pid)
    return os.geteuid() != 0 or uid == 0 or user is None or user.uid == uid


class ProcessMonitor:
    """Watches processes by their heartbeat files; stops one by the kill ladder, which climbs while `look` is called."""

    name = "process"
    capabilities: frozenset[Capability] = frozenset()

    def __init__(self, *, ladder: tuple[Rung, ...] = LADDER) -> None:
        self._ladder = ladder
        self._workers: dict[str, _Worker] = {}
        self._boot = beatfile.boot_id()

    def add(self, file: str | os.PathLike[str], *, name: str = "", memory_max: int | None = None) -> None:
        """Watch the worker of that file, which need not be there yet; it may have that many bytes of memory."""
        path = os.fspath(file)
        name = name or os.path.basename(path)  # noqa: PTH119 - a name
        assert name not in self._workers, f"{name} is watched already"
        self._workers[name] = _Worker(name, path, memory_max)

    def look(self) -> list[Health]:
        """How each worker is now; ladders climb."""
        now_ns = time.monotonic_ns()
        ended = self._ended()
        return [self._look(worker, now_ns, gone=worker.fd in ended) for worker in self._workers.values()]

    def _ended(self) -> set[int]:
        """The pidfds of those that have ended."""
        poll = select.poll()
        for worker in self._workers.values():
            if worker.fd >= 0:
                poll.register(worker.fd, select.POLLIN)
        return {fd for fd, _events in poll.poll(0)}

    def _look(self, worker: _Worker, now_ns: int, *, gone: bool) -> Health:
        if gone:
            life, pid = _life(worker.beat), worker.beat.pid if worker.beat is not None else 0
            worker.forget()
            worker.refresh(now_ns, self._boot)
            return Health(worker.name, "gone", ready=False, life=life, text=f"pid {pid} has ended")
        reading = worker.refresh(now_ns, self._boot)
        life = _life(reading.beat)
        state = beatfile.condition(reading)
        if worker.fd < 0 and state != "gone":
            text = "its file is not of the user whose process it names" if worker.foreign else "it has ended just now"
            return Health(worker.name, "gone", ready=False, life=life, text=text)
        if worker.ladder is not None:
            self._climb(worker, now_ns)
            return Health(worker.name, "stopping", ready=False, life=life, text=worker.stuck or "is being stopped")
        memory = worker.memory()
        if memory is not None and worker.memory_max is not None and memory > worker.memory_max:
            text = f"has {memory >> 20} MiB of memory; expected at most {worker.memory_max >> 20}"
            return Health(worker.name, "swollen", ready=False, life=life, text=text, memory=memory)
        text = reading.text
        if state == "alive" and reading.beat is not None:
            text = reading.beat.status or reading.beat.state
        return Health(worker.name, state, reading.ready, life, text, memory)

    # ---- stopping

    def stop(self, worker: str) -> bool:
        """Begin with the first rung; False where there is no process to stop."""
        found = self._workers[worker]
        if found.ladder is not None:
            return True
        if found.fd < 0:
            return False
        found.ladder = Ladder(self._ladder)
        self._rung(found, found.ladder.hurry(), time.monotonic_ns())
        return True

    def _climb(self, worker: _Worker, now_ns: int) -> None:
        assert worker.ladder is not None
        if worker.deadline_ns is None or now_ns < worker.deadline_ns:
            return
        rung = worker.ladder.climb()
        if rung is not None:
            self._rung(worker, rung, now_ns)
            return
        worker.deadline_ns = None
        names = ", ".join(signal.Signals(signum).name for signum in worker.ladder.sent())
        worker.stuck = f"still running after {names}: {_described(worker)}"

    @staticmethod
    def _rung(worker: _Worker, rung: Rung, now_ns: int) -> None:
        worker.send(rung.signum)
        worker.deadline_ns = None if rung.wait_ns is None else now_ns + rung.wait_ns

    def wait(self, workers: Iterable[str], limit_ns: int, *, period_ns: int = S // 50) -> list[str]:
        """Look until these have ended, at most that long; returns those that have not."""
        end_ns = time.monotonic_ns() + limit_ns
        left = set(workers)
        while left:
            left -= {health.worker for health in self.look() if health.condition == "gone"}
            if not left or time.monotonic_ns() >= end_ns:
                break
            time.sleep(period_ns / S)
        return sorted(left)

    def close(self) -> None:
        """Close all pidfds; processes stay as they are."""
        for worker in self._workers.values():
            worker.forget()


def _described(worker: _Worker) -> str:
    """Who it is that nothing has ended, in words."""
    import psutil  # 20 ms, for what hardly ever happens

    try:
        found = psutil.Process(worker.beat.pid if worker.beat is not None else -1)
        return f"{found.name()} (pid {found.pid}) of {found.username()}, {found.status()}"
    except (psutil.Error, ValueError):
        return "it can't be looked at"


def _life(beat: beatfile.Beat | None) -> str:
    return "" if beat is None else f"{beat.guid}:{beat.pid}:{beat.start_ticks}"
