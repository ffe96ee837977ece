"""Many ranks: 16,384 of them stop, and what the readers don't want is not made."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brokerctl.durations import S
from brokerctl.model import bounds
from brokerctl.records import Booted, Received
from brokerctl.report import text
from brokerctl.scenario import format as scenario_format
from brokerctl.scenario import runner

FOLDER = Path(__file__).parents[2] / "scenarios"


@pytest.mark.parametrize("name", ["big-stop", "big-stop-fanout2"])
def test_16384_ranks_stop_although_one_in_a_hundred_is_frozen(name):
    told = []
    result = runner.run(scenario_format.load(FOLDER / f"{name}.toml"), "sim", tell=told.append)
    assert result.status == "passed", text.verdict(result)
    assert (result.size, result.unended) == (16384, 163)
    assert result.unchecked == ("well-formed",)
    assert len(told) < 1000, "equal entries are one"
    assert max(len(line) for one in told for line in text.entry(one).split("\n")) < 600


def test_equal_bounds_on_all_levels_break_leaves_to_root(monkeypatch):
    """The canary: bounds that don't nest are seen."""
    monkeypatch.setattr(bounds, "shutdown_ns", lambda *_: 20 * S)
    result = runner.run(scenario_format.load(FOLDER / "shed-deep.toml"), "sim")
    broken = [one.text for one in result.failures if one.name == "leaves-to-root"]
    assert broken == [f"rank {rank} ran rc3 after rank {parent}, its parent, whose bound had ended"
                      for rank, parent in ((2, 0), (5, 2))]  # fmt: skip


def test_a_verdict_is_the_same_whether_a_trace_is_written_or_not():
    for name in ("shed-deep", "lost-router-during-action", "leader-restarts", "half-open-link", "stuck-cleanup"):
        scenario = scenario_format.load(FOLDER / f"{name}.toml")
        lines = []
        one, two = runner.run(scenario, "sim"), runner.run(scenario, "sim", sink=lines.append)
        assert text.story(one) + text.verdict(one) == text.story(two) + text.verdict(two)
        assert {Booted, Received} & {type(line.what) for line in lines} or name == "stuck-cleanup"


def test_only_what_the_readers_want_is_made():
    scenario = scenario_format.load(FOLDER / "shed-deep.toml")
    resolved = runner.prepare(scenario)
    readers = runner._Readers(scenario, resolved, None, None, None, all_lines=False)
    assert readers.dispatch.wants is None, "15 ranks: every line is looked at"
    large = scenario_format.load(FOLDER / "big-stop.toml")
    readers = runner._Readers(large, runner.prepare(large), None, None, None, all_lines=False)
    assert readers.dispatch.wants is not None
    assert Received not in readers.dispatch.wants


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_hardened_whoever_is_frozen_whenever_leaves_go_first_and_bounds_hold(data):
    size = data.draw(st.integers(2, 16))
    parents = [-1, *(data.draw(st.integers(0, rank - 1)) for rank in range(1, size))]
    faults = [
        scenario_format.FaultEntry(
            at=data.draw(st.sampled_from(["run", "shutdown", f"rank {rank} run", f"rank {rank} finalize"])),
            do=data.draw(st.sampled_from(["freeze", "crash"])),
            ranks=str(rank),
        )
        for rank in data.draw(st.sets(st.integers(1, size - 1), max_size=4))
    ]
    shutdown = data.draw(st.sampled_from(["none", "60s", "10m"]))
    runs = data.draw(st.sampled_from(["0s", "0.2s", "0s..3s"]))
    file = scenario_format.ScenarioFile(
        about="drawn",
        policy="hardened",
        instance=scenario_format.Instance(size=size, topology="custom", parents=parents),
        attrs={"broker.shutdown-timeout": shutdown, "broker.finalize-timeout": "20s"},
        puppet={"rc3": scenario_format.PuppetEntry(runs=runs)},
        rc3=[scenario_format.ActionEntry(puppet="rc3")],
        step=[scenario_format.StepEntry(at="run + 1s", do="sigterm")],
        fault=faults,
        expect=scenario_format.Expect(exit=0),
    )
    result = runner.run(scenario_format.Scenario(name="drawn", path=Path("drawn.toml"), file=file), "sim")
    wrong = [one for one in result.failures if one.name != "step"]  # a rank that is lost comes to no state
    assert wrong == [], text.story(result) + text.verdict(result)
