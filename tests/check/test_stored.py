"""What a life of the leader stored is there in the next: traces that break it, and worlds and models that do."""

from pathlib import Path

import msgspec

from brokerctl.check.stored import NothingStoredIsLost
from brokerctl.durations import S
from brokerctl.model import jobstore
from brokerctl.model.job import JobSpec
from brokerctl.model.tree import Tree, flat
from brokerctl.records import Booted, Command, Exit, Line, Moved, Restored, Store
from brokerctl.scenario import format as scenario_format
from brokerctl.scenario import runner
from brokerctl.trace import Topology
from brokerctl.worlds.sim.world import SimWorld
from tests.driver import settings

TREE = Tree(Topology(flat(1), ("n0",)))
SCENARIOS = Path(__file__).parents[2] / "scenarios"
UP = Moved("quorum-full", "quorum", "run", 0)


def jobs(*logs, drained=()):
    """What is stored of jobs; each is a name and its events."""
    kept = [
        jobstore.StoredJob(
            id=f"ƒ{name}",
            spec=JobSpec(task=Command("t"), name=name),
            alloc=[],
            events=[(n, event, {}) for n, event in enumerate(events)],
        )
        for name, *events in logs
    ]
    stored = jobstore.Stored(next=1, jobs=kept, drained=[(rank, "why") for rank in drained])
    return msgspec.json.encode(stored).decode()


def reader(*whats, earlier=None):
    made = NothingStoredIsLost(settings(), TREE)
    made.earlier(earlier or {})
    for n, what in enumerate(whats):
        made.see(Line(n * S, 0, n, ">", what))
    return made


def found(*whats, earlier=None):
    return [finding.text for finding in reader(*whats, earlier=earlier).finish()]


def lives(before, after):
    """A life that stored one thing, and the next, that stores another."""
    return found(Booted(), Restored("jobs", before), UP, Store("jobs", after), earlier={"jobs": before})


def test_a_value_that_was_stored_comes_back():
    assert found(Booted(), Store("k", "v"), Exit(0), Booted(), Restored("k", "v"), UP) == []
    assert found(Booted(), Store("k", "v"), Exit(0), Booted(), UP) == ["k was stored and did not come back"]
    assert found(Booted(), Exit(1), earlier={"k": "v"}) == ["k was stored and did not come back"]
    assert found(Booted(), Restored("k", "w"), UP, earlier={"k": "v"}) == ["k came back other than it was stored"]


def test_the_value_that_was_stored_last_is_the_one():
    stored = (Store("k", "1"), Store("k", "2"))
    assert found(Booted(), *stored, Booted(), Restored("k", "2"), UP) == []
    assert found(Booted(), *stored, Booted(), Restored("k", "1"), UP) == ["k came back other than it was stored"]


def test_a_life_that_was_killed_before_it_ran_is_not_judged():
    assert found(Booted(), Booted(), Restored("k", "v"), UP, earlier={"k": "v"}) == []


def test_a_world_keeps_what_was_stored():
    made = reader(Booted(), Store("k", "v"))
    made.kept({"k": "v"})
    assert made.finish() == []
    made.kept({})
    assert [one.text for one in made.finish()] == ["k was stored, and the world has not kept it"]


def test_a_job_that_was_not_inactive_exists_in_the_next_life():
    kept = jobs(("A", "submit", "alloc"), ("B", "submit", "clean"))
    assert lives(kept, jobs(("A", "submit", "alloc", "start"), ("B", "submit", "clean"))) == []
    assert lives(kept, jobs(("A", "submit", "alloc"))) == [], "of those that are over, the oldest may be forgotten"
    assert lives(kept, jobs(("B", "submit", "clean"))) == ["A was not INACTIVE when it was stored, and is gone"]


def test_an_eventlog_begins_with_what_was_stored_of_it():
    assert lives(jobs(("A", "submit", "alloc")), jobs(("A", "submit", "free"))) == [
        "the eventlog of A does not begin with what was stored of it"
    ]


def test_a_node_that_was_drained_stays_so():
    assert lives(jobs(drained=(1, 2)), jobs(drained=(1, 2, 3))) == []
    assert lives(jobs(drained=(1, 2)), jobs(drained=(1,))) == ["rank 2 was drained when that was stored, and is not"]


def failures(name):
    result = runner.run(scenario_format.load(SCENARIOS / f"{name}.toml"), "sim")
    return [failure.text for failure in result.failures if failure.name == NothingStoredIsLost.NAME]


def test_a_model_that_forgets_is_seen(monkeypatch):
    assert failures("stuck-over-restarts-hardened") == []
    assert failures("stuck-epilog-hardened") == []
    monkeypatch.setattr(jobstore, "restore", lambda _manager, _value: None)
    assert "life 2: j was not INACTIVE when it was stored, and is gone" in failures("stuck-over-restarts-hardened")
    assert failures("stuck-epilog-hardened") == ["life 2: rank 1 was drained when that was stored, and is not"]


def test_a_world_that_forgets_is_seen(monkeypatch):
    honest = SimWorld.run

    def forgetful(world, scenario, *more):
        return msgspec.structs.replace(honest(world, scenario, *more), stored={})

    monkeypatch.setattr(SimWorld, "run", forgetful)
    assert failures("stuck-epilog-hardened") == [
        "life 1: jobs was stored, and the world has not kept it",
        "life 2: jobs was stored, and the world has not kept it",
    ]


RESTARTED_TWICE = """
about = "a leader is killed in its second life before it has stored anything, and started again"
horizon = "1m"
[puppet.task]
runs = "1s"
[[hold]]
name = "h"
[[run]]
[[run.job]]
name = "j"
puppet = "task"
[[run.step]]
at = "j epilog-start + 1s"
do = "sigterm"
[run.expect]
violates = ["starts-finish"]
[[run]]
[[run.fault]]
at = "run + 1s"
do = "crash"
ranks = "0"
[[run.fault]]
at = "run + 2s"
do = "restart"
ranks = "0"
[[run.step]]
at = "run nth 2 + 1s"
do = "sigterm"
[run.expect]
log = ["restart: 1 jobs"]
violates = ["starts-finish"]
"""


def test_a_leader_that_is_killed_before_it_stored_anything_begins_again_with_what_was_stored_before(tmp_path):
    path = tmp_path / "again.toml"
    path.write_text(RESTARTED_TWICE)
    lines = []
    result = runner.run(scenario_format.load(path), "sim", sink=lines.append)
    assert [failure.text for failure in result.failures if failure.name == NothingStoredIsLost.NAME] == []
    assert len([line for line in lines if isinstance(line.what, Restored)]) == 2
    assert len({line.what.value for line in lines if isinstance(line.what, Restored | Store)}) == 1
