"""The story of a run: its log entries, in order, each on its own, or in an instance of many ranks equal ones as one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from brokerctl.durations import MS, S
from brokerctl.ids import idset
from brokerctl.logs import fluxlog
from brokerctl.logs.fluxlog import Entry
from brokerctl.records import Drain, Ended, Line, Log, Moved, UnitMoved, Unreachable
from brokerctl.report.result import STORY_MAX, Told

# More ranks than a reader would follow one by one.
EACH_MAX = 8
# Equal entries belong together while no more than this is between two of them (0.1 s: levels of a tree stay apart,
# ranks of a level come together), and not longer than that in all: a story is told while it happens.
GAP_NS = 100 * MS
LONGEST_NS = 10 * S


class Story:
    """Keeps the end of a run's log, and hands on each entry as it is known."""

    wants: frozenset[type] = frozenset({Log, Moved, Ended, Unreachable, Drain, UnitMoved})

    def __init__(self, hosts: Sequence[str], tell: Callable[[Told], None] | None) -> None:
        self._hosts = hosts
        self._tell = tell
        self._begun_ns: int | None = None
        self._groups: deque[_Group] = deque()  # not told yet, in the order of their first entries
        self._open: dict[object, _Group] = {}
        self._look_ns = 0  # nothing can be told before
        self.told: deque[Told] = deque(maxlen=STORY_MAX)
        self.count = 0
        self.see = self._each if len(hosts) <= EACH_MAX else self._together

    def _each(self, line: Line) -> None:
        """One more line of a small instance."""
        if self._begun_ns is None:
            self._begun_ns = line.t_ns
        entry = fluxlog.entry(line, self._hosts)
        if entry is not None and entry.level <= fluxlog.INFO:
            self._say(Told(line.t_ns - self._begun_ns, entry))

    def _together(self, line: Line) -> None:
        """One more line of a large instance."""
        what, t_ns = line.what, line.t_ns
        if self._begun_ns is None:
            self._begun_ns = t_ns
        key: object = what if line.rank >= 0 else (line.rank, what)
        held_ns = 0
        if isinstance(what, Moved):
            key, held_ns = (what.event, what.old, what.new), what.held_ns
        elif isinstance(what, Ended):
            key, held_ns = (what.run, what.command, what.rc, what.how), what.held_ns
        elif isinstance(what, Log) and what.level > fluxlog.INFO:
            return
        if isinstance(what, Ended) and fluxlog.entry(line, self._hosts) is None:
            return
        group = self._open.get(key)
        if group is None or t_ns - group.last_ns > GAP_NS or t_ns - group.first_ns > LONGEST_NS:
            if t_ns > self._look_ns:
                self._close(t_ns)
            self._open[key] = group = _Group(line, held_ns)
            self._groups.append(group)
            return
        group.ranks.append(line.rank)
        group.last_ns = t_ns
        if held_ns != group.held_ns:
            group.held_ns = None

    def finish(self) -> None:
        """The run is over: tell what is still kept."""
        while self._groups:
            self._say(self._groups.popleft().told(self._begun_ns or 0, self._hosts))

    def _close(self, now_ns: int) -> None:
        """Tell what nothing can be added to any more, as long as nothing older is open."""
        groups = self._groups
        while groups and (now_ns - groups[0].last_ns > GAP_NS or now_ns - groups[0].first_ns > LONGEST_NS):
            self._say(groups.popleft().told(self._begun_ns or 0, self._hosts))
        if groups:
            self._look_ns = groups[0].last_ns + GAP_NS
        else:
            self._open.clear()

    def _say(self, told: Told) -> None:
        self.told.append(told)
        self.count += 1
        if self._tell is not None:
            self._tell(told)


class _Group:
    """Equal entries of several ranks; `held_ns` is None where they took different times."""

    __slots__ = ("first_ns", "held_ns", "last_ns", "line", "ranks")

    def __init__(self, line: Line, held_ns: int) -> None:
        self.line = line
        self.ranks = [line.rank]
        self.first_ns = self.last_ns = line.t_ns
        self.held_ns: int | None = held_ns

    def told(self, begun_ns: int, hosts: Sequence[str]) -> Told:
        """As one entry."""
        what, entry = self.line.what, fluxlog.entry(self.line, hosts)
        assert entry is not None
        if self.held_ns is None and isinstance(what, Moved | Ended):
            # The same line without its last word, the duration.
            entry = Entry(entry.level, entry.component, entry.rank, entry.text.rpartition(" ")[0])
        return Told(
            self.first_ns - begun_ns, entry, self.last_ns - begun_ns, idset(self.ranks) if self.line.rank >= 0 else ""
        )
