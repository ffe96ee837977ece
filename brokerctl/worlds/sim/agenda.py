"""What happens when, in virtual time: entries by their time, the timers of every rank, and how much of it is work."""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import chain
from operator import itemgetter
from typing import Any

from brokerctl.records import Fired

Entry = tuple[int, int, Any]  # order, rank, item


class Agenda:
    """Entries come by time, and in the order in which they were made where times are equal.

    `pending` counts those that are work: neither dropped, nor reminders, nor kept for a frozen rank. None left means
    that nothing can happen any more. Thousands of ranks do the same at the same time, so times are few.
    """

    __slots__ = (
        "_at", "_dropped", "_entries", "_idle", "_kept", "_order", "_place", "_time_ns", "_timers", "_times", "now_ns",
        "pending",
    )  # fmt: skip

    def __init__(self) -> None:
        self.now_ns = 0
        self.pending = 0
        self._times: list[int] = []  # a heap: those to come
        self._at: dict[int, list[Entry]] = {0: []}
        self._time_ns = 0  # whose entries are taken, and how many of them have been
        self._entries = self._at[0]
        self._place = 0
        self._order = 0
        self._dropped: set[int] = set()
        self._idle: set[int] = set()  # entries that are no work, timers apart
        self._timers: dict[tuple[int, str], tuple[int, bool]] = {}  # armed: the entry's order, and whether it is work
        self._kept: dict[int, dict[int, tuple[Any, bool]]] = {}  # frozen rank → order → what was meant for it

    def push(self, delay_ns: int, rank: int, item: object, *, work: bool = True) -> int:
        """Something happens after a while; returns the order of its entry, by which it can be dropped."""
        self._order = order = self._order + 1
        if work:
            self.pending += 1
        elif type(item) is not Fired:
            self._idle.add(order)
        time_ns = self.now_ns + delay_ns
        entries = self._at.get(time_ns)
        if entries is None:
            self._at[time_ns] = [(order, rank, item)]
            heappush(self._times, time_ns)
        else:
            entries.append((order, rank, item))
        return order

    def drop(self, rank: int, order: int, *, work: bool = True) -> None:
        """That entry shall not come."""
        kept = self._kept.get(rank)
        if kept is not None and kept.pop(order, None) is not None:
            return
        self._dropped.add(order)
        self.pending -= work

    def arm(self, rank: int, timer: str, after_ns: int, *, work: bool) -> None:
        """(Re)arm a rank's timer."""
        self.cancel(rank, timer)
        self._timers[rank, timer] = (self.push(after_ns, rank, Fired(timer), work=work), work)

    def cancel(self, rank: int, timer: str) -> None:
        """Disarm a rank's timer, if it is armed."""
        armed = self._timers.pop((rank, timer), None)
        if armed is not None:
            self.drop(rank, armed[0], work=armed[1])

    def next(self) -> tuple[int, Any] | None:
        """The next entry, (rank, item), whose time is `now_ns` then; None where nothing is pending."""
        while self.pending:
            if self._place == len(self._entries):
                self._turn()
            order, rank, item = self._entries[self._place]
            self._place += 1
            if order in self._dropped:
                self._dropped.remove(order)
                continue
            self.now_ns = self._time_ns
            work = not self._idle or order not in self._idle
            if type(item) is Fired:
                work = self._timers[rank, item.timer][1]
                if rank not in self._kept:
                    del self._timers[rank, item.timer]
            self.pending -= work
            if rank in self._kept:
                self._kept[rank][order] = (item, work)
                continue
            return rank, item
        return None

    def _turn(self) -> None:
        """Go on to the next time."""
        del self._at[self._time_ns]
        self._time_ns = heappop(self._times)
        self._entries = self._at[self._time_ns]
        self._place = 0

    def freeze(self, rank: int) -> None:
        """From now on keep what is meant for that rank."""
        self._kept.setdefault(rank, {})

    def is_frozen(self, rank: int) -> bool:
        """The rank is frozen."""
        return rank in self._kept

    def thaw(self, rank: int) -> None:
        """What was kept for that rank happens now, in its order."""
        kept = self._kept.pop(rank, {})
        self.pending += sum(work for _, work in kept.values())
        again = [(order, rank, item) for order, (item, _) in kept.items()]
        self._entries[self._place :] = sorted(again + self._entries[self._place :], key=itemgetter(0))

    def forget(self, rank: int) -> None:
        """The rank is no more: what was kept for it never happens, nor do its timers."""
        kept = self._kept.pop(rank, {})
        if kept:
            self._timers = {key: armed for key, armed in self._timers.items() if armed[0] not in kept}

    def renew(self, rank: int) -> None:
        """A rank that is no more has another life: nothing happens in it that was meant for the last one."""
        self._entries[: self._place] = []
        self._place = 0
        for order, whose, item in chain.from_iterable(self._at.values()):
            if whose == rank and order not in self._dropped:
                work = self._timers.pop((rank, item.timer))[1] if type(item) is Fired else order not in self._idle
                self.drop(rank, order, work=work)
