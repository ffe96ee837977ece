"""`simulate --at MOMENT`: an instance in virtual time, looked at in one moment, the first life in which it comes."""

from __future__ import annotations

from collections.abc import Sequence

from brokerctl.check.eventlogs import Accounting
from brokerctl.errors import UsageError
from brokerctl.records import Answer, Asked, Exit, Line, Moved
from brokerctl.report.view import View
from brokerctl.scenario import lives, moments
from brokerctl.scenario.format import Scenario
from brokerctl.scenario.resolve import horizon_ns, resolve
from brokerctl.worlds.contract import Deliver, Resolved, Step

WHAT = "jobs"


def look(scenario: Scenario, moment: str, policy: str | None, sets: Sequence[str]) -> View:
    """What is to be seen then; UsageError where the moment is none, or never comes."""
    import msgspec

    from brokerctl.worlds.sim.world import SimWorld

    stored: dict[str, str] = {}
    for life in lives.of(scenario):
        resolved = resolve(lives.after(life, stored), policy, sets)
        try:
            read = moments.parse(moment, len(resolved.topology.parents), life.jobs())
        except ValueError as error:
            raise UsageError(f"--at {moment}: {error}") from None
        if read.offset_ns < 0:
            raise UsageError(f"--at {moment}: can't be foreseen; expected no time before an event")
        step = Step(read.trigger(), Deliver(0, Asked(WHAT)), moment)
        watcher = _Watcher(resolved)
        watched = msgspec.structs.replace(resolved, steps=(*resolved.steps, step))
        outcome = SimWorld().run(watched, watcher.see, horizon_ns(life))
        if watcher.seen is not None:
            return watcher.view(moment)
        stored = {**stored, **outcome.stored}
    raise UsageError(f"--at {moment}: never comes while the leader lives")


class _Watcher:
    """Reads lines until the job manager has answered."""

    def __init__(self, resolved: Resolved) -> None:
        self._resolved = resolved
        self._states: dict[int, str] = {}
        self._accounting = Accounting()
        self._begun_ns: int | None = None
        self._reply = -1
        self.seen: Line | None = None

    def see(self, line: Line) -> None:
        """One more line; nothing counts after the answer."""
        what = line.what
        if self.seen is not None:
            return
        if self._begun_ns is None:
            self._begun_ns = line.t_ns
        self._accounting.see(line)
        if isinstance(what, Moved):
            self._states[line.rank] = what.new
        elif isinstance(what, Exit):
            self._states.pop(line.rank, None)
        elif isinstance(what, Asked) and what.what == WHAT:
            self._reply = what.reply
        elif isinstance(what, Answer) and what.reply == self._reply:
            self.seen = line

    def view(self, moment: str) -> View:
        """All that was known then."""
        assert self.seen is not None
        assert isinstance(self.seen.what, Answer)
        now_ns, states = self.seen.t_ns, dict[str, list[int]]()
        for rank, state in sorted(self._states.items()):
            states.setdefault(state, []).append(rank)
        account = self._accounting
        return View(
            moment=moment,
            t_ns=now_ns - (self._begun_ns or 0),
            hosts=self._resolved.topology.hosts,
            states=states,
            about=self.seen.what.body,
            cores=self._resolved.settings.cores,
            spent=(account.by_job(now_ns), account.by_user(now_ns), account.by_rank(now_ns)),
        )
