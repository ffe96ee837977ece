"""A puppet: a process whose behaviour is declared, as a pure machine.

The simulator steps it; the live world acts the same machine out with a real process. It has a main process and,
perhaps, `leaves`: children that outlive it and hold its output; detached ones are in a session of their own, where a
signal to the process group doesn't reach them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from brokerctl.records import Scope

SIGKILL = 9


class Reaction(msgspec.Struct, frozen=True, gc=False):
    """What a puppet's main process does with a signal: nothing, or exit with a code after a while.

    First it sends `notify` to the service manager, each a datagram.
    """

    ignore: bool = False
    after_ns: int = 0
    code: int = 0
    notify: tuple[str, ...] = ()


class Say(msgspec.Struct, frozen=True, gc=False):
    """At that time of its life a puppet sends a datagram to the service manager, itself or a `child` of it.

    The child is an own short-lived one.
    """

    at_ns: int
    text: str
    child: bool = False


class Hit(msgspec.Struct, frozen=True, gc=False):
    """At that time of its life a puppet signals the main process of its unit, where there is one ($MAINPID)."""

    at_ns: int
    signum: int


class Part(msgspec.Struct, frozen=True, gc=False):
    """What one process of a puppet does, everything decided (no draw is left).

    `runs_ns` None is for ever. `status` is the wait status of its natural end. `start_errno` makes the start fail.
    An `uninterruptible` one survives every signal, SIGKILL too, until it is released. One that `asks` its broker does
    so at what would be its natural end, and ends when it is answered. Leaves die of every signal but of those that they
    ignore. In a unit it `says` things to the service manager, and signals (`hits`) the unit's main process. As a worker
    it beats until it hangs, at that time of its life, and takes so many more bytes of memory a second (`leaks`).
    """

    runs_ns: int | None = 0
    status: int = 0
    on: Mapping[int, Reaction] = {}
    prints: tuple[tuple[Literal["out", "err"], str], ...] = ()
    leaves: int = 0
    leaves_ns: int | None = None
    detached: bool = False
    start_errno: int = 0
    uninterruptible: bool = False
    asks: tuple[str, ...] = ()
    says: tuple[Say, ...] = ()
    hits: tuple[Hit, ...] = ()
    leaves_ignore: tuple[int, ...] = ()
    hangs_ns: int | None = None
    leaks: int = 0


Happening = Literal["asked", "acted", "exited", "output-ended", "emptied"]


class Puppet:
    """One run of a part. Times are absolute nanoseconds of whoever steps it.

    `due()` is when it next does something by itself; `advance(now)` says what has happened up to now, in order. What it
    has `acted` is in `acts`, for the world to take out.
    """

    __slots__ = (
        "_asking", "_emptied", "_end_ns", "_exited", "_leaf_ends", "_output_ended", "_part", "_pending_kill", "_stuck",
        "_to_do", "_watched", "acts", "status",
    )  # fmt: skip

    def __init__(self, part: Part, now_ns: int) -> None:
        self._part = part
        self._end_ns = None if part.runs_ns is None else now_ns + part.runs_ns
        self.status = part.status
        self._exited = self._output_ended = self._emptied = False
        self._asking = bool(part.asks)  # its natural end is to come, and it asks then
        self._leaf_ends: list[int | None] = []
        if part.leaves:
            end_ns = None if part.leaves_ns is None else now_ns + part.leaves_ns
            self._leaf_ends = [end_ns] * part.leaves
        self._stuck = part.uninterruptible
        self._pending_kill = False
        self._watched = False
        self.acts: list[Say | Hit] = []
        # By absolute time, the last first.
        self._to_do: list[tuple[int, Say | Hit]] = []
        if part.says or part.hits:
            acts: list[Say | Hit] = [*part.says, *part.hits]
            acts.sort(key=lambda act: act.at_ns)
            self._to_do = [(now_ns + act.at_ns, act) for act in reversed(acts)]

    def leaves(self) -> int:
        """How many children of it live."""
        return len(self._leaf_ends)

    def is_asking(self) -> bool:
        """It has asked, and waits for the answer."""
        return bool(self._part.asks) and not self._asking and self._end_ns is None and not self._exited

    def lives(self) -> bool:
        """Its main process has not ended."""
        return not self._exited

    def due(self) -> int | None:
        """The next time at which `advance` has something to tell, or None: only a signal can change it."""
        if self._stuck:
            return None
        times = [end for end in self._leaf_ends if end is not None]
        if not self._exited and self._end_ns is not None:
            times.append(self._end_ns)
        if self._to_do and not self._exited:
            times.append(self._to_do[-1][0])
        return min(times, default=None)

    def advance(self, now_ns: int) -> list[Happening]:
        """What has happened up to now and was not told yet; output ends before its process does, as in a kernel."""
        happened: list[Happening] = []
        if self._stuck:
            return happened
        while self._to_do and not self._exited and self._to_do[-1][0] <= now_ns:
            self.acts.append(self._to_do.pop()[1])
        if self.acts:
            happened.append("acted")
        if self._asking and not self._exited and self._end_ns is not None and self._end_ns <= now_ns:
            self._asking, self._end_ns = False, None
            happened.append("asked")
        exiting = not self._exited and self._end_ns is not None and self._end_ns <= now_ns
        if self._leaf_ends:
            self._leaf_ends = [end for end in self._leaf_ends if end is None or end > now_ns]
        if not self._output_ended and (self._exited or exiting) and not self._leaf_ends:
            self._output_ended = True
            happened.append("output-ended")
        if exiting:
            self._exited = True
            happened.append("exited")
        if self._watched and not self._emptied and self._exited and not self._leaf_ends:
            self._emptied = True
            happened.append("emptied")
        return happened

    def is_over(self) -> bool:
        """Nothing of it is left, and all that was asked for is told."""
        return self._output_ended and self._exited and (self._emptied or not self._watched)

    def signal(self, now_ns: int, signum: int, scope: Scope | Literal["process"]) -> bool:
        """Send a signal to its process, to the group or to all; False where nobody is there to get it (ESRCH)."""
        part = self._part
        reaches_leaves = bool(self._leaf_ends) and (scope == "all" or (scope == "group" and not part.detached))
        reached = not self._exited or reaches_leaves
        if scope == "all":
            self._watched = True
        if self._stuck:
            self._pending_kill |= signum == SIGKILL
            return reached
        if reaches_leaves:
            self.signal_leaves(signum)
        if not self._exited:
            self._react(now_ns, signum)
        return reached

    def signal_leaves(self, signum: int) -> None:
        """Send a signal to its children only."""
        if signum not in self._part.leaves_ignore:
            self._leaf_ends = []

    def _react(self, now_ns: int, signum: int) -> None:
        reaction = None if signum == SIGKILL else self._part.on.get(signum)
        if reaction is not None and reaction.notify:
            self.acts += [Say(0, text) for text in reaction.notify]
        if reaction is None or not reaction.ignore:
            self._asking = False
        if reaction is None:
            self._end_ns, self.status = now_ns, signum
        elif not reaction.ignore:
            end_ns = now_ns + reaction.after_ns
            if self._end_ns is None or end_ns < self._end_ns:
                self._end_ns, self.status = end_ns, reaction.code << 8

    def answer(self, now_ns: int, status: int) -> None:
        """What it asked for was answered: it ends with this wait status, as a signal has not ended it meanwhile."""
        if not self._exited and self._end_ns is None:
            self._end_ns, self.status = now_ns, status

    def release(self, now_ns: int) -> None:
        """It is interruptible again; a SIGKILL that was sent meanwhile works now."""
        self._stuck = False
        if self._pending_kill and not self._exited:
            self._end_ns, self.status = now_ns, SIGKILL
            self._leaf_ends = []
