"""Heartbeats: what a beat, the import and the watching of many workers cost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
import timeit
from pathlib import Path
from statistics import median

from brokerctl.heartbeat import Heartbeat, S
from brokerctl.monitors.process import ProcessMonitor
from tests.bench.measure import Options, Row, progress

ITEM = "heartbeat"
WORKERS = 1000
PERIOD_S = 1.0
_BEATS = 200_000
_IMPORT = "import brokerctl.heartbeat"


def measure(options: Options) -> list[Row]:
    """All three."""
    return [_beat(), *_imports(options), _watching(3 if options.quick else options.runs)]


def _beat() -> Row:
    progress("heartbeat: beat()")
    heart = Heartbeat(limit_ns=3600 * S)
    heart.ready()
    seconds = min(timeit.repeat(heart.beat, number=_BEATS, repeat=5)) / _BEATS
    heart.close()
    return Row(ITEM, "`beat()` that need not send", "", seconds * 1e6, "µs", 0.5)


def _imports(options: Options) -> list[Row]:
    seconds: dict[str, list[float]] = {"pass": [], _IMPORT: []}
    for nth in range(options.runs):
        for code, found in seconds.items():
            progress(f"heartbeat: import {nth + 1}/{options.runs}")
            began = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True)
            found.append(time.perf_counter() - began)
    bare, ours = median(seconds["pass"]), median(seconds[_IMPORT])
    what = f"`python3 -c '{_IMPORT}'`, whole process"
    return [Row(ITEM, what, "", ours * 1e3, "ms"), Row(ITEM, what, "against `pass`", ours / bare, "×", 2.0)]


def _watching(turns: int) -> Row:
    """Processor time of a process monitor that looks at all of them once a period, beats and memory."""
    pids: list[int] = []
    monitor = ProcessMonitor()
    with tempfile.TemporaryDirectory(prefix="brokerctl-bench-") as directory:
        files = [Path(directory) / str(number) for number in range(WORKERS)]
        try:
            for file in files:
                pids.append(_worker(file))
                monitor.add(file, memory_max=1 << 40)
            _until_all_live(monitor)
            spent = []
            for turn in range(turns):
                progress(f"heartbeat: {WORKERS} workers, {turn + 1}/{turns}")
                began = time.process_time()
                monitor.look()
                spent.append(time.process_time() - began)
                time.sleep(PERIOD_S)
        finally:
            monitor.close()
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
    progress("")
    what = f"{WORKERS:,} workers watched, memory too, once a second"
    return Row(ITEM, what, "", median(spent) / PERIOD_S * 100, "% of a core", 2.0)


def _worker(file: Path) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        heart = Heartbeat(file)
        heart.ready()
        while True:
            heart.beat()
            time.sleep(5)
    finally:
        os._exit(1)


def _until_all_live(monitor: ProcessMonitor) -> None:
    end = time.monotonic() + 60
    while not all(health.ready for health in monitor.look()):
        if time.monotonic() > end:
            raise SystemExit(f"bench: {WORKERS} workers did not come up")
        time.sleep(0.1)
