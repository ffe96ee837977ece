"""`[[run]]`: a story over several lives of an instance. What one life stored, the next begins with (FLUX.md F).

A file without them has one life. Times of the whole story go on from life to life, as do the numbers of its lines.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from brokerctl.check.eventlogs import Eventlog
from brokerctl.records import Line
from brokerctl.report.result import Result, Told
from brokerctl.report.text import ending
from brokerctl.scenario.format import RunEntry, Scenario, ScenarioFile

DELAYS_MAX = 3  # of all lives together
STATUSES = ("failed", "skipped", "passed")  # the worst first


def of(scenario: Scenario) -> list[Scenario]:
    """Each life as a scenario of its own."""
    file = scenario.file
    if not file.run:
        return [scenario]
    found: list[Scenario] = []
    earlier: tuple[str, ...] = ()
    for index, entry in enumerate(file.run):
        life = msgspec.structs.replace(scenario, file=_merged(file, entry, first=index == 0), earlier=earlier)
        found.append(life)
        earlier = tuple(life.jobs())
    return found


def _merged(file: ScenarioFile, entry: RunEntry, *, first: bool) -> ScenarioFile:
    """What stands before the lives is of all of them, but for jobs, steps and faults: they are of the first."""
    return msgspec.structs.replace(
        file,
        attrs={**file.attrs, **entry.attrs},
        puppet={**file.puppet, **entry.puppet},
        perilog=file.perilog if entry.perilog is None else entry.perilog,
        housekeeping=file.housekeeping if entry.housekeeping is None else entry.housekeeping,
        job=[*(file.job if first else []), *entry.job],
        step=[*(file.step if first else []), *entry.step],
        fault=[*(file.fault if first else []), *entry.fault],
        expect=entry.expect,
        run=[],
    )


def after(life: Scenario, restored: dict[str, str]) -> Scenario:
    """That life, beginning with what an earlier one has stored."""
    return msgspec.structs.replace(life, restored=restored) if restored else life


class Shift:
    """Puts the lives one after the other: times and numbers go on."""

    def __init__(self) -> None:
        self._base_ns = 0
        self._next: dict[int, int] = {}
        self._first: dict[int, int] = {}

    def after(self, t_ns: int) -> None:
        """A life has ended then."""
        self._base_ns += t_ns
        self._first = dict(self._next)

    def teller(self, tell: Callable[[Told], None] | None) -> Callable[[Told], None] | None:
        """Tells with the time of the whole story."""
        base_ns = self._base_ns
        if tell is None or not base_ns:
            return tell
        return lambda told: tell(_shifted(told, base_ns))

    def sink(self, sink: Callable[[Line], None] | None) -> Callable[[Line], None] | None:
        """Hands lines on with the time and the numbers of the whole story."""
        if sink is None:
            return None
        base_ns, first = self._base_ns, self._first

        def see(line: Line) -> None:
            number = line.n + first.get(line.rank, 0)
            self._next[line.rank] = number + 1
            sink(msgspec.structs.replace(line, t_ns=line.t_ns + base_ns, n=number) if first else line)

        return see


def _whole(results: list[Result]) -> tuple[Eventlog, ...]:
    """The eventlog of each job over all lives; each life counts its own time."""
    whole: dict[str, Eventlog] = {}
    for nth, result in enumerate(results, 1):
        for log in result.eventlogs:
            events = tuple((t_ns, f"life {nth}: {text}" if nth > 1 else text) for t_ns, text in log.events)
            earlier = whole.get(log.job)
            whole[log.job] = log if earlier is None else Eventlog(log.job, log.label, earlier.events + events)
    return tuple(whole.values())


def _shifted(told: Told, base_ns: int) -> Told:
    return msgspec.structs.replace(told, t_ns=told.t_ns + base_ns, until_ns=told.until_ns + base_ns)


def joined(results: list[Result]) -> Result:
    """One result of all lives: the worst status, all failures, the last exit code."""
    if len(results) == 1:
        return results[0]
    last = results[-1]
    delays = [delay for result in results for delay in result.delays]
    status = min((result.status for result in results), key=STATUSES.index)
    failures = tuple(
        msgspec.structs.replace(failure, text=f"life {nth}: {failure.text}")
        for nth, result in enumerate(results, 1)
        for failure in result.failures
    )
    return msgspec.structs.replace(
        last,
        status=status,
        failures=failures,
        checks=sum(result.checks for result in results),
        endings=tuple(map(ending, results)),
        eventlogs=_whole(results),
        story=tuple(told for result in results for told in result.story),
        untold=sum(result.untold for result in results),
        deadlocks=tuple(deadlock for result in results for deadlock in result.deadlocks),
        delays=tuple(sorted(delays, key=lambda delay: -delay.held_ns)[:DELAYS_MAX]),
        elapsed_ns=sum(result.elapsed_ns for result in results),
    )
