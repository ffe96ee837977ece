"""The scenarios of workers: each holds in both worlds, tells the same story there, and replays."""

from pathlib import Path

import pytest

from brokerctl.scenario import format as scenario_format
from brokerctl.scenario import runner
from brokerctl.scenario.compare import first_difference
from tests.scenario.test_scenarios import first_life, replayed, run

FOLDER = Path(__file__).parents[2] / "scenarios" / "workers"
SCENARIOS = [scenario_format.load(path) for path in sorted(FOLDER.glob("*.toml"))]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_a_worker_tells_the_same_story_in_both_worlds_and_it_replays(scenario):
    live = run(scenario, "live")
    assert first_difference(run(scenario, "sim"), live) is None
    assert replayed(runner.prepare(scenario), first_life(scenario, live)) is None
