"""Puppets as a scenario declares them, and the draws that turn a declaration into what one process does.

Both worlds draw with `Random(f"{seed}/{name}/{rank}/{nth}")`, so a seed tells the same story in each.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Literal

import msgspec

from brokerctl.model.puppet import Hit, Part, Reaction, Say


class Span(msgspec.Struct, frozen=True, gc=False):
    """A duration: fixed (`low_ns` = `high_ns`), uniform between the two, or for ever (None)."""

    low_ns: int | None
    high_ns: int | None

    def is_drawn(self) -> bool:
        """It differs from one process to the next."""
        return self.low_ns != self.high_ns

    def draw(self, random: Random | None) -> int | None:
        """One duration of it; a fixed one needs no generator."""
        if self.low_ns is None or self.high_ns is None or random is None or self.low_ns == self.high_ns:
            return self.low_ns
        return random.randint(self.low_ns, self.high_ns)


FOREVER = Span(None, None)
_RANDOM = Random()  # seeded before each use


class PuppetSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A puppet's declaration. `runs` and `statuses` may differ by rank; -1 is every other rank."""

    name: str
    command: str
    runs: Mapping[int, Span]
    statuses: Mapping[int, int]
    on: Mapping[int, Reaction] = {}
    prints: tuple[tuple[Literal["out", "err"], str], ...] = ()
    leaves: int = 0
    leaves_run: Span = FOREVER
    detached: bool = False
    start_errno: int = 0
    uninterruptible: bool = False
    asks: tuple[str, ...] = ()
    says: tuple[Say, ...] = ()
    hits: tuple[Hit, ...] = ()
    leaves_ignore: tuple[int, ...] = ()
    hangs_ns: int | None = None
    leaks: int = 0


def part(spec: PuppetSpec, seed: int, rank: int, nth: int) -> Part:
    """What the `nth` process (from 0) of this puppet on this rank does."""
    runs = spec.runs.get(rank, spec.runs[-1])
    # Most puppets draw nothing, and to seed a generator costs more than all else here; to make one as much again.
    random = None
    if runs.is_drawn() or spec.leaves_run.is_drawn():
        random = _RANDOM
        random.seed(f"{seed}/{spec.name}/{rank}/{nth}")
    return _part(spec, runs.draw(random), spec.statuses.get(rank, spec.statuses[-1]), spec.leaves_run.draw(random))


def _part(spec: PuppetSpec, runs_ns: int | None, status: int, leaves_ns: int | None) -> Part:
    return Part(
        runs_ns=runs_ns,
        status=status,
        on=spec.on,
        prints=spec.prints,
        leaves=spec.leaves,
        leaves_ns=leaves_ns,
        detached=spec.detached,
        start_errno=spec.start_errno,
        uninterruptible=spec.uninterruptible,
        asks=spec.asks,
        says=spec.says,
        hits=spec.hits,
        leaves_ignore=spec.leaves_ignore,
        hangs_ns=spec.hangs_ns,
        leaks=spec.leaks,
    )
