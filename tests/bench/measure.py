"""What all benches share: a row of the table, medians and percentiles, and the machine's name."""

from __future__ import annotations

import math
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple


class Row(NamedTuple):
    """One figure: `part` of `what`. `goal` is the most that it should be, with `at_least` the least; None is none."""

    item: str
    what: str
    part: str
    value: float
    unit: str
    goal: float | None = None
    at_least: bool = False

    def shown(self) -> tuple[str, str]:
        """The figure and its goal, as the table has them."""
        part = f"{self.part} " if self.part else ""
        goal = "" if self.goal is None else f"{part}{'≥' if self.at_least else '≤'} {_figure(self.goal, self.unit)}"
        missed = self.goal is not None and (self.value < self.goal if self.at_least else self.value > self.goal)
        return f"{part}{_figure(self.value, self.unit)}{' (missed)' if missed else ''}", goal


def _figure(value: float, unit: str) -> str:
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:,.{digits}f}{'' if unit in '×%' else ' '}{unit}"


class Options(NamedTuple):
    """How thorough to be."""

    runs: int = 10
    stops: int = 1000
    quick: bool = False


def percentile(values: Sequence[float], percent: float) -> float:
    """The value that so many percent do not exceed (nearest rank: one that was measured)."""
    ordered = sorted(values)
    return ordered[max(1, math.ceil(len(ordered) * percent / 100)) - 1]


def progress(text: str) -> None:
    """Say on a terminal what is being done; the next text takes its place, an empty one clears it."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def machine() -> str:
    """The machine as far as it matters: processor, memory, kernel, Python."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cpus = len(os.sched_getaffinity(0))
    return (
        f"{model}, {cpus} CPUs, {memory:.0f} GiB, Linux {platform.release()}, "
        f"{platform.python_implementation()} {platform.python_version()}"
    )
