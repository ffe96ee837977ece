"""Live trees of brokers on this machine: how long a clean stop takes, and what a broker costs in memory."""

from __future__ import annotations

import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.bench.measure import Options, Row, progress

SIZES = (1, 4, 16, 32)
RSS_GOAL_MB = 20
START_S = 60.0
RUNNING = b"quorum-full: quorum->run"


def measure(options: Options) -> list[Row]:
    """Stop time from SIGTERM to the end of `start`, and the resident memory of each broker in RUN; medians."""
    rows = []
    for size in SIZES[:2] if options.quick else SIZES:
        stops, sizes = [], []
        for run in range(min(options.runs, 3) if options.quick else options.runs):
            progress(f"tree of {size}, run {run + 1}")
            stop_s, rss_mb = _once(size)
            stops.append(stop_s)
            sizes += rss_mb
        what = f"live tree of {size} broker{'s' if size > 1 else ''}, kary:2"
        rows.append(Row("tree", what, "clean stop", statistics.median(stops), "s"))
        rows.append(Row("tree", what, "memory a broker", statistics.median(sizes), "MB", RSS_GOAL_MB))
    progress("")
    return rows


def _once(size: int) -> tuple[float, list[float]]:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "brokerctl", "start", "--size", str(size), "--rundir", f"{folder}/rundir"]
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        ) as tree:
            try:
                assert tree.stderr is not None
                _until_all_run(tree.stderr.fileno(), size)
                pids = [int((Path(folder) / "rundir" / str(rank) / "lock").read_text()) for rank in range(size)]
                rss_mb = [_rss_mb(pid) for pid in pids]
                began = time.perf_counter()
                tree.send_signal(signal.SIGTERM)
                tree.communicate(timeout=START_S)
                return time.perf_counter() - began, rss_mb
            finally:
                tree.kill()


def _until_all_run(log: int, size: int) -> None:
    """Read the log until every rank has said that it runs."""
    seen, tail, deadline = 0, b"", time.monotonic() + START_S
    while seen < size:
        data = os.read(log, 1 << 16)
        assert data, "start has ended"
        assert time.monotonic() < deadline, "not all ranks run"
        *lines, tail = (tail + data).split(b"\n")
        seen += sum(RUNNING in line for line in lines)


def _rss_mb(pid: int) -> float:
    match = re.search(r"^VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert match is not None
    return int(match[1]) / 1024
