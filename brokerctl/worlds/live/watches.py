"""Runs that tell their manager how they are: what they say is posted, and they are watched as the model orders.

Only the main process of a run that shall notify is heard, as under NotifyAccess=main: a child that beats for a parent
proves nothing, and what others say to the same socket is nobody's business. Beats are counted here, and only their
absence is told.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from brokerctl.kernel import proc
from brokerctl.kernel.notify import Receiver
from brokerctl.records import AnyEvent, Grown, Heard, Late
from brokerctl.worlds.live.loop import READ

if TYPE_CHECKING:
    from brokerctl.records import Command, Watch
    from brokerctl.worlds.live.loop import Loop, Timer
    from brokerctl.worlds.live.runs import Runs

# How often memory is looked at: a leak of a gigabyte a second is seen before most machines are full.
MEMORY_PERIOD_NS = 1_000_000_000
_USEC_NS = 1000
BEAT = "WATCHDOG=1"


class _Watched:
    """A run, as it is watched now."""

    __slots__ = ("deadline_ns", "heard_ns", "limit_ns", "memory", "timer")

    def __init__(self, order: Watch, now_ns: int) -> None:
        self.limit_ns = order.limit_ns
        self.memory = order.memory
        self.heard_ns = now_ns
        self.deadline_ns = now_ns + max(order.limit_ns or 0, order.first_ns)
        self.timer: Timer | None = None


class Watches:
    """All watched runs of a broker. `post` gets what is heard of them, and what is found."""

    def __init__(self, loop: Loop, runs: Runs, post: Callable[[AnyEvent], None]) -> None:
        self._loop = loop
        self._runs = runs
        self._post = post
        self._receiver: Receiver | None = None
        self._notifying: set[str] = set()
        self._watched: dict[str, _Watched] = {}
        self._sampling: Timer | None = None
        runs.last_words = self.receive

    def environment(self, run: str, command: Command) -> dict[str, str]:
        """What a process that shall be heard needs to know; from now on it is."""
        if not command.notifies:
            return {}
        self._notifying.add(run)
        if self._receiver is None:
            self._receiver = Receiver()
            self._loop.watch(self._receiver.fileno(), READ, lambda _events: self.receive())
        env = {"NOTIFY_SOCKET": self._receiver.address}
        if command.watchdog_ns is not None:
            env["WATCHDOG_USEC"] = str(command.watchdog_ns // _USEC_NS)
        return env

    def receive(self) -> None:
        """Take in what was said."""
        if self._receiver is None:
            return
        for pid, text in self._receiver.receive():
            run = self._runs.run_of(pid)
            if run is None or run not in self._notifying:
                continue
            words = [line for line in text.split("\n") if line]
            if BEAT in words:
                self._beat(run)
            if rest := "\n".join(word for word in words if word != BEAT):
                self._post(Heard(run, rest))

    def _beat(self, run: str) -> None:
        watched = self._watched.get(run)
        if watched is not None and watched.limit_ns is not None:
            watched.heard_ns = time.monotonic_ns()
            watched.deadline_ns = max(watched.deadline_ns, watched.heard_ns + watched.limit_ns)

    # ---- watching

    def watch(self, now_ns: int, order: Watch) -> None:
        """Watch a run from now on, in place of how it was watched before."""
        self._forget(order.run)
        watched = _Watched(order, now_ns)
        if order.limit_ns is None and order.memory is None:
            return
        self._watched[order.run] = watched
        if order.limit_ns is not None:
            watched.timer = self._loop.at(watched.deadline_ns, lambda: self._due(order.run, watched))
        if order.memory is not None and self._sampling is None:
            self._sampling = self._loop.after(MEMORY_PERIOD_NS, self._sample)

    def _forget(self, run: str) -> None:
        watched = self._watched.pop(run, None)
        if watched is not None and watched.timer is not None:
            watched.timer.cancel()

    def _due(self, run: str, watched: _Watched) -> None:
        """The time that it had is over; a beat may have moved it, and may lie unread."""
        self.receive()
        now_ns = time.monotonic_ns()
        if self._runs.pid_of(run) is None:
            self._forget(run)
        elif watched.deadline_ns > now_ns:
            watched.timer = self._loop.at(watched.deadline_ns, lambda: self._due(run, watched))
        else:
            watched.timer = watched.limit_ns = None
            self._post(Late(run, now_ns - watched.heard_ns))

    def _sample(self) -> None:
        self._sampling = None
        for run, watched in tuple(self._watched.items()):
            pid = self._runs.pid_of(run)
            if pid is None:
                self._forget(run)
            elif watched.memory is not None and (memory := proc.memory(pid)) > watched.memory:
                watched.memory = None
                self._post(Grown(run, memory))
        if any(watched.memory is not None for watched in self._watched.values()):
            self._sampling = self._loop.after(MEMORY_PERIOD_NS, self._sample)

    def close(self) -> None:
        """Stop watching; the loop has ended."""
        if self._receiver is not None:
            self._loop.unwatch(self._receiver.fileno())
            self._receiver.close()
