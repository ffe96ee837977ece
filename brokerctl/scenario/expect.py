"""`[expect]`: a reader that is built from the table, sees a run's lines, and tells what is not as expected.

A finding says expected and got in one line. What the table can't mean is a ScenarioError when it is
built, before anything runs. Invariants are not here: they hold for every run (`check`), expectations for
one scenario.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from brokerctl import durations
from brokerctl.check.invariants import INVARIANTS
from brokerctl.check.reader import Dispatch, Finding, See, Wants
from brokerctl.errors import ScenarioError
from brokerctl.ids import idset
from brokerctl.logs.fluxlog import TOLD, as_flux_log
from brokerctl.model.lifecycle import Event, State
from brokerctl.model.tree import Tree
from brokerctl.records import UNIT, Ended, JobEvent, Line, Moved, Notify
from brokerctl.scenario import moments, puppets
from brokerctl.scenario.expect_jobs import JobExpectations
from brokerctl.scenario.expect_unit import UnitExpectations
from brokerctl.scenario.format import Expect, Scenario, SpanEntry
from brokerctl.scenario.jobs import JobNames
from brokerctl.scenario.losses import Losses
from brokerctl.scenario.moments import Moment, Watcher
from brokerctl.scenario.sets import rank_set
from brokerctl.scenario.stop import StopClock
from brokerctl.worlds.contract import Outcome

_ACTION = re.compile(rf"(?:rank (0|[1-9][0-9]{{0,8}}) )?({moments.RUN})")
_RANK = re.compile(r"0|[1-9][0-9]{0,8}")
_SHOWN = 12  # transitions that a message shows before it breaks off


class InOrder:
    """Texts that must come in this order, others between them."""

    def __init__(self, wanted: Sequence[str], matches: Callable[[str, str], bool]) -> None:
        self._wanted = wanted
        self._matches = matches
        self._found = 0

    def see(self, text: str) -> None:
        """The next text of the run."""
        if self._found < len(self._wanted) and self._matches(self._wanted[self._found], text):
            self._found += 1

    def is_over(self) -> bool:
        """All of them have come."""
        return self._found == len(self._wanted)

    def missing(self, what: str) -> str:
        """One line about the first text that didn't come, or nothing."""
        if self.is_over():
            return ""
        after = f" after {self._wanted[self._found - 1]!r}" if self._found else ""
        return f"expected {self._wanted[self._found]!r}{after}, got no such {what}"


class Expectations:
    """What a scenario expects of one run; `checks` counts the single expectations."""

    def __init__(self, scenario: Scenario, tree: Tree, clock: StopClock | None = None) -> None:
        self._expect = expect = scenario.file.expect
        self._hosts = tree.hosts
        where, size = f"{scenario.path}: expect", tree.size
        self._jobs = JobExpectations(scenario, tree)
        self.unit = UnitExpectations(scenario)
        self._names = JobNames(scenario.restored)
        self._has_jobs = bool(scenario.jobs())
        known = scenario.jobs()
        self._lines = 0
        self._clock = StopClock() if clock is None else clock
        self._losses = _losses(expect.lost, tree, f"{where}.lost")
        self._exits = {_rank(key, size, f"{where}.exits"): code for key, code in expect.exits.items()}
        self._within_ns = None if expect.within is None else puppets.finite(expect.within, f"{where}.within")
        self._transitions = {
            _rank(key, size, f"{where}.transitions"): _transitions(rows, f"{where}.transitions.{key}")
            for key, rows in expect.transitions.items()
        }
        self._moved: dict[int, list[str]] = {rank: [] for rank in self._transitions}
        self._actions = {_action(key, size, f"{where}.actions"): rc for key, rc in expect.actions.items()}
        self._ended: dict[tuple[int, str], int] = {}
        self._never = [_watch(text, size, f"{where}.never[{i}]", known) for i, text in enumerate(expect.never)]
        for watcher, text in zip(self._never, expect.never, strict=True):
            if watcher.moment.kind == "time" or watcher.moment.offset_ns:
                raise ScenarioError(f"{where}.never: {text!r} is a time; expected an event without offset")
        self._order = [_watch(text, size, f"{where}.order[{i}]", known) for i, text in enumerate(expect.order)]
        self._spans = [_Span(entry, size, f"{where}.spans[{i}]", known) for i, entry in enumerate(expect.spans)]
        self._watchers: dict[int, list[Watcher]] = {}
        for watcher in [*self._never, *self._order, *(w for span in self._spans for w in span.watchers)]:
            self._watchers.setdefault(watcher.moment.rank, []).append(watcher)
        self._log = InOrder(expect.log, lambda wanted, text: wanted in text)
        self._notify = InOrder(expect.notify, lambda wanted, text: text.startswith(wanted))
        self._logs = bool(expect.log or expect.no_log)
        self._ranks = {0, UNIT, *self._watchers, *self._moved, *(rank for rank, _run in self._actions)}
        self._unwanted: list[tuple[str, str]] = []
        self._parts = Dispatch(self._readers())
        for name in expect.violates:
            if name not in INVARIANTS:
                raise ScenarioError(f"{where}.violates: no invariant {name!r}; known are {', '.join(INVARIANTS)}")
        self.checks = _count(expect) + self._jobs.checks + self.unit.checks

    def _readers(self) -> Iterator[tuple[Wants, See]]:
        """Who looks at which kinds, in this order; only what the table speaks of."""
        expect = self._expect
        yield self._clock.wants, self._clock.see
        if self._losses is not None:
            yield self._losses[1].wants, self._losses[1].see
        yield self._jobs.wants, self._jobs.see
        yield self.unit.wants, self._see_unit
        moments = [watcher.moment.wants for watchers in self._watchers.values() for watcher in watchers]
        yield frozenset().union(*moments), self._see_moments
        if expect.transitions:
            yield frozenset({Moved}), self._see_moved
        if expect.actions:
            yield frozenset({Ended}), self._see_ended
        if expect.notify:
            yield frozenset({Notify}), self._see_notify
        if self._logs and self._has_jobs:
            yield frozenset({JobEvent}), self._names.see
        if self._logs:
            yield TOLD, self._see_log

    @property
    def wants(self) -> Wants:
        """The kinds that the table speaks of."""
        return self._parts.wants

    def see(self, line: Line) -> None:
        """The next line of the run."""
        if self._clock.begun_ns is None:
            self._begin(line)
        if line.rank in self._ranks or self._logs:
            self._parts.see(line)

    def _begin(self, line: Line) -> None:
        """The first line of the run, of whichever rank: times count from there."""
        self._clock.begun_ns = line.t_ns
        for watchers in self._watchers.values():
            for watcher in watchers:
                if watcher.moment.kind == "time":
                    watcher.see(0, line)

    def _see_unit(self, line: Line) -> None:
        if line.rank == UNIT:
            self.unit.see(line)

    def _see_moments(self, line: Line) -> None:
        self._lines += 1
        for watcher in self._watchers.get(line.rank, ()):
            watcher.see(self._lines, line)

    def _see_moved(self, line: Line) -> None:
        moved, what = self._moved.get(line.rank), line.what
        if moved is not None and isinstance(what, Moved):
            moved.append(f"{what.event} {what.old} {what.new}")

    def _see_ended(self, line: Line) -> None:
        if isinstance(line.what, Ended):
            self._ended[line.rank, line.what.run] = line.what.rc

    def _see_notify(self, line: Line) -> None:
        if line.rank == 0 and isinstance(line.what, Notify):
            self._notify.see(line.what.text)

    def _see_log(self, line: Line) -> None:
        if self._log.is_over() and not self._expect.no_log:
            return
        text = as_flux_log(line, self._hosts)
        if text is not None:
            if self._has_jobs:
                text = f"{text}\n{self._names.named(text)}"  # a job's id or its name, as the scenario likes
            self._log.see(text)
            shown = text.split("\n")[-1]
            self._unwanted += [(part, shown) for part in self._expect.no_log if part in text]

    def findings(self, outcome: Outcome) -> list[Finding]:
        """All that was not as expected."""
        begun_ns = self._clock.begun_ns or 0
        found = [
            *self._find_outcome(outcome),
            *self._find_transitions(),
            *self._find_actions(),
            *self._find_moments(begun_ns),
            *self._find_texts(),
            *self._jobs.findings(),
            *self.unit.findings(),
        ]
        return [Finding(name, text, outcome.t_ns, rank) for name, text, rank in found]

    def _find_outcome(self, outcome: Outcome) -> Iterable[tuple[str, str, int]]:
        expect = self._expect
        for text in outcome.undone:
            yield "step", f"step at {text!r} never came", 0
        if outcome.kind != expect.outcome:
            yield "expect.outcome", f"expected {expect.outcome}, got {outcome.kind}", 0
        wanted = dict(self._exits)
        if expect.exit is not None:
            wanted[0] = expect.exit
        for rank, code in wanted.items():
            got = outcome.exits.get(rank)
            if got != code:
                name = "expect.exit" if rank == 0 and expect.exit is not None else f"expect.exits.{rank}"
                yield name, f"expected exit code {code}, got {'none' if got is None else got}", rank
        if self._losses is not None and self._losses[0] != self._losses[1].lost:
            got_text = idset(self._losses[1].lost) or "none"
            yield "expect.lost", f"expected {idset(self._losses[0]) or 'none'} to be lost or shed, got {got_text}", 0
        if self._within_ns is not None:
            stop_ns = self._clock.stop_ns
            if stop_ns is None or stop_ns > self._within_ns:
                got_text = "no exit" if stop_ns is None else durations.as_text(stop_ns)
                yield "expect.within", f"expected the exit within {expect.within}, got {got_text}", 0

    def _find_transitions(self) -> Iterable[tuple[str, str, int]]:
        for rank, rows in self._transitions.items():
            got, name = self._moved[rank], f"expect.transitions.{rank}"
            shown = ", ".join(got[:_SHOWN]) + (", …" if len(got) > _SHOWN else "")
            if self._expect.exact:
                if got != rows:
                    yield name, f"expected exactly {', '.join(rows)}; got {shown or 'none'}", rank
                continue
            in_order = InOrder(rows, lambda wanted, text: wanted == text)
            for text in got:
                in_order.see(text)
            if missing := in_order.missing("transition"):
                yield name, f"{missing}; there were {shown or 'none'}", rank

    def _find_actions(self) -> Iterable[tuple[str, str, int]]:
        for (rank, run), rc in self._actions.items():
            got = self._ended.get((rank, run))
            if got != rc:
                text = "no end of it" if got is None else f"rc={got}"
                yield f"expect.actions.{run}", f"expected rc={rc}, got {text}", rank

    def _find_moments(self, begun_ns: int) -> Iterable[tuple[str, str, int]]:
        for watcher in self._never:
            if watcher.at_ns is not None:
                at = durations.as_text(watcher.at_ns - begun_ns)
                yield (
                    "expect.never",
                    f"expected no {str(watcher.moment)!r}, got one at {at}",
                    watcher.moment.rank,
                )
        for watcher in self._order:
            if watcher.at_ns is None:
                yield (
                    "expect.order",
                    f"expected {str(watcher.moment)!r}, got no such moment",
                    watcher.moment.rank,
                )
        for one, two in zip(self._order, self._order[1:], strict=False):
            if one.at_ns is not None and two.at_ns is not None and _place(two) < _place(one):
                text = f"expected {str(one.moment)!r} before {str(two.moment)!r}, got the reverse"
                yield "expect.order", text, two.moment.rank
        for span in self._spans:
            if text := span.finding():
                yield "expect.spans", text, span.watchers[0].moment.rank

    def _find_texts(self) -> Iterable[tuple[str, str, int]]:
        if missing := self._log.missing("log line"):
            yield "expect.log", missing, 0
        if missing := self._notify.missing("message"):
            yield "expect.notify", missing, 0
        for part, text in self._unwanted[:_SHOWN]:
            yield "expect.no-log", f"expected no {part!r}, got {text!r}", 0


class _Span:
    """The time between two moments, and its limits."""

    def __init__(self, entry: SpanEntry, size: int, where: str, jobs: Sequence[str]) -> None:
        self.watchers = (_watch(entry.from_, size, f"{where}.from", jobs), _watch(entry.to, size, f"{where}.to", jobs))
        self._entry = entry
        self._min_ns = puppets.finite(entry.min, f"{where}.min")
        self._max_ns = puppets.duration(entry.max, f"{where}.max")

    def finding(self) -> str:
        """One line where it is broken, else nothing."""
        one, two = self.watchers
        if one.at_ns is None or two.at_ns is None:
            missed = one if one.at_ns is None else two
            return f"expected {str(missed.moment)!r}, got no such moment"
        got_ns = two.at_ns - one.at_ns
        if self._min_ns <= got_ns and (self._max_ns is None or got_ns <= self._max_ns):
            return ""
        limits = f"between {self._entry.min} and {self._entry.max}"
        got = f"{'-' if got_ns < 0 else ''}{durations.as_text(abs(got_ns))}"
        return f"expected {limits} from {str(one.moment)!r} to {str(two.moment)!r}, got {got}"


def judge(wanted: Sequence[str], broken: Sequence[Finding]) -> list[Finding]:
    """Broken invariants against `violates`: each that was not expected, and each that was and held."""
    names = {finding.name for finding in broken}
    unexpected = [finding for finding in broken if finding.name not in wanted]
    held = [
        Finding("expect.violates", f"expected the invariant {name!r} to be violated, got none of it", 0, 0)
        for name in wanted
        if name not in names
    ]
    return unexpected + held


def _place(watcher: Watcher) -> tuple[int, int]:
    assert watcher.at_ns is not None
    return watcher.at_ns, watcher.index


def _watch(text: str, size: int, where: str, jobs: Sequence[str]) -> Watcher:
    return Watcher(_moment(text, size, where, jobs))


def _moment(text: str, size: int, where: str, jobs: Sequence[str]) -> Moment:
    try:
        return moments.parse(text, size, jobs)
    except ValueError as error:
        raise ScenarioError(f"{where}: {error}") from None


def _losses(text: str | None, tree: Tree, where: str) -> tuple[set[int], Losses] | None:
    """The ranks that are expected to be lost, and who finds those that are."""
    if text is None:
        return None
    try:
        return set(rank_set(text, tree.size) if text.strip() else ()), Losses(tree)
    except ValueError as error:
        raise ScenarioError(f"{where}: {error}") from None


def _rank(key: str, size: int, where: str) -> int:
    if not _RANK.fullmatch(key) or int(key) >= size:
        raise ScenarioError(f"{where}: {key!r} is no rank; expected a number less than {size}")
    return int(key)


def _action(key: str, size: int, where: str) -> tuple[int, str]:
    match = _ACTION.fullmatch(key)
    if match is None:
        raise ScenarioError(f"{where}: {key!r} is no action; expected such as cleanup.0 or rank 1 rc3.0")
    return _rank(match[1] or "0", size, where), match[2]


def _transitions(rows: list[str], where: str) -> list[str]:
    for row in rows:
        words = row.split()
        if len(words) != 3 or words[0] not in set(Event) or not set(words[1:]) <= set(State):
            raise ScenarioError(f"{where}: {row!r} is no transition; expected EVENT OLD NEW")
    return [" ".join(row.split()) for row in rows]


def _count(expect: Expect) -> int:
    """How many single things are looked at; the outcome always is."""
    single = (expect.exit, expect.within, expect.lost)
    rows = sum(map(len, expect.transitions.values()))
    tables = (
        expect.exits,
        expect.actions,
        expect.never,
        expect.order,
        expect.spans,
        expect.log,
        expect.no_log,
    )
    return 1 + sum(one is not None for one in single) + rows + sum(map(len, tables)) + len(expect.notify)
