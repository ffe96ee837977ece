"""The loop of a live broker: descriptors, timers and signals, one callback at a time, in one thread.

After each callback `settle` is called, which lets the broker take in what the callback posted; so whatever a callback
cancels is cancelled before the next one could run. Nothing happens in a signal handler but queueing.
"""

from __future__ import annotations

import select
import selectors
import signal
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from types import FrameType, TracebackType
from typing import Any, Self

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE

Callback = Callable[[], None]

# Waking up for nothing once an hour does no harm, and keeps any deadline within what select(2) takes.
_WAIT_MAX_S = 3600.0
# FD_SETSIZE of select(2): a higher descriptor, which only a leaking parent could bring about, costs a millisecond.
_SELECTABLE = 1024
# Cancelled timers stay in the heap until they are due; more than this, and more than half, are swept out.
_STALE_MAX = 64


class Timer:
    """One timer; `cancel` is final."""

    __slots__ = ("_loop", "callback", "deadline_ns")

    def __init__(self, loop: Loop, deadline_ns: int, callback: Callback) -> None:
        self._loop = loop
        self.deadline_ns = deadline_ns
        self.callback: Callback | None = callback

    def cancel(self) -> None:
        """Never call back, if it hasn't yet."""
        if self.callback is not None:
            self.callback = None
            self._loop.sweep()


class Loop:
    """Runs callbacks until it is stopped; a context manager, which leaves signal handlers as they were."""

    def __init__(self) -> None:
        self._selector = selectors.EpollSelector()
        self._heap: list[tuple[int, int, Timer]] = []
        self._order = 0
        self._stale = 0
        self._signals: deque[int] = deque()
        self._old_handlers: dict[int, Any] = {}
        self._waker, self._wakeup = socket.socketpair()
        self._waker.setblocking(False)
        self._wakeup.setblocking(False)
        self._selector.register(self._waker, READ, self._drain)
        self._old_wakeup = signal.set_wakeup_fd(self._wakeup.fileno(), warn_on_full_buffer=False)
        self._stopped = False
        self.settle: Callback = _nothing
        self.turn_ended: Callback = _nothing
        self.on_signal: Callable[[int], None] = _ignore

    # ---- descriptors

    def watch(self, fd: int, events: int, callback: Callable[[int], None]) -> None:
        """Call back with the ready events (READ, WRITE) of a descriptor, again and again; replaces an earlier watch."""
        try:
            self._selector.modify(fd, events, callback)
        except KeyError:
            self._selector.register(fd, events, callback)

    def unwatch(self, fd: int) -> None:
        """Forget a descriptor, which is still open; an event that is on its way is dropped."""
        try:
            self._selector.unregister(fd)
        except KeyError:
            return

    # ---- timers

    def at(self, deadline_ns: int, callback: Callback) -> Timer:
        """Call back once when CLOCK_MONOTONIC has reached this: never early, and less than a millisecond late."""
        timer = Timer(self, deadline_ns, callback)
        self._order += 1
        heappush(self._heap, (deadline_ns, self._order, timer))
        return timer

    def after(self, delay_ns: int, callback: Callback) -> Timer:
        """Call back once after this time."""
        return self.at(time.monotonic_ns() + delay_ns, callback)

    def sweep(self) -> None:
        """A timer was cancelled: once most of the heap is dead, clear it."""
        self._stale += 1
        if self._stale > _STALE_MAX and self._stale * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].callback is not None]
            heapify(self._heap)
            self._stale = 0

    def armed(self) -> int:
        """How many timers will call back."""
        return sum(timer.callback is not None for _, _, timer in self._heap)

    # ---- signals

    def handle(self, signums: Iterable[int]) -> None:
        """Queue these signals for `on_signal` from now on, whatever their disposition was."""
        for signum in signums:
            self._old_handlers[signum] = signal.signal(signum, self._queue)

    def ignore(self, signum: int) -> None:
        """Ignore a signal as long as the loop lives."""
        self._old_handlers[signum] = signal.signal(signum, signal.SIG_IGN)

    def _queue(self, signum: int, _frame: FrameType | None) -> None:
        # The wake-up socket may overflow when children die by the thousand; this queue loses nothing.
        self._signals.append(signum)

    def _drain(self, _events: int) -> None:
        try:
            self._waker.recv(4096)
        except BlockingIOError:
            return

    # ---- running

    def stop(self) -> None:
        """Return from `run` before the next callback."""
        self._stopped = True

    def run(self) -> None:
        """Call back until `stop`."""
        self._stopped = False
        self._call(_nothing)  # take in what was posted before
        while not self._stopped:
            self.turn_ended()
            ready = self._wait(self._wait_s())
            self._take_signals()
            for key, events in ready:
                if self._stopped:
                    break
                # An earlier callback of this turn may have closed it, or put another one in its place.
                if self._selector.get_map().get(key.fd) is key:
                    self._call(key.data, events)
            self._fire_due()
        self.turn_ended()

    def _wait(self, wait_s: float) -> list[tuple[selectors.SelectorKey, int]]:
        """What is ready, now or within this time. epoll_wait(2) knows only whole milliseconds, so select(2) waits."""
        if wait_s > 0 and self._selector.fileno() < _SELECTABLE:
            select.select((self._selector,), (), (), wait_s)
            wait_s = 0
        return self._selector.select(wait_s)

    def _wait_s(self) -> float:
        if self._signals:
            return 0
        while self._heap and self._heap[0][2].callback is None:
            heappop(self._heap)
            self._stale = max(0, self._stale - 1)
        if not self._heap:
            return _WAIT_MAX_S
        return min(_WAIT_MAX_S, max(0, self._heap[0][0] - time.monotonic_ns()) / 1e9)

    def _take_signals(self) -> None:
        while self._signals and not self._stopped:
            self._call(self.on_signal, self._signals.popleft())

    def _fire_due(self) -> None:
        """The timers that were due when this began: one that is armed for now meanwhile waits for the next turn."""
        now_ns = time.monotonic_ns()
        last = self._order
        while self._heap and not self._stopped and self._heap[0][0] <= now_ns and self._heap[0][1] <= last:
            timer = heappop(self._heap)[2]
            callback, timer.callback = timer.callback, None
            if callback is not None:
                self._call(callback)
            else:
                self._stale = max(0, self._stale - 1)

    def _call(self, callback: Callable[..., None], *args: int) -> None:
        callback(*args)
        self.settle()

    # ---- end

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Put signal handlers back, close what is ours. Descriptors that were watched stay open."""
        for signum, handler in self._old_handlers.items():
            signal.signal(signum, signal.SIG_DFL if handler is None else handler)
        self._old_handlers.clear()
        signal.set_wakeup_fd(self._old_wakeup)
        self._selector.close()
        self._waker.close()
        self._wakeup.close()
        self._heap.clear()


def _nothing() -> None:
    pass


def _ignore(_signum: int) -> None:
    pass
