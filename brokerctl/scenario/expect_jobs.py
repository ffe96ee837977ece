"""The part of `[expect]` that is about jobs: eventlogs, drained nodes, when nodes were given back."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from brokerctl import durations
from brokerctl.check.reader import Finding
from brokerctl.errors import ScenarioError
from brokerctl.ids import idset
from brokerctl.model.tree import Tree
from brokerctl.records import Drain, Freed, JobEvent, Line
from brokerctl.scenario import puppets
from brokerctl.scenario.format import Scenario
from brokerctl.scenario.jobs import JobNames
from brokerctl.scenario.sets import rank_set

# Times of a job are a scenario's own, but for what messages take; in real time much more passes.
TOLERANCE_NS = 50 * durations.MS
_INTEGER = re.compile("-?[0-9]{1,18}")


class JobExpectations:
    """What a scenario expects of its jobs in one run; `checks` counts the single expectations."""

    def __init__(self, scenario: Scenario, tree: Tree) -> None:
        expect, names = scenario.file.expect, scenario.jobs()
        where = f"{scenario.path}: expect"
        for table, key in ((expect.events, "events"), (expect.freed, "freed")):
            for name in table:
                if name not in names:
                    raise ScenarioError(f"{where}.{key}: unknown job {name!r}; known are {', '.join(names) or 'none'}")
        self._events = {
            name: [_event(row, f"{where}.events.{name}") for row in rows] for name, rows in expect.events.items()
        }
        self._drained = None if expect.drained is None else _by_rank(expect.drained, tree, f"{where}.drained")
        self._freed = {
            name: {
                rank: puppets.finite(text, f"{where}.freed.{name}")
                for rank, text in _by_rank(table, tree, f"{where}.freed.{name}").items()
            }
            for name, table in expect.freed.items()
        }
        self._tree = tree
        self._got_events: dict[str, list[tuple[str, dict[str, object]]]] = {name: [] for name in self._events}
        self._got_drained: dict[int, str] = {}
        self._got_freed: dict[str, dict[int, int]] = {name: {} for name in self._freed}
        self._free_ns: dict[str, int] = {}
        self._names = JobNames(scenario.restored)
        self._labels = self._names.labels
        self.checks = sum(map(len, self._events.values())) + sum(map(len, self._freed.values()))
        self.checks += self._drained is not None

    @property
    def wants(self) -> frozenset[type]:
        """The kinds that it goes by."""
        kinds: set[type] = {Freed} if self._freed else set()
        if self._drained is not None:
            kinds.add(Drain)
        return frozenset(kinds | {JobEvent}) if kinds or self._events else frozenset()

    def see(self, line: Line) -> None:
        """The next line of the run."""
        what = line.what
        if isinstance(what, JobEvent):
            self._labels[what.job] = what.label
            if what.label in self._got_events:
                self._got_events[what.label].append((what.name, what.context))
            if what.name == "free":
                self._free_ns[what.label] = line.t_ns
        elif isinstance(what, Drain):
            self._got_drained.update(dict.fromkeys(what.ranks, what.reason))
        elif isinstance(what, Freed):
            label = self._labels.get(what.job, what.job)
            if label in self._got_freed:
                since_ns = line.t_ns - self._free_ns.get(label, line.t_ns)
                self._got_freed[label].update(dict.fromkeys(what.ranks, since_ns))

    def findings(self) -> Iterable[tuple[str, str, int]]:
        """Name, text and rank of each thing that was not as expected."""
        for name, rows in self._events.items():
            got = self._got_events[name]
            index = 0
            for event, context in got:
                if index < len(rows) and event == rows[index][0] and _holds(rows[index][1], context):
                    index += 1
            if index < len(rows):
                shown = ", ".join(_shown(event, context) for event, context in got) or "none"
                missing = _shown(*rows[index])
                yield f"expect.events.{name}", f"expected {missing!r}, got no such event there; there were {shown}", 0
        if self._drained is not None and not self._drained_held(self._drained):
            yield "expect.drained", f"expected {_reasons(self._drained)}; got {_reasons(self._got_drained)}", 0
        for name, times in self._freed.items():
            for rank, want_ns in times.items():
                got_ns = self._got_freed[name].get(rank)
                if got_ns is None or abs(got_ns - want_ns) > TOLERANCE_NS:
                    text = "never" if got_ns is None else f"after {durations.as_text(got_ns)}"
                    want = durations.as_text(want_ns)
                    found = f"expected rank {rank} to be given back after {want}, got {text}"
                    yield f"expect.freed.{name}", found, rank

    def _drained_held(self, wanted: dict[int, str]) -> bool:
        got = self._got_drained
        return got.keys() == wanted.keys() and all(
            reason in got[rank] or reason in self._names.named(got[rank]) for rank, reason in wanted.items()
        )


def waits_missing(wanted: Sequence[str], deadlocks: Sequence[str]) -> list[Finding]:
    """The first part that is not told of a deadlock, in the order in which they are wanted."""
    text, at = "\n".join(deadlocks), 0
    for part in wanted:
        found = text.find(part, at)
        if found < 0:
            told = text.replace("\n", " | ") or "no deadlock"
            return [Finding("expect.waits", f"expected {part!r} to be told of a deadlock; got {told}")]
        at = found + len(part)
    return []


def _event(row: str, where: str) -> tuple[str, dict[str, object]]:
    """`epilog-finish status=15`: a name, and what its context must hold."""
    words = row.split()
    if not words:
        raise ScenarioError(f"{where}: an event is empty; expected such as 'finish' or 'epilog-finish status=0'")
    name, rest = words[0], row.split(None, 1)[1] if len(words) > 1 else ""
    context: dict[str, object] = {}
    while rest:
        key, equals, rest = rest.partition("=")
        if not equals or not key.strip():
            raise ScenarioError(f"{where}: {row!r} is no event; expected such as 'epilog-finish status=0'")
        if rest.startswith("'"):
            value, _quote, rest = rest[1:].partition("'")
            context[key.strip()] = value
        else:
            value, _space, rest = rest.partition(" ")
            context[key.strip()] = int(value) if _INTEGER.fullmatch(value) else {"true": True}.get(value, value)
        rest = rest.strip()
    return name, context


def _holds(wanted: dict[str, object], got: dict[str, object]) -> bool:
    return all(got.get(key) == value for key, value in wanted.items())


def _shown(name: str, context: dict[str, object]) -> str:
    words = [f"{key}={value!r}" if isinstance(value, str) else f"{key}={value}" for key, value in context.items()]
    return " ".join([name, *(word for word in words if len(word) < 100)])


def _reasons(drained: dict[int, str]) -> str:
    reasons: dict[str, list[int]] = {}
    for rank, reason in sorted(drained.items()):
        reasons.setdefault(reason, []).append(rank)
    return ", ".join(f"{idset(ranks)}: {reason!r}" for reason, ranks in reasons.items()) or "none drained"


def _by_rank(table: dict[str, str], tree: Tree, where: str) -> dict[int, str]:
    found: dict[int, str] = {}
    for key, value in table.items():
        try:
            found.update(dict.fromkeys(rank_set(key, tree.size), value))
        except ValueError as error:
            raise ScenarioError(f"{where}: {error}") from None
    return found
