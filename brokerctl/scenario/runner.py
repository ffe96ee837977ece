"""Runs one scenario in one world: expectations and invariants see each line as it comes; the result is a record."""

from __future__ import annotations

import shlex
import time
from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from brokerctl.check.invariants import INVARIANTS
from brokerctl.check.waits import Waits
from brokerctl.durations import MINUTE, MS
from brokerctl.errors import BrokerctlError, UsageError
from brokerctl.logs import fluxlog
from brokerctl.model.tree import Tree
from brokerctl.records import Line
from brokerctl.report.result import STORY_MAX, Delay, Failure, Result, Told
from brokerctl.scenario import expect
from brokerctl.scenario.expect import Expectations
from brokerctl.scenario.format import Scenario, one_line
from brokerctl.scenario.resolve import horizon_ns, resolve
from brokerctl.scenario.stop import StopClock
from brokerctl.worlds.contract import Resolved, World

WORLDS = ("sim", "live")
# Nobody waits longer for a real run that hangs; virtual time costs nothing.
LIVE_HORIZON_NS = 1 * MINUTE
# Who held a stop up: the longest few, and not who took no time that anybody would notice.
DELAYS_MAX = 3
DELAY_MIN_NS = 10 * MS


def world(name: str) -> World:
    """The world of that name; UsageError if there is none."""
    if name == "sim":
        from brokerctl.worlds.sim.world import SimWorld

        return SimWorld()
    if name == "live":
        from brokerctl.worlds.live.world import LiveWorld

        return LiveWorld()
    raise UsageError(f"unknown world {name!r}; expected {' or '.join(WORLDS)}")


def prepare(scenario: Scenario, policy: str | None = None, sets: Sequence[str] = ()) -> Resolved:
    """Resolve a scenario and build its expectations, so that nothing is run where something can't be."""
    with one_line():
        resolved = resolve(scenario, policy, sets)
        horizon_ns(scenario)
        Expectations(scenario, resolved.topology.hosts)
    return resolved


class _Story:
    """Keeps the end of a run's log, and hands on each entry."""

    def __init__(self, hosts: Sequence[str], tell: Callable[[Told], None] | None) -> None:
        self._hosts = hosts
        self._tell = tell
        self._begun_ns: int | None = None
        self.told: deque[Told] = deque(maxlen=STORY_MAX)
        self.count = 0

    def see(self, line: Line) -> None:
        if self._begun_ns is None:
            self._begun_ns = line.t_ns
        entry = fluxlog.entry(line, self._hosts)
        if entry is not None and entry.level <= fluxlog.INFO:
            told = Told(line.t_ns - self._begun_ns, entry)
            self.told.append(told)
            self.count += 1
            if self._tell is not None:
                self._tell(told)


def run(
    scenario: Scenario,
    world_name: str,
    *,
    policy: str | None = None,
    sets: Sequence[str] = (),
    tell: Callable[[Told], None] | None = None,
    sink: Callable[[Line], None] | None = None,
) -> Result:
    """Run a scenario in a world. `tell` gets each log entry and `sink` each line, as they come."""
    resolved = resolve(scenario, policy, sets)
    where = world(world_name)
    result = _planned(scenario, world_name, policy, sets)
    if reason := unfit(scenario, resolved, where):
        return msgspec.structs.replace(result, status="skipped", reason=reason)
    expectations = Expectations(scenario, resolved.topology.hosts)
    tree = Tree(resolved.topology)
    rules = [make(resolved.settings, tree) for make in INVARIANTS.values()]
    waits, clock, story = Waits(), StopClock(), _Story(resolved.topology.hosts, tell)
    readers: list[Callable[[Line], None]] = [
        expectations.see,
        waits.see,
        clock.see,
        story.see,
        *(rule.see for rule in rules),
    ]
    if sink is not None:
        readers.append(sink)

    def see(line: Line) -> None:
        for reader in readers:
            reader(line)

    limit_ns = horizon_ns(scenario)
    begun_ns = time.monotonic_ns()
    try:
        outcome = where.run(resolved, see, limit_ns if world_name == "sim" else min(limit_ns, LIVE_HORIZON_NS))
    except BrokerctlError as error:
        # The world itself could not go on: nothing was shown about the scenario, and that is no pass.
        return msgspec.structs.replace(
            result, status="failed", failures=(Failure("world", str(error)),), story=tuple(story.told)
        )
    broken = expectations.findings(outcome)
    broken += expect.judge(scenario.file.expect.violates, [one for rule in rules for one in rule.finish()])
    begin_ns = clock.begun_ns or 0
    return msgspec.structs.replace(
        result,
        status="failed" if broken else "passed",
        outcome=outcome.kind,
        exit_code=outcome.exits.get(0),
        stop_ns=clock.stop_ns,
        checks=expectations.checks + len(rules),
        failures=tuple(Failure(one.name, one.text, one.t_ns - begin_ns, one.rank) for one in broken),
        delays=tuple(_delays(waits, clock)),
        story=tuple(story.told),
        untold=story.count - len(story.told),
        elapsed_ns=time.monotonic_ns() - begun_ns,
    )


def _planned(scenario: Scenario, world_name: str, policy: str | None, sets: Sequence[str]) -> Result:
    return Result(
        name=scenario.name,
        path=str(scenario.path),
        about=scenario.file.about,
        world=world_name,
        policy=policy or scenario.file.policy,
        replay=replay_command(scenario, world_name, policy, sets),
    )


def unfit(scenario: Scenario, resolved: Resolved, where: World) -> str:
    """Why a world can't run the scenario, or nothing."""
    if where.name not in scenario.file.worlds:
        return f"the scenario is for {', '.join(scenario.file.worlds) or 'no world'}"
    lacking = sorted(resolved.needs - where.capabilities)
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


def _delays(waits: Waits, clock: StopClock) -> list[Delay]:
    """What held up the stop: what is not over yet, then the longest, which is no longer than the stop itself."""
    delays = []
    for one in waits.culprits():
        action = not one.who.startswith("rank ")
        if one.ended and not action and one.on.endswith(" to stop"):
            continue  # it waited for the stop
        held_ns = one.held_ns if clock.stop_ns is None else min(one.held_ns, clock.stop_ns)
        if held_ns >= DELAY_MIN_NS or not one.ended:
            who = f"{one.who}: {one.on}" if action else f"{one.who} (waits for {one.on})"
            rank = f"rank {one.rank} " if action and one.rank else ""
            delays.append(Delay(rank + who, held_ns, over=one.ended, how=f"rc={one.rc}" if one.rc else ""))
    return delays[:DELAYS_MAX]
