"""Every fact that a scenario shows holds in the model, in the same words twice, and would be missed if it did not."""

import re
from pathlib import Path

import pytest

from brokerctl import trace
from brokerctl.check import replay
from brokerctl.report import text
from brokerctl.scenario import format as scenario_format
from brokerctl.scenario import runner
from tests.model.unit.inversions import INVERSIONS

FOLDER = Path(__file__).parents[3] / "scenarios" / "systemd"
SCENARIOS = [scenario_format.load(path) for path in sorted(FOLDER.glob("*.toml"))]
FACT = re.compile(r"(SYSTEMD|FLUX)\.md ((\d{1,3}|P\d{1,2}|letter [a-q])(, )?)+(, FLUX\.md \d{1,3})?")


def name(scenario):
    return scenario.name


@pytest.mark.parametrize("scenario", SCENARIOS, ids=name)
def test_a_fact_holds_and_its_trace_replays(scenario):
    lines = []
    result = runner.run(scenario, "sim", sink=lines.append)
    assert result.status == "passed", "\n" + text.story(result) + text.verdict(result)
    resolved = runner.prepare(scenario)
    head = trace.header(resolved.settings, resolved.topology, unit=resolved.unit.settings)
    assert replay.first_difference(head, lines) is None


@pytest.mark.parametrize("scenario", SCENARIOS, ids=name)
def test_a_fact_that_is_turned_round_in_the_model_is_noticed(scenario, monkeypatch):
    INVERSIONS[scenario.name](monkeypatch)
    result = runner.run(scenario, "sim")
    assert result.status == "failed"


def test_each_scenario_has_its_inversion_and_names_its_fact():
    assert {scenario.name for scenario in SCENARIOS} == INVERSIONS.keys()
    for scenario in SCENARIOS:
        assert FACT.fullmatch(scenario.file.fact), scenario.file.fact


def test_the_facts_of_a_stop_are_all_there():
    """What of A to G needs a real file system, its users, or a sender's credentials is not for a model."""
    not_modelled = {*range(19, 26), *range(49, 55)}
    told = {int(number) for one in SCENARIOS for number in re.findall(r"\d+", one.file.fact.split("FLUX")[0])}
    assert {fact for fact in range(1, 90) if fact not in not_modelled} <= told
