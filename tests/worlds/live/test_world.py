"""The live world: every scenario for it is run with real processes, and tells what the simulator tells."""

import json
import os
import signal
import tempfile
import time

import msgspec
import pytest

from brokerctl import config
from brokerctl.durations import S
from brokerctl.errors import KernelError
from brokerctl.kernel import proc
from brokerctl.model.puppet import Reaction
from brokerctl.records import Asked, Booted, Command, Ended, Exit, Moved, Signal, Start
from brokerctl.scenario import moments
from brokerctl.settings import Action
from brokerctl.trace import Topology
from brokerctl.worlds.contract import Deliver, Resolved, Step
from brokerctl.worlds.live import world as live
from brokerctl.worlds.live.world import LiveWorld
from brokerctl.worlds.puppets import FOREVER, PuppetSpec, Span
from brokerctl.worlds.sim.world import SimWorld

HORIZON_NS = 60 * S


@pytest.fixture(autouse=True)
def _nothing_is_left(tmp_path_factory, monkeypatch):
    """Every run of a test leaves neither a process nor a file."""
    monkeypatch.setenv(proc.COOKIE, f"test{os.getpid()}:world")
    folder = tmp_path_factory.mktemp("w")  # short: a socket has to be named below it
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield
    cookie = f"test{os.getpid()}".encode()
    assert [proc.command(pid) for pid in proc.carriers(cookie)] == []
    assert list(folder.iterdir()) == []


def run(scenario, world=None, horizon_ns=HORIZON_NS):
    """The outcome and the lines of a run."""
    lines = []
    return (world or LiveWorld()).run(scenario, lines.append, horizon_ns), lines


def spec(name="puppet", runs=FOREVER, status=0, **more):
    if not isinstance(runs, Span):
        runs = Span(runs, runs)
    return PuppetSpec(name=name, command=f"the {name}", runs={-1: runs}, statuses={-1: status}, **more)


def scenario(*cleanup, steps=(), policy="hardened", seed=1, others=(), **fields):
    actions = tuple(Action(Command(puppet.command, puppet=puppet.name)) for puppet in cleanup)
    return Resolved(
        name="test",
        settings=config.with_fields(policy, {"cleanup": actions, **fields}),
        topology=Topology(hosts=("picl7",)),
        puppets={puppet.name: puppet for puppet in (*cleanup, *others)},
        steps=tuple(Step(moments.parse(at, 1).trigger(), Deliver(0, event), at) for at, event in steps),
        seed=seed,
    )


TERM = Signal(signal.SIGTERM)


def facts(lines, kind):
    return [line.what for line in lines if isinstance(line.what, kind)]


# ---- steps


def test_a_step_at_a_time_counts_from_the_first_line():
    _, lines = run(scenario(steps=[("1s", TERM)]))
    (at_ns,) = [line.t_ns for line in lines if line.what == TERM]
    assert 1 * S <= at_ns - lines[0].t_ns < 1.5 * S


def test_a_step_after_a_line_counts_from_that_line():
    puppet = spec("slow", runs=3 * S, status=3 << 8)
    made = scenario(puppet, steps=[("run", TERM), ("cleanup.0 start + 1s", Signal(signal.SIGINT))])
    outcome, lines = run(made)
    assert outcome.exits == {0: 129}
    (start_ns,) = [line.t_ns for line in lines if isinstance(line.what, Start)]
    (at_ns,) = [line.t_ns for line in lines if line.what == Signal(signal.SIGINT)]
    assert 1 * S <= at_ns - start_ns < 1.5 * S


def test_a_moment_that_never_comes_is_told_as_undone():
    made = scenario(steps=[("run", TERM), ("cleanup.5 start", TERM), ("50s", TERM)])
    outcome, _ = run(made)
    assert (outcome.kind, outcome.exits, outcome.undone) == ("ended", {0: 0}, ("cleanup.5 start", "50s"))


def test_requests_are_made_over_the_control_socket():
    pushed = spec("pushed", runs=0, status=4 << 8)
    push = Asked("cleanup-push", 1, (pushed.command,), pushed.command, pushed.name)
    made = scenario(spec("last", runs=0), others=[pushed], steps=[("run", push), ("run + 0.5s", Asked("shutdown", 2))])
    outcome, lines = run(made)
    assert outcome.exits == {0: 4}
    assert [(fact.run, fact.command) for fact in facts(lines, Ended)] == [
        ("cleanup.0", "the pushed"),
        ("cleanup.1", "the last"),
    ]


def test_what_cannot_be_done_to_real_processes_is_an_error():
    with pytest.raises(KernelError, match="can't be done to real processes"):
        run(scenario(steps=[("run", Booted())]))


# ---- processes


def test_the_same_draws_are_made_as_in_the_simulator():
    puppet = spec("drawn", runs=Span(0, S // 2))
    made = scenario(puppet, puppet, puppet, steps=[("run", TERM)], seed=7)
    ended = facts(run(made)[1], Ended)
    made = scenario(puppet, puppet, puppet, steps=[("run", TERM)], seed=7)
    simulated = facts(run(made, SimWorld())[1], Ended)
    assert [fact.run for fact in ended] == [fact.run for fact in simulated]
    for real, drawn in zip(ended, simulated, strict=True):
        # It began when its broker learned so, which may be later than it did.
        assert drawn.held_ns - S // 10 <= real.held_ns < drawn.held_ns + 2 * S


def test_the_horizon_ends_everything():
    stubborn = spec("stubborn", on={1: Reaction(ignore=True)}, leaves=2, detached=True)
    began = time.monotonic()
    outcome, lines = run(scenario(stubborn, steps=[("run", TERM)], policy="flux"), horizon_ns=2 * S)
    assert (outcome.kind, outcome.exits) == ("horizon", {})
    assert 2 <= time.monotonic() - began < 10
    assert isinstance(lines[-1].what, Start)


def test_leftovers_of_a_run_that_ended_are_ended_too():
    daemon = spec("daemon", runs=0, leaves=1, detached=True)
    outcome, _ = run(scenario(daemon, steps=[("run", TERM)]))
    assert outcome.exits == {0: 0}


def test_hosts_are_those_of_the_scenario():
    _, lines = run(scenario(steps=[("run", TERM)]))
    assert any("picl7" in json.dumps(msgspec.to_builtins(line)) for line in lines)


def test_a_sink_gets_only_what_it_wants():
    lines = []
    LiveWorld().run(scenario(steps=[("run", TERM)]), lines.append, HORIZON_NS, frozenset({Moved, Exit}))
    assert {type(line.what) for line in lines} == {Moved, Exit}
    assert isinstance(lines[-1].what, Exit)


def test_a_sink_that_fails_leaves_nothing_behind():
    def sink(line):
        if isinstance(line.what, Moved) and line.what.new == "run":
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        LiveWorld().run(scenario(spec(), steps=[("run", TERM)]), sink, HORIZON_NS)


def test_a_broker_that_breaks_down_is_an_error_with_its_last_words(monkeypatch):
    made = scenario(steps=[("run", Signal(signal.SIGKILL))])
    with pytest.raises(KernelError, match=r"the broker broke down \(-9\): <6>broker.info\[0\]: quorum-full"):
        run(made)
    monkeypatch.setattr(live.Stage, "argv", lambda *_: ["/bin/sh", "-c", "echo no config >&2; exit 2"])
    with pytest.raises(KernelError, match=r"the broker broke down \(2\): no config"):
        run(scenario())


def test_a_command_that_is_no_puppet_is_never_run():
    fields = {"rc1": (Action(Command("rm -rf /", ("false",))),)}
    with pytest.raises(KernelError, match="'rm -rf /' is no puppet"):
        run(scenario(**fields))
