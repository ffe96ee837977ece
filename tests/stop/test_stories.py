"""Flux with the wrapper in front, in virtual time: what it saves, and what is lost without it (scenarios/stop)."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from brokerctl import trace
from brokerctl.check.replay import first_difference
from brokerctl.durations import MS, S
from brokerctl.records import WRAPPER, Ended, Exit, KillHolder
from brokerctl.report import text
from brokerctl.scenario import format as scenario_format
from brokerctl.scenario import runner

FOLDER = Path(__file__).parents[2] / "scenarios" / "stop"
SCENARIOS = [scenario_format.load(path) for path in sorted(FOLDER.glob("*.toml"))]
BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}
WITHOUT = {name for name in BY_NAME if name == "hole-p" or name.endswith("-without")}

CODES = {
    "killed": set(),
    "site-actions": {1},
    "stuck-cleanup": {3},
    "frozen-follower": {3},
    "hole-p-with": {3},
    "stuck-epilog-shed-in-cleanup": {3},
    "stalled-finalize": {75},
}


def run(scenario):
    lines = []
    sink = None if scenario.name == "many-ranks" else lines.append
    result = runner.run(scenario, "sim", sink=sink)
    assert result.status == "passed", "\n" + text.story(result) + text.verdict(result)
    return lines


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_a_stop_with_the_wrapper_holds_in_virtual_time_and_replays(scenario):
    lines = run(scenario)
    if not lines:
        return
    exits = {line.what.code for line in lines if line.rank == WRAPPER and isinstance(line.what, Exit)}
    assert exits == (set() if scenario.name in WITHOUT else CODES.get(scenario.name, {0}))
    resolved = runner.prepare(scenario)
    head = trace.header(resolved.settings, resolved.topology, unit=resolved.unit.settings, stop=resolved.unit.stop)
    assert first_difference(head, lines) is None


def test_for_each_stop_that_is_lost_without_the_wrapper_there_is_one_that_is_saved_with_it():
    pairs = {"hole-p": "hole-p-with"} | {name: name.removesuffix("-without") for name in WITHOUT if name != "hole-p"}
    for without, with_it in pairs.items():
        assert not saved(run(BY_NAME[without])), without
        assert saved(run(BY_NAME[with_it])), with_it


def saved(lines) -> bool:
    return any(
        isinstance(line.what, Ended) and line.rank == 0 and line.what.run == "rc3.0" and line.what.rc == 0
        for line in lines
    )


@pytest.mark.parametrize("deadline_ns", [50 * S, 52 * S, 57 * S])
def test_a_sweep_of_cleanups_end_around_each_deadline_cuts_no_rc3(deadline_ns):
    """The action is over just then, after it has ignored everything until then."""
    scenario = BY_NAME["stuck-cleanup"]
    killed = 0
    for off_ns in range(-500 * MS, 501 * MS, 30 * MS):
        puppets = {**scenario.file.puppet}
        puppets["stubborn"] = msgspec.structs.replace(puppets["stubborn"], runs=f"{(deadline_ns + off_ns) / S:.3f}s")
        file = msgspec.structs.replace(scenario.file, puppet=puppets, expect=type(scenario.file.expect)())
        lines = []
        runner.run(msgspec.structs.replace(scenario, file=file), "sim", sink=lines.append)
        assert saved(lines), off_ns
        killed += any(isinstance(line.what, KillHolder) for line in lines)
    assert (killed > 0) is (deadline_ns >= 50 * S)
