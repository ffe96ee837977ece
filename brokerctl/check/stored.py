"""Nothing that was stored is lost at a restart: what must hold from one life of the leader to the next (FLUX.md F)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from brokerctl.check.reader import Finding, Wants
from brokerctl.ids import idset
from brokerctl.model import jobstore
from brokerctl.model.lifecycle import State
from brokerctl.model.tree import Tree
from brokerctl.records import Booted, Exit, Line, Moved, Restored, Store
from brokerctl.settings import Settings


class NothingStoredIsLost:
    """What a life of the leader stored comes back in the next, whose jobs and drains begin with those.

    A life is judged once it has come to RUN, or to its exit: one that is killed before may have had no time. What it
    stores itself must hold all that it began with: jobs that are not INACTIVE, whole eventlogs, drained nodes.
    """

    NAME = "nothing-stored-is-lost"
    wants: Wants = frozenset({Booted, Restored, Store, Moved, Exit})

    def __init__(self, _settings: Settings, _tree: Tree) -> None:
        self._stored: dict[str, str] = {}  # as the trace tells
        self._due: dict[str, str] = {}  # of it, what has not come back yet in this life
        self._began = ""  # with which jobs this life began, until it has stored its own
        self._findings: list[Finding] = []

    def earlier(self, stored: Mapping[str, str]) -> None:
        """What lives stored whose lines are in other traces."""
        self._stored.update(stored)

    def see(self, line: Line) -> None:
        """One more line."""
        what = line.what
        if line.rank:  # the leader alone stores
            return
        if isinstance(what, Booted):
            self._due = dict(self._stored)
            self._began = self._stored.get(jobstore.KEY, "")
        elif isinstance(what, Restored):
            due = self._due.pop(what.key, None)
            if due is not None and due != what.value:
                self._found(line, f"{what.key} came back other than it was stored")
        elif isinstance(what, Store):
            self._store(line, what)
        elif isinstance(what, Exit) or (isinstance(what, Moved) and what.new == State.RUN):
            for key in self._due:
                self._found(line, f"{key} was stored and did not come back")
            self._due = {}

    def _store(self, line: Line, what: Store) -> None:
        self._stored[what.key] = what.value
        if what.key == jobstore.KEY and self._began:
            for text in _lost(self._began, what.value):
                self._found(line, text)
            self._began = ""

    def kept(self, stored: Mapping[str, str]) -> None:
        """The trace is at its end, and the next life would begin with that."""
        for key, value in self._stored.items():
            if stored.get(key) != value:
                self._findings.append(Finding(self.NAME, f"{key} was stored, and the world has not kept it"))

    def _found(self, line: Line, text: str) -> None:
        self._findings.append(Finding(self.NAME, text, line.t_ns, line.rank))

    def finish(self) -> list[Finding]:
        """What was found."""
        return self._findings


def _lost(began: str, stored: str) -> Iterator[str]:
    """What a life began with and has not stored in its turn."""
    before, after = jobstore.decode(began), jobstore.decode(stored)
    jobs = {job.id: job for job in after.jobs}
    for job in before.jobs:
        label, same = job.spec.name or job.id, jobs.get(job.id)
        if same is None:
            if all(name != "clean" for _, name, _ in job.events):
                yield f"{label} was not INACTIVE when it was stored, and is gone"
        elif same.events[: len(job.events)] != job.events:
            yield f"the eventlog of {label} does not begin with what was stored of it"
    ready = {rank for rank, _ in before.drained} - {rank for rank, _ in after.drained}
    if ready:
        yield f"rank {idset(ready)} was drained when that was stored, and is not"
