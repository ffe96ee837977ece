"""Virtual time: small stops in a second, and what a big one costs, beside SimPy."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

from brokerctl.scenario import format as scenario_format
from brokerctl.scenario import runner
from tests.bench.measure import Options, Row, progress

ROOT = Path(__file__).parent.parent.parent
SCENARIO = ROOT / "scenarios" / "stuck-cleanup.toml"
SIZES = (1_024, 4_096, 16_384, 65_536, 262_144)
PEER_SIZE = 16_384
FANOUTS = (256, 2)
# Stops of the largest sizes take so long that a few must do.
LARGE, LARGE_RUNS = 65_536, 3
_BATCH = 20
_TIMEOUT_S = 1800.0

GOALS = {  # (ranks, fanout) → seconds of the stop, megabytes
    (16_384, 256): (1.0, 100.0),
    (262_144, 256): (20.0, 1024.0),
}
GROWTH_MAX = 2.5
PEER_SPEED_MIN, PEER_MEMORY_MAX = 1.5, 60.0


def small(options: Options) -> list[Row]:
    """Stops of one broker in a second, with all its readers; and one as `brokerctl simulate`."""
    scenario = scenario_format.load(SCENARIO)
    rates, walls = [], []
    command = [sys.executable, "-m", "brokerctl", "simulate", str(SCENARIO)]
    for nth in range(options.runs):
        progress(f"simulated stops {nth + 1}/{options.runs}")
        began = time.perf_counter()
        for _ in range(_BATCH):
            assert runner.run(scenario, "sim").status == "passed"
        rates.append(_BATCH / (time.perf_counter() - began))
        began = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=_TIMEOUT_S)
        walls.append(time.perf_counter() - began)
    progress("")
    return [
        Row(
            "simulate",
            "simulated stops of one broker, expectations and invariants checked",
            "",
            median(rates),
            "a second",
        ),
        Row("simulate", "`brokerctl simulate` of one, whole process", "", median(walls) * 1e3, "ms"),
    ]


def sizes(options: Options) -> list[Row]:
    """What a stop costs by size, and beside SimPy."""
    rows, found = [], {}
    wanted = [size for size in SIZES if not options.quick or size <= PEER_SIZE]
    for fanout in FANOUTS:
        for ranks in wanted:
            one = found[ranks, fanout] = _median(ranks, fanout, "sim", options)
            seconds, megabytes = GOALS.get((ranks, fanout), (None, None))
            what = f"{ranks:,} ranks, fanout {fanout}, 1% frozen"
            rows += [
                Row("size", what, "the stop", one["stop_s"], "s", seconds),
                Row("size", what, "memory", one["rss_kb"] / 1024, "MB", megabytes),
                Row("size", what, "start and stop of a rank", one["whole_s"] / ranks * 1e6, "µs"),
            ]
        growth = _a_rank(found[wanted[-1], fanout]) / _a_rank(found[wanted[0], fanout])
        what = f"cost of a rank, {wanted[-1]:,} against {wanted[0]:,}, fanout {fanout}"
        rows.append(Row("size", what, "", growth, "×", GROWTH_MAX))
    for fanout in FANOUTS:
        rows += _peers(found[PEER_SIZE, fanout], fanout, options)
    progress("")
    return rows


def _peers(ours: dict[str, Any], fanout: int, options: Options) -> list[Row]:
    rows = []
    for queue, how, speed, memory in (
        ("simpy", "SimPy, a process and a Store for each rank", PEER_SPEED_MIN, PEER_MEMORY_MAX),
        ("simpy-queue", "SimPy as a bare queue", None, None),
    ):
        peer = _median(PEER_SIZE, fanout, queue, options)
        same = ("kind", "virtual_ns", "exits", "codes", "lines")
        assert [ours[key] for key in same] == [peer[key] for key in same], (ours, peer)
        what = f"{PEER_SIZE:,} ranks, fanout {fanout}, against {how}"
        rows += [
            Row("size", what, "speed", peer["whole_s"] / ours["whole_s"], "×", speed, at_least=True),
            Row("size", what, "memory", 100 * ours["rss_kb"] / peer["rss_kb"], "%", memory),
        ]
    return rows


def _a_rank(one: dict[str, Any]) -> float:
    return float(one["whole_s"] / one["ranks"])


def _median(ranks: int, fanout: int, queue: str, options: Options) -> dict[str, Any]:
    """The medians of several processes, each with one stop; what is no time and no memory is the same in all."""
    runs = min(options.runs, LARGE_RUNS) if ranks >= LARGE else options.runs
    found = []
    for nth in range(runs):
        progress(f"size: {ranks:,} ranks, fanout {fanout}, {queue}: {nth + 1}/{runs}")
        command = [sys.executable, "-m", "tests.bench.sizes", str(ranks), str(fanout), queue]
        done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, timeout=_TIMEOUT_S)
        found.append(json.loads(done.stdout))
    return {**found[0], **{key: median(one[key] for one in found) for key in ("stop_s", "whole_s", "rss_kb")}}
