"""From a scenario to what a world runs: everything decided, no text left to interpret.

Errors are ScenarioError, `FILE: key.path: what; expected …`; nothing has been run then.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from brokerctl import config, durations, stoptable, workertable
from brokerctl.errors import ConfigError, ScenarioError
from brokerctl.ids import idset
from brokerctl.records import Asked, Command, Signal, Systemctl
from brokerctl.scenario import faults, jobs, moments, puppets, tree, unit, unit_steps
from brokerctl.scenario.format import ActionEntry, Scenario, StepEntry
from brokerctl.scenario.sets import rank_set
from brokerctl.settings import ACTIONS_MAX, Action, Worker
from brokerctl.worlds.contract import Capability, Deed, Deliver, Release, Resolved, Step, UnitSpec, needs_of
from brokerctl.worlds.puppets import PuppetSpec

# What a broker handles (FLUX.md 33); it does not notice the others, or dies of them.
_SIGNALS = ("HUP", "INT", "QUIT", "TERM", "ALRM", "USR1", "USR2", "CONT", "PIPE")
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_RANK = re.compile(r"0|[1-9][0-9]{0,8}")
_DEEDS = (
    "sigterm, signal NAME, shutdown, disconnect RANK, cleanup-push PUPPET, release PUPPET, panic, systemctl VERB, "
    f"kill WHOM SIGNAL, {jobs.DEEDS}"
)


def resolve(
    scenario: Scenario, policy: str | None = None, sets: Sequence[str] = (), *, real_time: bool = False
) -> Resolved:
    """The scenario under a policy (its own, if None) and `-S` assignments; in `real_time`, `[live]` counts.

    To be called anew for every run: the triggers of its steps keep state.
    """
    file, where = scenario.file, str(scenario.path)
    size = file.instance.size
    for name in file.puppet:
        if not _NAME.fullmatch(name):
            raise ScenarioError(f"{where}: puppet: {name!r} is no name; expected letters, digits, '-', '_' and '.'")
    specs = {name: puppets.spec(name, entry, size, f"{where}: puppet.{name}") for name, entry in file.puppet.items()}
    try:
        fields: dict[str, Any] = config.attributes(file.attrs, where)
        live = config.attributes(file.live.attrs, f"{where}: live")
    except ConfigError as error:
        raise ScenarioError(str(error)) from None
    if real_time:
        fields.update(live)
    for name, entries in _lists(scenario):
        if len(entries) > ACTIONS_MAX:
            raise ScenarioError(f"{where}: {name}: {len(entries)} actions; expected at most {ACTIONS_MAX}")
        fields[name] = tuple(
            _action(entry, specs, size, f"{where}: {name}[{index}]") for index, entry in enumerate(entries)
        )
    fields["workers"] = _workers(scenario, specs, where)
    fields.update(jobs.settings(file, lambda name, at: _puppet(name, specs, at), where))
    # What the command line says is not the file's fault: a ConfigError of these two stays one.
    fields.update(config.assignments(sets))
    settings = config.with_fields(policy or file.policy, fields)
    topology = tree.topology(file.instance, f"{where}: instance")
    names = scenario.jobs()
    steps = jobs.steps(scenario, lambda name, at: _puppet(name, specs, at), size)
    _no_unit(scenario)
    for index, entry in enumerate(file.step):
        steps.append(_step(entry, index, specs, size, f"{where}: step[{index}]", names))
    steps = _numbered(steps)
    for index, fault in enumerate(file.fault):
        steps += faults.steps(fault, index, topology, file.seed, f"{where}: fault[{index}]", names)
    return Resolved(
        name=scenario.name,
        settings=settings,
        topology=topology,
        puppets=specs,
        steps=tuple(steps),
        seed=file.seed,
        needs=_needs(size, specs, steps, has_jobs=bool(names)) | ({"unit"} if file.unit is not None else frozenset()),
        restored=scenario.restored,
        unit=None if file.unit is None else _unit(scenario, specs, where),
    )


def horizon_ns(scenario: Scenario) -> int:
    """When a run that does not end is ended."""
    return puppets.finite(scenario.file.horizon, f"{scenario.path}: horizon")


def _lists(scenario: Scenario) -> list[tuple[str, list[ActionEntry]]]:
    file = scenario.file
    rc2 = [] if file.rc2 is None else [file.rc2]
    return [("rc1", file.rc1), ("rc2", rc2), ("cleanup", file.cleanup), ("rc3", file.rc3)]


def _action(entry: ActionEntry, specs: dict[str, PuppetSpec], size: int, where: str) -> Action:
    spec = _puppet(entry.puppet, specs, f"{where}.puppet")
    try:
        timeout_ns = None if entry.timeout is None else durations.parse(entry.timeout)
    except ValueError as error:
        raise ScenarioError(f"{where}.timeout: {error}") from None
    ranks = entry.ranks.strip()
    if ranks not in {"", "all"}:
        try:
            ranks = idset(rank_set(ranks, size))
        except ValueError as error:
            raise ScenarioError(f"{where}.ranks: {error}, or all") from None
    return Action(Command(spec.command, puppet=spec.name), timeout_ns, entry.essential, ranks)


def _workers(scenario: Scenario, specs: dict[str, PuppetSpec], where: str) -> tuple[Worker, ...]:
    entries = scenario.file.worker
    try:
        workertable.check(entries, where)
        made = []
        for index, entry in enumerate(entries):
            at = f"{where}: worker[{index}]"
            spec = _puppet(entry.puppet, specs, f"{at}.puppet")
            made.append(workertable.worker(entry, Command(spec.command, puppet=spec.name), at))
    except ConfigError as error:
        raise ScenarioError(str(error)) from None
    return tuple(made)


def _puppet(name: str, specs: dict[str, PuppetSpec], where: str) -> PuppetSpec:
    if name not in specs:
        known = ", ".join(specs) or "none"
        raise ScenarioError(f"{where}: unknown puppet {name!r}; known are {known}")
    return specs[name]


# ---- steps -----------------------------------------------------------------------------------------


def _step(entry: StepEntry, index: int, specs: dict[str, PuppetSpec], size: int, where: str, names: list[str]) -> Step:
    moment = moments.of_step(entry.at, size, f"{where}.at", names)
    if entry.rank >= size:
        raise ScenarioError(f"{where}.rank: {entry.rank} is out of range; expected less than {size}")
    # Each request has a reply of its own; 0 would ask for no answer, and a refusal could not be seen.
    words = entry.do.split()
    if words[:1] and words[0] in jobs.ABOUT_JOBS:
        return Step(moment.trigger(), jobs.deed(words, index + 1, names, f"{where}.do"), entry.at)
    if unit_steps.is_about_unit(words):
        return Step(moment.trigger(), unit_steps.deed(words, index + 1, f"{where}.do"), entry.at)
    deed = _deed(entry.do, entry.rank, index + 1, specs, f"{where}.do")
    if entry.do.split()[:1] == ["disconnect"] and int(entry.do.split()[1]) >= size:
        raise ScenarioError(f"{where}.do: rank {entry.do.split()[1]} is out of range; expected less than {size}")
    return Step(moment.trigger(), deed, entry.at)


def _numbered(steps: list[Step]) -> list[Step]:
    """The clients of the service manager are numbered from 1 in the order of the file; 0 has started the unit."""
    found, client = [], 0
    for step in steps:
        deed = step.deed
        if isinstance(deed, Deliver) and isinstance(deed.event, Systemctl):
            client += 1
            deed = Deliver(deed.rank, msgspec.structs.replace(deed.event, client=client))
            step = msgspec.structs.replace(step, deed=deed)  # noqa: PLW2901
        found.append(step)
    return found


def _unit(scenario: Scenario, specs: dict[str, PuppetSpec], where: str) -> UnitSpec:
    """The unit, and what its wrapper is told."""
    file = scenario.file
    assert file.unit is not None
    made = unit.spec(file.unit, scenario.path, specs)
    if file.stop is None:
        return made
    if not any(unit.WRAPPER in line.command.text for line in made.settings.exec_stop):
        raise ScenarioError(f"{where}: stop: no wrapper reads it; expected {unit.WRAPPER!r} in unit.exec-stop")
    actions = []
    for index, entry in enumerate(file.stop.actions):
        at = f"{where}: stop.actions[{index}]"
        if entry.ranks:
            raise ScenarioError(f"{at}.ranks: a site action runs beside the leader; expected no ranks")
        if entry.puppet in specs and specs[entry.puppet].asks:
            raise ScenarioError(f"{at}.puppet: {entry.puppet} asks its broker; a site action has none")
        actions.append(_action(entry, specs, file.instance.size, at))
    try:
        return msgspec.structs.replace(made, stop=stoptable.settings(file.stop, tuple(actions), f"{where}: stop."))
    except ConfigError as error:
        raise ScenarioError(str(error)) from None


def _no_unit(scenario: Scenario) -> None:
    """ScenarioError where a step is of a unit that is not there."""
    file, where = scenario.file, scenario.path
    if file.unit is not None:
        return
    if file.stop is not None:
        raise ScenarioError(f"{where}: stop: there is no unit; expected [unit] in the file")
    for index, entry in enumerate(file.step):
        if unit_steps.is_about_unit(entry.do.split()) or entry.at.split()[:1] == ["unit"]:
            raise ScenarioError(f"{where}: step[{index}]: there is no unit; expected [unit] in the file")


def _deed(text: str, rank: int, reply: int, specs: dict[str, PuppetSpec], where: str) -> Deed:
    match text.split():
        case ["sigterm"]:
            return Deliver(rank, Signal(config.signal_number("TERM")))
        case ["signal", name]:
            return Deliver(rank, Signal(_signal(name, where)))
        case ["shutdown" | "panic" as what]:
            return Deliver(rank, Asked(what, reply))
        case ["disconnect", number] if _RANK.fullmatch(number):
            return Deliver(rank, Asked("disconnect", reply, (number,)))
        case ["cleanup-push", name]:
            spec = _puppet(name, specs, where)
            return Deliver(rank, Asked("cleanup-push", reply, (spec.command,), spec.command, spec.name))
        case ["release", name]:
            return Release(_puppet(name, specs, where).name)
    raise ScenarioError(f"{where}: {text!r} can't be done; expected {_DEEDS}")


def _signal(name: str, where: str) -> int:
    word = name.upper().removeprefix("SIG")
    if word not in _SIGNALS:
        raise ScenarioError(f"{where}: no broker handles {name}; expected one of {', '.join(_SIGNALS)}")
    return config.signal_number(word)


def _needs(size: int, specs: dict[str, PuppetSpec], steps: list[Step], *, has_jobs: bool) -> frozenset[Capability]:
    needs: set[Capability] = set(needs_of(step.deed for step in steps))
    if has_jobs or any(spec.asks and spec.asks[0] not in puppets.UNIT_ASKED for spec in specs.values()):
        needs.add("jobs")
    if size > 1:
        needs.add("ranks")
    if any(spec.uninterruptible for spec in specs.values()):
        needs.add("uninterruptible")
    return frozenset(needs)
