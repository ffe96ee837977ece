"""The scenarios that the program brings: each holds in every world that it lists, and tells the same story there."""

import hashlib
from pathlib import Path

import msgspec
import pytest

from brokerctl import trace
from brokerctl.check import replay
from brokerctl.model.node import Node
from brokerctl.model.tree import Tree
from brokerctl.records import Start
from brokerctl.report import text
from brokerctl.scenario import format as scenario_format
from brokerctl.scenario import runner
from brokerctl.scenario.compare import first_difference

FOLDER = Path(__file__).parents[2] / "scenarios"
# A large instance is told by its own tests: the others look at every line, several times.
LARGE = {"big-stop", "big-stop-fanout2"}
SCENARIOS = [scenario_format.load(path) for path in sorted(FOLDER.glob("*.toml")) if path.stem not in LARGE]
LIVE = [scenario for scenario in SCENARIOS if "live" in scenario.file.worlds]


def run(scenario, world, **more):
    lines = []
    result = runner.run(scenario, world, sink=lines.append, **more)
    assert result.status == "passed", "\n" + text.story(result) + text.verdict(result)
    return lines


def name(scenario):
    return scenario.name


@pytest.mark.parametrize("scenario", SCENARIOS, ids=name)
def test_a_scenario_holds_in_virtual_time(scenario):
    run(scenario, "sim")


@pytest.mark.parametrize("scenario", LIVE, ids=name)
def test_a_scenario_tells_the_same_with_real_processes(scenario):
    live = run(scenario, "live")
    sets = [f"{name}={value}" for name, value in scenario.file.live.attrs.items()]
    assert first_difference(run(scenario, "sim", sets=sets), live) is None
    assert replayed(runner.prepare(scenario, sets=sets), live) is None


def replayed(resolved, live):
    """The first line of a live trace where a fresh model differs. What acts a puppet out is the live world's own."""
    settings = resolved.settings
    lines = []
    for line in live:
        if isinstance(line.what, Start):
            command = line.what.command
            if command.puppet:
                start = Start(line.what.run, msgspec.structs.replace(command, argv=()))
                line = msgspec.structs.replace(line, what=start)  # noqa: PLW2901
            else:
                settings = msgspec.structs.replace(settings, shell=command.argv[0])
        lines.append(line)
    return replay.first_difference(trace.header(settings, resolved.topology), lines)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=name)
def test_the_same_seed_gives_the_same_trace_to_the_byte(scenario):
    digests = {hashlib.sha256(msgspec.json.encode(run(scenario, "sim"))).hexdigest() for _ in range(2)}
    assert len(digests) == 1


@pytest.mark.parametrize("policy", ["flux", "hardened"])
@pytest.mark.parametrize("timeout", ["45s", "2s"])
def test_the_demo_holds_under_each_policy_and_timeout(policy, timeout):
    demo = scenario_format.load(FOLDER / "stuck-cleanup.toml")
    run(demo, "sim", policy=policy, sets=[f"broker.cleanup-timeout={timeout}"])


def test_the_demo_names_the_culprit_how_long_it_held_the_stop_up_and_the_code():
    result = runner.run(scenario_format.load(FOLDER / "stuck-cleanup.toml"), "sim")
    verdict = text.verdict(result)
    assert "exit code 129, 45s after the stop began" in verdict
    assert "held up by cleanup.3: flux queue idle --quiet for 44s: rc=129" in verdict


def test_a_broken_model_is_seen(monkeypatch):
    """The canary: a broker whose timers never fire must fail a scenario that a timeout ends."""
    arm = Node.arm

    def deaf(node, timer, *words, **more):
        if timer != "cleanup-timeout":
            arm(node, timer, *words, **more)

    monkeypatch.setattr(Node, "arm", deaf)
    result = runner.run(scenario_format.load(FOLDER / "stuck-cleanup.toml"), "sim")
    assert result.status == "failed"
    assert result.outcome == "stuck"
    assert {"expect.outcome", "expect.exit", "bounds-held"} <= {failure.name for failure in result.failures}
    assert "held up by cleanup.3: flux queue idle --quiet: not over yet" in text.verdict(result)


def test_a_world_that_lacks_something_skips_and_says_so(tmp_path):
    path = tmp_path / "two.toml"
    path.write_text('about = "x"\nhorizon = "10s"\n[[step]]\nat = "run"\ndo = "panic"\n')
    result = runner.run(scenario_format.load(path), "live")
    assert (result.status, result.reason) == ("skipped", "world live lacks panic")
    path.write_text('about = "x"\nworlds = ["live"]\n')
    result = runner.run(scenario_format.load(path), "sim")
    assert (result.status, result.reason) == ("skipped", "the scenario is for live")


def test_a_run_that_goes_on_is_ended_at_its_horizon(tmp_path):
    path = tmp_path / "long.toml"
    path.write_text(
        'about = "x"\nhorizon = "10m"\nrc2 = { puppet = "p" }\n[puppet.p]\nruns = "2h"\n[expect]\noutcome = "horizon"\n'
    )
    result = runner.run(scenario_format.load(path), "sim")
    assert (result.status, result.outcome) == ("passed", "horizon")


def test_a_large_tree_is_resolved_and_run():
    made = Tree(runner.prepare(_tree(1000)).topology)
    assert made.size == 1000
    result = runner.run(_tree(1000), "sim")
    assert result.status == "passed", text.verdict(result)


def _tree(size):
    demo = scenario_format.load(FOLDER / "rc3-fails.toml")
    instance = scenario_format.Instance(size=size, topology="kary:16")
    return msgspec.structs.replace(demo, file=msgspec.structs.replace(demo.file, instance=instance))
