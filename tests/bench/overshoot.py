"""How late the cleanup deadline is kept, timed from outside: SIGTERM at t0, the death of the cleanup action at t1.

The action sleeps for ever and dies of SIGHUP; `broker.cleanup-timeout` is 0.2 s; the overshoot is t1 - t0 - 0.2 s. All
that happens between is in it: the broker hears the signal, wakes up at the deadline, sends SIGHUP; the action wakes up
and dies; its pidfd tells us. One stop at a time: they would disturb each other.

The peer beside it is a supervisor of ten bare lines, which hears SIGTERM, starts a sleep(1), waits for the same 0.2 s
and sends SIGHUP: what it is late is the machine's and the interpreter's.
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
                late_ms, bare_ms = [], []
                for nth in range(options.stops):
                    progress(f"overshoot, {name}: stop {nth + 1}/{options.stops}")
                    late_ms.append(stage.stop() / 1e6)
                    bare_ms.append(_bare() / 1e6)
            what = f"overshoot of the cleanup deadline, {options.stops:,} stops, {name}"
            rows += [
                Row(ITEM, what, "median", median(late_ms), "ms"),
                Row(ITEM, what, "p99", percentile(late_ms, 99), "ms", goal_ms),
                Row(ITEM, what, "worst", max(late_ms), "ms"),
                Row(ITEM, what, "bare supervisor's median", median(bare_ms), "ms"),
                Row(ITEM, what, "bare supervisor's p99", percentile(bare_ms, 99), "ms"),
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


_BARE = f"""
import os, signal, time
signal.pthread_sigmask(signal.SIG_BLOCK, {{signal.SIGTERM}})
print("ready", flush=True)
signal.sigwait({{signal.SIGTERM}})
end = time.monotonic() + {_TIMEOUT_NS / 1e9}
pid = os.posix_spawnp("sleep", ["sleep", "1000"], os.environ)
print(pid, flush=True)
time.sleep(end - time.monotonic())
os.kill(pid, signal.SIGHUP)
os.waitpid(pid, 0)
"""


def _bare() -> int:
    """The bare supervisor's overshoot in nanoseconds, timed as ours is."""
    bare = subprocess.Popen([sys.executable, "-I", "-c", _BARE], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert bare.stdout is not None
    try:
        _read_until(bare.stdout.fileno(), b"ready\n")
        time.sleep(0.05)
        began_ns = time.monotonic_ns()
        bare.send_signal(signal.SIGTERM)
        pidfd = os.pidfd_open(int(_read_until(bare.stdout.fileno(), b"\n")))
        try:
            _ready(pidfd)
            return time.monotonic_ns() - began_ns - _TIMEOUT_NS
        finally:
            os.close(pidfd)
    finally:
        bare.kill()
        bare.wait()
        bare.stdout.close()


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
