"""Who waits for whom in a circle: nobody of them will ever go on, unless somebody from outside helps.

The circle is found in the moment in which the last of its waits is told, and named with all its members.
"""

from __future__ import annotations

from brokerctl.check.reader import Finding, Wants
from brokerctl.model.tree import Tree
from brokerctl.records import Line, Served, Waiting
from brokerctl.settings import Settings


class NoDeadlock:
    """Nobody waits, over others, for himself."""

    NAME = "no-deadlock"
    wants: Wants = frozenset({Waiting, Served})

    def __init__(self, _settings: Settings, _tree: Tree) -> None:
        self._waits: dict[str, tuple[str, ...]] = {}  # who → for whom, in the order in which it was told
        self._findings: list[Finding] = []

    def see(self, line: Line) -> None:
        """One more line."""
        what = line.what
        if isinstance(what, Waiting):
            who, on = what.who, what.on
            self._waits[who] = (*self._waits.get(who, ()), on)
            if on not in self._waits:
                return  # who is waited for waits for nobody
            circle = self._path(on, who)
            if circle:
                pairs = zip([what.who, *circle], circle, strict=False)
                text = "; ".join(f"{one} waits for {two}" for one, two in pairs)
                self._findings.append(Finding(self.NAME, text, line.t_ns, line.rank))
        elif isinstance(what, Served):
            waits = tuple(on for on in self._waits.pop(what.who, ()) if on != what.on)
            if waits:
                self._waits[what.who] = waits

    def _path(self, start: str, goal: str) -> list[str]:
        """From one to the other along the waits, both included; empty where there is no way."""
        came: dict[str, str] = {start: ""}
        todo = [start]
        for one in todo:
            if one == goal:
                path = [one]
                while came[path[-1]]:
                    path.append(came[path[-1]])
                return path[::-1]
            for other in self._waits.get(one, ()):
                if other not in came:
                    came[other] = one
                    todo.append(other)
        return []

    def finish(self) -> list[Finding]:
        """What was found."""
        return self._findings
