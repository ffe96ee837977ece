"""The scenarios that the program brings: each holds in every world that it lists, and tells the same story there."""

import hashlib
from pathlib import Path

import msgspec
import pytest

from brokerctl import trace
from brokerctl.check import replay
from brokerctl.model import jobstore
from brokerctl.model.job import JobSpec
from brokerctl.model.node import Node
from brokerctl.model.tree import Tree
from brokerctl.records import Asked, Booted, Exec, Received, Send, Start, Store
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
    assert replayed(runner.prepare(scenario, sets=sets), first_life(scenario, live)) is None


def first_life(scenario, live):
    """The lines of the first of several lives: in later ones times go on, but not those in what was stored."""
    later = (n for n, line in enumerate(live) if isinstance(line.what, Booted) and line.n)
    return live[: next(later, None)] if scenario.file.run else live


def declared(what):
    """A record with the puppet as the scenario declares it, not as the live world acts it out."""
    if isinstance(what, Start) and what.command.puppet:
        return msgspec.structs.replace(what, command=msgspec.structs.replace(what.command, argv=()))
    if isinstance(what, Send | Received) and isinstance(what.message, Exec):
        message = msgspec.structs.replace(what.message, command=msgspec.structs.replace(what.message.command, argv=()))
        return msgspec.structs.replace(what, message=message)
    if isinstance(what, Asked) and what.what == "submit":
        return msgspec.structs.replace(what, text=msgspec.json.encode(declared_job(decode_job(what.text))).decode())
    if isinstance(what, Store) and what.key == jobstore.KEY:
        kept = jobstore.decode(what.value)
        jobs = [msgspec.structs.replace(job, spec=declared_job(job.spec)) for job in kept.jobs]
        return msgspec.structs.replace(
            what, value=msgspec.json.encode(msgspec.structs.replace(kept, jobs=jobs)).decode()
        )
    return what


decode_job = msgspec.json.Decoder(JobSpec).decode


def declared_job(spec):
    return msgspec.structs.replace(spec, task=msgspec.structs.replace(spec.task, argv=()))


def replayed(resolved, live):
    """The first line of a live trace where a fresh model differs. What acts a puppet out is the live world's own."""
    settings = resolved.settings
    lines = []
    for line in live:
        what = line.what
        if isinstance(what, Start) and not what.command.puppet:
            settings = msgspec.structs.replace(settings, shell=what.command.argv[0])
        lines.append(msgspec.structs.replace(line, what=declared(what)))
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
