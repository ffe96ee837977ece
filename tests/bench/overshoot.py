"""How late the cleanup deadline is kept, timed from outside: SIGTERM at t0, the death of the cleanup action at t1.

The action sleeps for ever and dies of SIGHUP; `broker.cleanup-timeout` is 0.2 s; the overshoot is t1 - t0 - 0.2 s. All
that happens between is in it: the broker hears the signal, wakes up at the deadline, sends SIGHUP; the action wakes up
and dies; its pidfd tells us. One stop at a time: they would disturb each other.

The floor beside it is what the machine takes for the last part alone: SIGHUP from here to a sleep(1), until its death.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median

from tests.bench.measure import Options, Row, percentile, progress

ITEM = "overshoot"
HOGS = 4
GOALS_MS = {"idle": 3.0, f"{HOGS} CPU hogs": 20.0}
_TIMEOUT_NS = 200_000_000
_PATIENCE_S = 30.0
_HANGUP = 129


def measure(options: Options) -> list[Row]:
    """Median, p99 and the worst, idle and on a machine with more to do than it has CPUs."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="brokerctl-bench-") as directory, _punctual():
        stage = _Stage(Path(directory))
        for name, goal_ms in GOALS_MS.items():
            with _hogs(0 if name == "idle" else HOGS):
                late_ms, floor_ms = [], []
                for nth in range(options.stops):
                    progress(f"overshoot, {name}: stop {nth + 1}/{options.stops}")
                    late_ms.append(stage.stop() / 1e6)
                    floor_ms.append(_floor() / 1e6)
            what = f"overshoot of the cleanup deadline, {options.stops:,} stops, {name}"
            rows += [
                Row(ITEM, what, "median", median(late_ms), "ms"),
                Row(ITEM, what, "p99", percentile(late_ms, 99), "ms", goal_ms),
                Row(ITEM, what, "worst", max(late_ms), "ms"),
                Row(ITEM, what, "floor's median", median(floor_ms), "ms"),
                Row(ITEM, what, "floor's p99", percentile(floor_ms, 99), "ms"),
            ]
    progress("")
    return rows


class _Stage:
    """Where brokers are run one after the other."""

    def __init__(self, place: Path) -> None:
        self._fifo = place / "pid"
        os.mkfifo(self._fifo)
        self._reader = os.open(self._fifo, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        config = place / "config.toml"
        config.write_text(
            f'[attrs]\n"broker.cleanup-timeout" = "{_TIMEOUT_NS / 1e9}s"\n'
            f'[[cleanup]]\ncommand = ["sh", "-c", "echo $$ >{self._fifo}; exec sleep 1000"]\n'
        )
        self._command = [
            sys.executable, "-m", "brokerctl", "run", "--config", str(config), "--rundir", str(place / "rundir"),
        ]  # fmt: skip

    def stop(self) -> int:
        """One broker's life; its overshoot in nanoseconds."""
        broker = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
        assert broker.stderr is not None
        try:
            _read_until(broker.stderr.fileno(), b"quorum->run")
            time.sleep(0.05)  # what it began with is done by then: a broker in RUN waits
            began_ns = time.monotonic_ns()
            broker.send_signal(signal.SIGTERM)
            pidfd = os.pidfd_open(int(_read_until(self._reader, b"\n")))
            try:
                _ready(pidfd)
                ended_ns = time.monotonic_ns()
            finally:
                os.close(pidfd)
            _, rest = broker.communicate(timeout=_PATIENCE_S)
        except BaseException:
            broker.kill()
            raise
        finally:
            broker.wait()
            broker.stderr.close()
        if broker.returncode != _HANGUP:
            raise SystemExit(f"bench: the broker exits with {broker.returncode}; expected {_HANGUP}: {rest.decode()}")
        return ended_ns - began_ns - _TIMEOUT_NS


def _floor() -> int:
    """How long a process takes to die of a signal that we send it ourselves, in nanoseconds."""
    sleeper = subprocess.Popen(["sleep", "1000"])
    try:
        time.sleep(0.02)  # it sleeps by then
        pidfd = os.pidfd_open(sleeper.pid)
        try:
            began_ns = time.monotonic_ns()
            sleeper.send_signal(signal.SIGHUP)
            _ready(pidfd)
            return time.monotonic_ns() - began_ns
        finally:
            os.close(pidfd)
    finally:
        sleeper.kill()
        sleeper.wait()


def _read_until(fd: int, wanted: bytes) -> bytes:
    data = b""
    while wanted not in data:
        _ready(fd)
        piece = os.read(fd, 4096)
        if not piece:
            raise SystemExit(f"bench: the output ended without {wanted!r}: {data.decode()}")
        data += piece
    return data


def _ready(fd: int) -> None:
    if not select.select([fd], [], [], _PATIENCE_S)[0]:
        raise SystemExit(f"bench: nothing happened for {_PATIENCE_S:g} s")


@contextmanager
def _hogs(count: int) -> Iterator[None]:
    """So many processes that only compute."""
    hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for hog in hogs:
            hog.kill()
        for hog in hogs:
            hog.wait()


@contextmanager
def _punctual() -> Iterator[None]:
    """Where it is permitted, this process wakes up before others: it measures the broker, not its own waiting.

    Its children don't inherit that.
    """
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    try:
        yield
    finally:
        with suppress(PermissionError):
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
