"""Readers of jobs: their eventlogs, and the time that housekeeping took, by job, user and node."""

from __future__ import annotations

import json
from collections.abc import Callable

import msgspec

from brokerctl.records import Ended, JobEvent, Line, Start

HOUSEKEEPING = ".housekeeping"


class Eventlog(msgspec.Struct, frozen=True, gc=False):
    """One job's events, each a time and a text as `flux job eventlog` has it."""

    job: str
    label: str
    events: tuple[tuple[int, str], ...]


class Eventlogs:
    """Keeps the eventlogs of an instance with few jobs; of more than `limit` it keeps nothing."""

    wants: frozenset[type] = frozenset({JobEvent})

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._logs: dict[str, tuple[str, list[tuple[int, str]]]] = {}

    def see(self, line: Line) -> None:
        """One more line."""
        what = line.what
        if isinstance(what, JobEvent) and len(self._logs) <= self._limit:
            self._logs.setdefault(what.job, (what.label, []))[1].append((line.t_ns, _text(what)))

    def logs(self, begin_ns: int) -> tuple[Eventlog, ...]:
        """All of them, times counted from there; none where there are too many to be read."""
        if len(self._logs) > self._limit:
            return ()
        return tuple(
            Eventlog(job, label, tuple((t_ns - begin_ns, text) for t_ns, text in events))
            for job, (label, events) in self._logs.items()
        )


def _text(what: JobEvent) -> str:
    words = [f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in what.context.items()]
    return " ".join([what.name, *words])


class Accounting:
    """How long housekeeping has run: nanoseconds of each job, user and rank, what still runs included."""

    wants: frozenset[type] = frozenset({JobEvent, Start, Ended})

    def __init__(self) -> None:
        self._users: dict[str, int] = {}
        self._labels: dict[str, str] = {}
        self._running: dict[tuple[int, str], int] = {}  # rank, run → since
        self._spent: dict[tuple[int, str], int] = {}  # rank, job → nanoseconds

    def see(self, line: Line) -> None:
        """One more line."""
        what = line.what
        if isinstance(what, JobEvent):
            if what.name == "submit":
                self._users[what.job], self._labels[what.job] = what.context["userid"], what.label
        elif isinstance(what, Start) and what.run.endswith(HOUSEKEEPING):
            self._running[line.rank, what.run] = line.t_ns
        elif isinstance(what, Ended) and what.run.endswith(HOUSEKEEPING):
            since_ns = self._running.pop((line.rank, what.run), line.t_ns)
            self._add(line.rank, what.run, line.t_ns - since_ns)

    def _add(self, rank: int, run: str, spent_ns: int) -> None:
        key = rank, run.split(".")[1]
        self._spent[key] = self._spent.get(key, 0) + spent_ns

    def _all(self, now_ns: int) -> list[tuple[int, str, int]]:
        spent = [(rank, job, ns) for (rank, job), ns in self._spent.items()]
        spent += [(rank, run.split(".")[1], now_ns - since_ns) for (rank, run), since_ns in self._running.items()]
        return spent

    def by_job(self, now_ns: int) -> dict[str, int]:
        """By the names of jobs."""
        return _sum(self._all(now_ns), lambda _rank, job: self._labels.get(job, job))

    def by_user(self, now_ns: int) -> dict[str, int]:
        """By user ids."""
        return _sum(self._all(now_ns), lambda _rank, job: str(self._users.get(job, "unknown")))

    def by_rank(self, now_ns: int) -> dict[str, int]:
        """By ranks."""
        return _sum(self._all(now_ns), lambda rank, _job: str(rank))


def _sum(spent: list[tuple[int, str, int]], key: Callable[[int, str], str]) -> dict[str, int]:
    """The most first."""
    sums: dict[str, int] = {}
    for rank, job, ns in spent:
        sums[key(rank, job)] = sums.get(key(rank, job), 0) + ns
    return dict(sorted(sums.items(), key=lambda item: -item[1]))
