"""`python -m tests.bench.sizes RANKS FANOUT QUEUE`: one big stop in virtual time, told as a line of JSON.

A process of its own for each size: what one has allocated must not be there for the next. One rank in a hundred is
frozen, routers included, before the leader is told to stop; the policy is `hardened`.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from contextlib import nullcontext
from random import Random

from brokerctl import config
from brokerctl.durations import HOUR, S
from brokerctl.model.tree import kary
from brokerctl.records import Exit, Line, Moved, Signal
from brokerctl.trace import Topology
from brokerctl.worlds.contract import Deliver, Fault, Outcome, Resolved, Step
from brokerctl.worlds.sim.world import SimWorld

SEED = 1
FROZEN = 0.01
TERM = 15
# What `simulate` looks at of such an instance: moves and exits; the rest is counted by the brokers, and not made.
WANTS = frozenset({Moved, Exit})


class Trigger:
    """Due so long after the beginning; remembers when that was on the wall's clock."""

    def __init__(self, at_ns: int) -> None:
        self._at_ns = at_ns

    def begin(self) -> int:
        return self._at_ns

    def see(self, line: Line) -> None:
        del line


def story(ranks: int, fanout: int) -> Resolved:
    """An instance of that size, some of its ranks frozen, then SIGTERM to the leader."""
    frozen = sorted(Random(f"{SEED}/frozen").sample(range(1, ranks), int(ranks * FROZEN)))
    return Resolved(
        name="size",
        settings=config.with_fields("hardened", {}),
        topology=Topology(kary(ranks, fanout), tuple(f"n{rank}" for rank in range(ranks))),
        steps=(
            Step(Trigger(10 * S), Fault("freeze", tuple(frozen)), "10s"),
            Step(Trigger(20 * S), Deliver(0, Signal(TERM)), "20s"),
        ),
    )


class Clock:
    """Counts lines, and notes when the stop begins."""

    def __init__(self) -> None:
        self.lines = 0
        self.stop_began = 0.0

    def __call__(self, line: Line) -> None:
        self.lines += 1
        if line.rank == 0 and isinstance(line.what, Moved) and line.what.old == "run":
            self.stop_began = time.perf_counter()


def run(resolved: Resolved, clock: Clock) -> Outcome:
    """Simulate it, with a horizon that no bounded stop reaches."""
    return SimWorld().run(resolved, clock, 24 * HOUR, WANTS)


def main(argv: list[str]) -> int:
    ranks, fanout, queue = int(argv[0]), int(argv[1]), argv[2]
    resolved, clock = story(ranks, fanout), Clock()
    if queue != "sim":  # SimPy is not in the memory of those who don't use it
        from tests.bench.simpy_peer import queue_of
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with queue_of(queue) if queue != "sim" else nullcontext():
        began = time.perf_counter()
        outcome = run(resolved, clock)
        ended = time.perf_counter()
    assert outcome.exits[0] is not None
    print(
        json.dumps(
            {
                "ranks": ranks,
                "fanout": fanout,
                "queue": queue,
                "kind": outcome.kind,
                "virtual_ns": outcome.t_ns,
                "exits": len(outcome.exits),
                "codes": sum(outcome.exits.values()),
                "lines": clock.lines,
                "whole_s": ended - began,
                "stop_s": ended - clock.stop_began,
                "rss_kb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
                "before_kb": before_kb,
            }
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
