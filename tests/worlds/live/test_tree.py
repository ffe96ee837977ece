"""Trees of real brokers: what is killed, frozen or cut tells the same story as in virtual time."""

import os
import signal
import tempfile

import pytest

from brokerctl import config
from brokerctl.check.invariants import INVARIANTS
from brokerctl.durations import S
from brokerctl.kernel import proc
from brokerctl.logs.fluxlog import as_flux_log
from brokerctl.model.tree import Tree, kary
from brokerctl.records import Asked, Command, Ended, Lost, Responsive, Signal, Torpid
from brokerctl.scenario import compare, moments
from brokerctl.settings import Action
from brokerctl.trace import Topology
from brokerctl.worlds.contract import Deliver, Fault, Resolved, Step, needs_of
from brokerctl.worlds.live.world import LiveWorld
from brokerctl.worlds.puppets import FOREVER, PuppetSpec, Span
from brokerctl.worlds.sim.world import SimWorld

HORIZON_NS = 60 * S
TERM = Signal(signal.SIGTERM)


@pytest.fixture(autouse=True)
def _nothing_is_left(tmp_path_factory, monkeypatch):
    monkeypatch.setenv(proc.COOKIE, f"test{os.getpid()}:tree")
    folder = tmp_path_factory.mktemp("t")  # short: a socket has to be named below it
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield
    assert [proc.command(pid) for pid in proc.carriers(f"test{os.getpid()}".encode())] == []
    assert list(folder.iterdir()) == []


class Tale:
    """A scenario that is told anew for each world."""

    def __init__(self, size, *steps, policy="hardened", actions=(), **fields):
        self.size, self.steps, self.policy, self.fields = size, steps, policy, fields
        self.puppets = {}
        for name, runs, options in actions:
            span = FOREVER if runs is None else Span(runs, runs)
            self.puppets[name] = PuppetSpec(name=name, command=f"the {name}", runs={-1: span}, statuses={-1: 0})
            self.fields.setdefault(options.pop("of", "cleanup"), ())
            kind = next(key for key in ("cleanup", "rc1", "rc3") if key in self.fields)
            self.fields[kind] += (Action(Command(f"the {name}", puppet=name), **options),)

    def resolved(self):
        topology = Topology(kary(self.size, 2), tuple(f"n{rank}" for rank in range(self.size)))
        steps = tuple(Step(moments.parse(at, self.size).trigger(), deed, at) for at, deed in self.steps)
        return Resolved(
            name="tale",
            settings=config.with_fields(self.policy, self.fields),
            topology=topology,
            puppets=self.puppets,
            steps=steps,
        )

    def run(self, world):
        lines = []
        return world.run(self.resolved(), lines.append, HORIZON_NS), lines

    def same(self):
        """Told the same by both worlds; what the live one said."""
        outcome, lines = self.run(LiveWorld())
        simulated, sim_lines = self.run(SimWorld())
        assert compare.first_difference(sim_lines, lines) is None
        assert (outcome.kind, outcome.exits, outcome.undone) == (simulated.kind, simulated.exits, simulated.undone)
        return outcome, lines


def crash(*ranks):
    return Fault("crash", ranks)


def broken(tale, lines):
    settings = tale.resolved().settings
    readers = [make(settings, Tree(tale.resolved().topology)) for make in INVARIANTS.values()]
    for line in lines:
        for reader in readers:
            reader.see(line)
    return [finding.text for reader in readers for finding in reader.finish()]


def log(lines, level=3):
    hosts = [f"n{rank}" for rank in range(8)]
    texts = [as_flux_log(line, hosts) for line in lines]
    return [text[3:] for text in texts if text is not None and int(text[1]) <= level]


def test_a_clean_stop_is_told_the_same_by_both_worlds():
    tale = Tale(7, ("run + 0.5s", Deliver(0, TERM)), actions=[("all", S // 10, {"ranks": "all"})])
    outcome, lines = tale.same()
    assert outcome.exits == dict.fromkeys(range(7), 0)
    assert broken(tale, lines) == []


def test_kill_9_of_a_leaf_is_told_the_same():
    outcome, lines = Tale(3, ("run + 0.5s", crash(2)), ("run + 1.5s", Deliver(0, TERM))).same()
    assert outcome.exits == {0: 0, 1: 0}
    assert log(lines)[:2] == ["overlay.err[0]: n2 (rank 2) failed", "broker.err[0]: dead to Flux: n2 (rank 2)"]


def test_kill_9_of_a_leaf_under_flux_is_told_the_same():
    tale = Tale(
        3, ("run + 0.5s", crash(2)), ("run + 3s", Deliver(0, TERM)), policy="flux", heartbeat_period_ns=1 * S,
        online_batch_ns=0, unload_takes_ns=0,
    )  # fmt: skip
    outcome, _ = tale.same()
    assert outcome.exits == {0: 0, 1: 0}


def test_kill_9_of_a_router_is_told_the_same():
    outcome, lines = Tale(7, ("run + 0.5s", crash(1)), ("run + 2.5s", Deliver(0, TERM))).same()
    assert outcome.exits == {0: 0, 2: 0, 3: 1, 4: 1, 5: 0, 6: 0}
    assert "overlay.err[0]: n1 (rank 1) failed and severed contact with 2 other nodes" in log(lines)


def test_kill_9_of_a_router_while_an_action_runs_everywhere_is_told_the_same():
    tale = Tale(
        7, ("run + 0.5s", Deliver(0, TERM)), ("cleanup + 1.5s", crash(1)), cleanup_timeout_ns=4 * S,
        actions=[("stuck", None, {"ranks": "all"})],
    )  # fmt: skip
    outcome, lines = tale.same()
    assert outcome.exits[0] == 129
    assert "broker.err[0]: cleanup.0: n[1,3-4] (rank 1,3-4): No route to host (rc=68)" in log(lines)
    assert broken(tale, lines) == []


def test_kill_9_of_the_leader_is_told_the_same():
    outcome, lines = Tale(3, ("run + 0.5s", crash(0))).same()
    assert outcome.exits == {1: 1, 2: 1}
    assert {line.what for line in lines if isinstance(line.what, Lost)} == {Lost(0, "connection lost")}


def test_kill_9_of_a_router_that_is_not_up_yet_is_told_the_same():
    tale = Tale(7, ("0s", crash(1)), ("quorum + 2s", Deliver(0, TERM)))
    outcome, _ = tale.run(LiveWorld())
    simulated, _ = tale.run(SimWorld())
    assert (outcome.kind, outcome.exits) == (simulated.kind, simulated.exits)


def test_an_orphan_under_flux_notices_after_its_heartbeat_timeout():
    tale = Tale(
        3, ("run + 0.5s", crash(0)), policy="flux", heartbeat_timeout_ns=2 * S, heartbeat_period_ns=S // 2,
        unload_takes_ns=0,
    )  # fmt: skip
    outcome, lines = tale.same()
    assert outcome.exits == {1: 1, 2: 1}
    assert {line.what for line in lines if isinstance(line.what, Lost)} == {Lost(0, "no heartbeat for 2s")}


def test_a_leaf_that_is_frozen_is_shed_and_told_the_same():
    tale = Tale(
        3, ("run + 0.5s", Fault("freeze", (2,))), ("run + 1s", Deliver(0, TERM)), shutdown_slack_ns=2 * S,
    )  # fmt: skip
    outcome, lines = tale.same()
    assert (outcome.kind, outcome.exits) == ("ended", {0: 0, 1: 0})
    assert "overlay.err[0]: n2 (rank 2) is shed: it holds the shutdown" in log(lines)


def test_a_leaf_that_is_silent_for_too_long_is_named_and_told_the_same():
    tale = Tale(
        3, ("run + 0.5s", Fault("freeze", (2,))), ("run + 4.5s", Fault("thaw", (2,))), ("run + 5.5s", Deliver(0, TERM)),
        torpid_max_ns=2 * S, heartbeat_period_ns=S // 2,
    )  # fmt: skip
    _, lines = tale.same()
    kinds = [type(line.what) for line in lines if isinstance(line.what, Torpid | Responsive)]
    assert kinds == [Torpid, Responsive]


def test_a_short_freeze_is_noticed_by_nobody():
    tale = Tale(
        3, ("run + 0.5s", Fault("freeze", (2,))), ("run + 1s", Fault("thaw", (2,))), ("run + 2s", Deliver(0, TERM))
    )
    outcome, lines = tale.same()
    assert outcome.exits == {0: 0, 1: 0, 2: 0}
    assert log(lines) == []


def test_a_leader_that_freezes_for_too_long_is_lost():
    tale = Tale(
        2, ("run + 0.5s", Fault("freeze", (0,))), heartbeat_timeout_ns=2 * S, heartbeat_period_ns=S // 2,
    )  # fmt: skip
    outcome, _ = tale.same()
    assert (outcome.kind, outcome.exits) == ("stuck", {1: 1})


def test_a_link_that_is_cut_is_told_the_same():
    outcome, lines = Tale(7, ("run + 0.5s", Fault("cut", (1,))), ("run + 2.5s", Deliver(0, TERM))).same()
    assert outcome.exits == {0: 0, 2: 0, 5: 0, 6: 0, 1: 1, 3: 0, 4: 0}
    assert "overlay.crit[1]: disconnecting: connection lost" in log(lines)


def test_a_disconnected_leaf_is_told_the_same():
    outcome, _ = Tale(
        3, ("run + 0.5s", Deliver(0, Asked("disconnect", 1, ("2",)))), ("run + 1.5s", Deliver(0, TERM))
    ).same()
    assert outcome.exits == {0: 0, 1: 0, 2: 1}


def test_actions_of_a_rank_are_drawn_for_that_rank():
    tale = Tale(3, ("run + 1s", Deliver(0, TERM)))
    spans, codes = {-1: Span(0, 0)}, {-1: 0, 2: 7 << 8}
    tale.puppets["own"] = PuppetSpec(name="own", command="own", runs=spans, statuses=codes)
    tale.fields["rc3"] = (Action(Command("own", puppet="own")),)
    outcome, lines = tale.same()
    assert outcome.exits == {0: 0, 1: 0, 2: 7}
    assert {line.rank: line.what.rc for line in lines if isinstance(line.what, Ended)} == {0: 0, 1: 0, 2: 7}


def test_what_no_real_link_can_do_is_a_capability_that_is_missing():
    needs = needs_of([Fault("half-open", (1,)), Fault("slow", (1,), 5), Fault("restart", (1,)), Fault("crash", (1,))])
    assert needs == {"half-open", "slow-links", "restart"}
    assert not needs & LiveWorld.capabilities
    assert needs <= SimWorld.capabilities
