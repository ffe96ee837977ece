"""The kill ladder: SIGHUP → SIGTERM → SIGKILL → "still running", one state each, with a time for each rung.

Flux's own ladder has one rung, SIGHUP, and no time: whoever ignores it is waited for (FLUX.md 20, 27, letter a).
"""

from __future__ import annotations

from brokerctl.settings import Rung


class Ladder:
    """Where one run's escalation stands. `rung` is the index of the signal that was sent last, -1 before the first."""

    __slots__ = ("rung", "rungs")

    def __init__(self, rungs: tuple[Rung, ...]) -> None:
        assert rungs, "a ladder has at least one rung"
        self.rungs = rungs
        self.rung = -1

    def climb(self) -> Rung | None:
        """The time of a rung is over: the next one, or None where all are used up."""
        if self.rung + 1 == len(self.rungs):
            return None
        self.rung += 1
        return self.rungs[self.rung]

    def hurry(self) -> Rung:
        """A signal came meanwhile: one rung further; on the last one its signal once more (FLUX.md 27)."""
        return self.climb() or self.rungs[-1]

    def sent(self) -> tuple[int, ...]:
        """The signals that were sent so far, in order."""
        return tuple(rung.signum for rung in self.rungs[: self.rung + 1])
