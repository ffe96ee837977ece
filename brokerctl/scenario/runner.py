"""Runs one scenario in one world: expectations and invariants see each line as it comes; the result is a record."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from brokerctl.check.deadlock import NoDeadlock
from brokerctl.check.eventlogs import Eventlogs
from brokerctl.check.invariants import ABOUT_JOBS, INVARIANTS, BoundsHeld, LeavesToRoot
from brokerctl.check.reader import Dispatch, See, Wants, Watch
from brokerctl.check.stored import NothingStoredIsLost
from brokerctl.check.waits import Waits
from brokerctl.durations import MINUTE, MS
from brokerctl.errors import BrokerctlError, UsageError
from brokerctl.model.tree import Tree
from brokerctl.records import Line
from brokerctl.report.result import Delay, Failure, Result, Told
from brokerctl.scenario import expect, lives
from brokerctl.scenario.expect import Expectations
from brokerctl.scenario.expect_jobs import waits_missing
from brokerctl.scenario.format import Scenario, one_line
from brokerctl.scenario.resolve import horizon_ns, resolve
from brokerctl.scenario.stop import StopClock
from brokerctl.scenario.story import Story
from brokerctl.worlds.contract import Fault, FaultKind, Outcome, Resolved, World

WORLDS = ("sim", "live", "systemd", "flux")
# Nobody waits longer for a real run that hangs; virtual time costs nothing.
LIVE_HORIZON_NS = 1 * MINUTE
# Flux's own goodbye may take a minute, and so may the unloading of its modules (FLUX.md 37).
FLUX_HORIZON_NS = 3 * MINUTE
# More ranks than this, and no reader may ask for every line.
EVERY_LINE_MAX = 1000
# Who held a stop up: the longest few, and not who took no time that anybody would notice.
DELAYS_MAX = 3
# More eventlogs than that nobody reads below a story.
EVENTLOGS_MAX = 4
DELAY_MIN_NS = 10 * MS
_EXCUSED = frozenset({BoundsHeld.NAME, LeavesToRoot.NAME})


def world(name: str) -> World:
    """The world of that name; UsageError if there is none."""
    if name == "sim":
        from brokerctl.worlds.sim.world import SimWorld

        return SimWorld()
    if name == "live":
        from brokerctl.worlds.live.world import LiveWorld

        return LiveWorld()
    if name == "systemd":
        from brokerctl.worlds.systemd.world import SystemdWorld

        return SystemdWorld()
    if name == "flux":
        from brokerctl.worlds.flux.world import FluxWorld

        return FluxWorld()
    raise UsageError(f"unknown world {name!r}; expected one of {', '.join(WORLDS)}")


def prepare(scenario: Scenario, policy: str | None = None, sets: Sequence[str] = ()) -> Resolved:
    """Resolve a scenario and build its expectations, so that nothing is run where something can't be.

    Of a scenario of several lives, the first.
    """
    with one_line():
        for life in reversed(lives.of(scenario)):
            resolved = resolve(life, policy, sets)
            horizon_ns(life)
            Expectations(life, Tree(resolved.topology))
    return resolved


def run(
    scenario: Scenario,
    world_name: str,
    *,
    policy: str | None = None,
    sets: Sequence[str] = (),
    tell: Callable[[Told], None] | None = None,
    sink: Callable[[Line], None] | None = None,
    watch: Watch | None = None,
    record: Path | None = None,
) -> Result:
    """Run a scenario in a world, all its lives.

    `tell` gets each log entry, `sink` each line, `watch` those it wants, as they come. What a real Flux did is written
    to `record`.
    """
    results: list[Result] = []
    shift = lives.Shift()
    restored: dict[str, str] = {}
    for life in lives.of(scenario):
        told, shown = shift.teller(tell), shift.sink(sink)
        where = world(world_name)
        result, outcome = _run(lives.after(life, restored), where, policy, sets, told, shown, watch)
        if record is not None:
            _record(where, scenario, record)
        results.append(msgspec.structs.replace(result, replay=replay_command(scenario, world_name, policy, sets)))
        if outcome is None:
            break
        restored = {**restored, **outcome.stored}
        shift.after(outcome.t_ns)
    return lives.joined(results)


def _record(where: World, scenario: Scenario, path: Path) -> None:
    """Write what a real Flux did, if it did anything."""
    from brokerctl.logs import recording
    from brokerctl.worlds.flux.world import FluxWorld

    if isinstance(where, FluxWorld) and where.recorded is not None:
        recording.write(msgspec.structs.replace(where.recorded, about=scenario.file.about), path)


def _run(
    scenario: Scenario,
    where: World,
    policy: str | None,
    sets: Sequence[str],
    tell: Callable[[Told], None] | None,
    sink: Callable[[Line], None] | None,
    watch: Watch | None,
) -> tuple[Result, Outcome | None]:
    """One life of an instance; no outcome where the world could not run it."""
    real_time = "virtual-time" not in where.capabilities
    resolved = resolve(scenario, policy, sets, real_time=real_time)
    result = _planned(scenario, where.name, policy, sets, resolved)
    if reason := unfit(scenario, resolved, where):
        return msgspec.structs.replace(result, status="skipped", reason=reason), None
    modelled = where.name != "flux"  # invariants are promises of the model, which a real Flux has not made
    judged = scenario if modelled else _from_outside(scenario)
    all_lines = real_time or sink is not None
    readers = _Readers(judged, resolved, tell, sink, watch, all_lines=all_lines, invariants=modelled)
    limit_ns = horizon_ns(scenario)
    if real_time:
        limit_ns = min(limit_ns, LIVE_HORIZON_NS if modelled else FLUX_HORIZON_NS)
    begun_ns = time.monotonic_ns()
    try:
        outcome = where.run(resolved, readers.dispatch.see, limit_ns, readers.dispatch.wants)
    except BrokerctlError as error:
        # The world itself could not go on: nothing was shown about the scenario, and that is no pass.
        readers.story.finish()
        failed = (Failure("world", str(error)),)
        story = tuple(readers.story.told)
        return msgspec.structs.replace(result, status="failed", failures=failed, story=story), None
    ended_ns = time.monotonic_ns()
    result = readers.judged(result, outcome)
    stopping_ns = ended_ns - readers.stopped_ns if readers.stopped_ns else 0
    return msgspec.structs.replace(result, elapsed_ns=ended_ns - begun_ns, stopping_ns=stopping_ns), outcome


def _from_outside(scenario: Scenario) -> Scenario:
    """What can't be seen of a real Flux is not expected of it: whom it counts as lost, when it gives nodes back."""
    kept = msgspec.structs.replace(scenario.file.expect, lost=None, freed={}, waits=[], violates=[])
    return msgspec.structs.replace(scenario, file=msgspec.structs.replace(scenario.file, expect=kept))


class _Readers:
    """All that look at one run: its expectations, the invariants, who waits for whom, the story."""

    def __init__(
        self,
        scenario: Scenario,
        resolved: Resolved,
        tell: Callable[[Told], None] | None,
        sink: Callable[[Line], None] | None,
        watch: Watch | None,
        *,
        all_lines: bool,
        invariants: bool = True,
    ) -> None:
        tree = Tree(resolved.topology)
        self.stopped_ns = 0  # real time
        self._violates = scenario.file.expect.violates
        self._waited = scenario.file.expect.waits
        self._clock = StopClock(self._stopped)
        self._expectations = Expectations(scenario, tree, self._clock)
        # Where there are no jobs, what must hold of them can't be broken.
        names = INVARIANTS.keys() - (() if scenario.jobs() else ABOUT_JOBS)
        rules = [make(resolved.settings, tree) for name, make in INVARIANTS.items() if name in names and invariants]
        self._keeping = [rule for rule in rules if isinstance(rule, NothingStoredIsLost)]
        for rule in self._keeping:
            rule.earlier(resolved.restored)
        self._restored = resolved.restored
        # Rules about every single line would make the world write them all: too dear for so many ranks.
        self._rules = [rule for rule in rules if all_lines or rule.wants is not None or tree.size <= EVERY_LINE_MAX]
        self._unchecked = tuple(rule.NAME for rule in rules if rule not in self._rules)
        self._in_unit = resolved.unit is not None  # whose manager kills the leader
        self._size = tree.size if resolved.has_brokers() else 0
        self._waits = Waits()
        self._eventlogs = Eventlogs(EVENTLOGS_MAX)
        self._crashed = _ranks_of(resolved, "crash")
        self._hurt = self._crashed | _ranks_of(resolved, "freeze")
        self.story = Story(tree.hosts, tell)
        readers: list[tuple[Wants, See]] = [
            (self._expectations.wants, self._expectations.see),
            (self._waits.wants, self._waits.see),
            (self._eventlogs.wants, self._eventlogs.see),
            (self.story.wants, self.story.see),
            *((rule.wants, rule.see) for rule in self._rules),
        ]
        if watch is not None:
            readers.append((watch.wants, watch.see))
        if sink is not None:
            readers.append((None, sink))
        self.dispatch = Dispatch(readers)

    def _stopped(self) -> None:
        self.stopped_ns = time.monotonic_ns()

    def judged(self, result: Result, outcome: Outcome) -> Result:
        """The result of a run that came to its end."""
        self.story.finish()
        clock, told = self._clock, self.story.told
        for keeping in self._keeping:
            keeping.kept({**self._restored, **outcome.stored})
        # Who was killed or stopped from outside keeps no bound and no order; those that wait for it must.
        found = [one for rule in self._rules for one in rule.finish()]
        hurt = self._hurt if 0 in outcome.exits or not self._in_unit else self._hurt | {0}
        found = [one for one in found if one.name not in _EXCUSED or one.rank not in hurt]
        begin_ns = clock.begun_ns or 0
        deadlocks = tuple(
            Failure(one.name, one.text, one.t_ns - begin_ns, one.rank) for one in found if one.name == NoDeadlock.NAME
        )
        broken = self._expectations.findings(outcome) + expect.judge(self._violates, found)
        broken += waits_missing(self._waited, [one.text for one in deadlocks])
        return msgspec.structs.replace(
            result,
            status="failed" if broken else "passed",
            outcome=outcome.kind,
            exit_code=outcome.exits.get(0),
            stop_ns=clock.stop_ns,
            checks=self._expectations.checks + len(self._rules),
            unchecked=self._unchecked,
            failures=tuple(Failure(one.name, one.text, one.t_ns - begin_ns, one.rank) for one in broken),
            delays=tuple(_delays(self._waits)),
            deadlocks=deadlocks,
            eventlogs=self._eventlogs.logs(begin_ns),
            story=tuple(told),
            untold=self.story.count - len(told),
            unit=self._expectations.unit.ending(),
            unended=self._size - len(outcome.exits) - len(self._crashed - outcome.exits.keys()),
        )


def _ranks_of(resolved: Resolved, kind: FaultKind) -> frozenset[int]:
    """The ranks that the scenario's faults of that kind name."""
    faults = [step.deed for step in resolved.steps if isinstance(step.deed, Fault)]
    return frozenset(rank for fault in faults if fault.kind == kind for rank in fault.ranks)


def _planned(
    scenario: Scenario, world_name: str, policy: str | None, sets: Sequence[str], resolved: Resolved
) -> Result:
    return Result(
        name=scenario.name,
        path=str(scenario.path),
        about=scenario.file.about,
        world=world_name,
        policy=policy or scenario.file.policy,
        replay=replay_command(scenario, world_name, policy, sets),
        size=len(resolved.topology.parents),
    )


def unfit(scenario: Scenario, resolved: Resolved, where: World) -> str:
    """Why a world can't run the scenario, or nothing."""
    if where.name not in scenario.file.worlds:
        return f"the scenario is for {', '.join(scenario.file.worlds) or 'no world'}"
    lacking = sorted(resolved.needs - where.capabilities)
    if where.name == "flux" and not lacking:
        from brokerctl.worlds.flux import fit

        return fit.unfit(resolved)
    if where.name == "systemd" and not lacking:
        from brokerctl.worlds.systemd.world import unfit as unfit_for_systemd

        return unfit_for_systemd(resolved)
    return f"world {where.name} lacks {', '.join(lacking)}" if lacking else ""


def replay_command(scenario: Scenario, world_name: str, policy: str | None = None, sets: Sequence[str] = ()) -> str:
    """The command that runs it again, to be copied."""
    words = ["brokerctl", "simulate", str(scenario.path)]
    if world_name != "sim":
        words = ["brokerctl", "test", str(scenario.path), "--world", world_name]
    if policy is not None:
        words += ["--policy", policy]
    for assignment in sets:
        words += ["-S", assignment]
    return shlex.join(words)


def _delays(waits: Waits) -> list[Delay]:
    """What held up the stop: what is not over yet, then the longest."""
    delays = []
    for one in waits.culprits():
        action = not one.who.startswith("rank ")
        if one.held_ns >= DELAY_MIN_NS or not one.ended:
            who = f"{one.who}: {one.on}" if action else f"{one.who} (waits for {one.on})"
            rank = f"rank {one.rank} " if action and one.rank else ""
            delays.append(Delay(rank + who, one.held_ns, over=one.ended, how=f"rc={one.rc}" if one.rc else ""))
    return delays[:DELAYS_MAX]
