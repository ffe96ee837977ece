"""What a live broker says of itself on stderr, beside the log: no part of the trace, and each text once."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from brokerctl.kernel import proc, stdio
from brokerctl.logs.fluxlog import Entry

WARNING = 4
# Who is left over is named, up to this many: a screenful.
LEFTOVERS_NAMED = 20
# proc_pid_stat(5)
_STATES = {"R": "running", "S": "sleeping", "D": "uninterruptible", "T": "stopped", "t": "traced", "I": "idle"}


class Complaints:
    """The warnings of one rank's broker."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._told: set[str] = set()

    def __call__(self, text: str) -> None:
        """Warn, if that was not said before; it never blocks."""
        if text in self._told:
            return
        self._told.add(text)
        found = Entry(WARNING, "broker", self._rank, text)
        shown = found.plain_head() + text if os.isatty(2) else str(found)
        stdio.write(2, f"{shown}\n".encode(errors="backslashreplace"))

    def left_over(self, pids: Sequence[int]) -> None:
        """Name processes that stay: command, number, state, since when."""
        for pid in pids[:LEFTOVERS_NAMED]:
            found = proc.stat(pid)
            if found is not None:
                self(f"left over: {proc.command(pid)} (pid {pid}), {_condition(found)}")
        if len(pids) > LEFTOVERS_NAMED:
            self(f"left over: {len(pids) - LEFTOVERS_NAMED} more processes")


def _condition(found: proc.Stat) -> str:
    """`state S (sleeping), since 18:02:11`: what a person needs to know about a process that stays."""
    began = time.localtime(time.time() - proc.age_ns(found) / 1e9)
    meaning = _STATES.get(found.state)
    state = f"{found.state} ({meaning})" if meaning else found.state
    return f"state {state}, since {time.strftime('%Y-%m-%d %H:%M:%S', began)}"
