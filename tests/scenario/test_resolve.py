"""From tables to what a world runs: trees, hosts, draws, deeds, and whose word is last."""

import contextlib
import errno
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerctl.durations import MS, S
from brokerctl.model.puppet import Reaction
from brokerctl.records import Asked, Signal
from brokerctl.scenario import format as scenario_format
from brokerctl.scenario import resolve, sets
from brokerctl.worlds.contract import Deliver, Release
from brokerctl.worlds.puppets import FOREVER, Span, part

HEAD = 'about = "x"\n'


@pytest.fixture
def resolved(tmp_path):
    def make(text, **more):
        path = tmp_path / "made.toml"
        path.write_text(HEAD + text)
        return resolve.resolve(scenario_format.load(path), **more)

    return make


@pytest.mark.parametrize(
    ("instance", "parents"),
    [
        ("size = 1", (-1,)),
        ("size = 7", (-1, 0, 0, 1, 1, 2, 2)),
        ("size = 5\ntopology = 'kary:3'", (-1, 0, 0, 0, 1)),
        ("size = 4\ntopology = 'kary:1'", (-1, 0, 1, 2)),
        ("size = 4\ntopology = 'flat'", (-1, 0, 0, 0)),
        ("size = 4\ntopology = 'custom'\nparents = [-1, 0, 1, 1]", (-1, 0, 1, 1)),
        ("size = 4\nhosts = 'n[0-3]'\ntopology = 'custom'\nparents = ['', 'n0', 'n1', 'n0']", (-1, 0, 1, 0)),
    ],
)
def test_a_topology_gives_each_rank_its_parent(resolved, instance, parents):
    assert resolved(f"[instance]\n{instance}").topology.parents == parents


def test_all_ranks_are_on_host_vm_unless_hosts_are_named(resolved):
    assert resolved("[instance]\nsize = 3").topology.hosts == ("vm", "vm", "vm")
    assert resolved("[instance]\nsize = 3\nhosts = 'picl[0-1],adm'").topology.hosts == ("picl0", "picl1", "adm")


@pytest.mark.parametrize(
    ("text", "hosts"),
    [("b,a", ["b", "a"]), ("a,a", ["a", "a"]), ("n[08-10]", ["n08", "n09", "n10"]), ("x[1,3]y,z", ["x1y", "x3y", "z"])],
)
def test_hosts_keep_their_order_and_their_doubles(text, hosts):
    assert sets.host_list(text, 10) == hosts


@given(st.text("ab0123456789[]-,/@ ", max_size=30))
def test_any_text_is_a_host_list_or_a_value_error(text):
    with contextlib.suppress(ValueError):
        assert len(sets.host_list(text, 50)) <= 50


@given(st.text("0123456789[]-,/ ", max_size=30))
def test_any_text_is_a_rank_set_within_the_instance_or_a_value_error(text):
    try:
        ranks = sets.rank_set(text, 50)
    except ValueError:
        return
    assert ranks == sorted(set(ranks))
    assert set(ranks) <= set(range(50))


def test_a_puppet_is_read_with_all_that_it_does(resolved):
    spec = resolved(
        """
        [instance]
        size = 4
        [puppet.p]
        command = "flux queue idle"
        runs = { 1 = "forever", "2-3" = "1s..3s", default = "0.2s" }
        exit = { 1 = "KILL", default = 3 }
        on = { HUP = "ignore", TERM = { after = "1s", exit = 4 }, INT = "die" }
        leaves = 2
        leaves-run = "5s"
        detached = true
        prints = ["a", "b"]
        prints-err = ["c"]
        start = "not-executable"
        """
    ).puppets["p"]
    assert spec.command == "flux queue idle"
    assert spec.runs == {1: FOREVER, 2: Span(S, 3 * S), 3: Span(S, 3 * S), -1: Span(200 * MS, 200 * MS)}
    assert spec.statuses == {1: 9, -1: 3 << 8}
    assert spec.on == {1: Reaction(ignore=True), 15: Reaction(after_ns=S, code=4)}
    assert (spec.leaves, spec.leaves_run, spec.detached) == (2, Span(5 * S, 5 * S), True)
    assert spec.prints == (("out", "a"), ("out", "b"), ("err", "c"))
    assert spec.start_errno == errno.EACCES


def test_a_draw_is_the_same_in_every_world_for_the_same_seed(resolved):
    made = resolved("seed = 7\n[puppet.p]\nruns = '1s..3s'")
    drawn = part(made.puppets["p"], made.seed, 0, 0).runs_ns
    assert drawn == Random("7/p/0/0").randint(S, 3 * S)


def test_a_table_without_default_leaves_the_other_ranks_with_nothing_to_do(resolved):
    made = resolved("[instance]\nsize = 2\n[puppet.p]\nruns = { 1 = '9s' }\nexit = { 1 = 5 }").puppets["p"]
    assert (made.runs[-1], made.statuses[-1]) == (Span(0, 0), 0)


@pytest.mark.parametrize(
    ("do", "deed"),
    [
        ("sigterm", Deliver(1, Signal(15))),
        ("signal HUP", Deliver(1, Signal(1))),
        ("signal SIGUSR1", Deliver(1, Signal(10))),
        ("shutdown", Deliver(1, Asked("shutdown", 1))),
        ("panic", Deliver(1, Asked("panic", 1))),
        ("cleanup-push p", Deliver(1, Asked("cleanup-push", 1, ("echo hi",), "echo hi", "p"))),
        ("release p", Release("p")),
    ],
)
def test_what_a_step_does(resolved, do, deed):
    text = f"[instance]\nsize = 2\n[puppet.p]\ncommand = 'echo hi'\n[[step]]\nat = 'run'\nrank = 1\ndo = '{do}'"
    (step,) = resolved(text).steps
    assert step.deed == deed
    assert step.text == "run"


def test_the_command_line_wins_over_the_file_and_the_file_over_the_policy(resolved):
    text = "policy = 'hardened'\n[attrs]\n'broker.cleanup-timeout' = '7s'"
    assert resolved("policy = 'hardened'").settings.cleanup_timeout_ns == 45 * S
    assert resolved(text).settings.cleanup_timeout_ns == 7 * S
    assert resolved(text, sets=["broker.cleanup-timeout=2s"]).settings.cleanup_timeout_ns == 2 * S
    assert resolved(text).settings.finalize_timeout_ns is not None
    assert resolved(text, policy="flux").settings.finalize_timeout_ns is None
    assert resolved(text, policy="flux").settings.cleanup_timeout_ns == 7 * S


@pytest.mark.parametrize(
    ("text", "needs"),
    [
        ("", set()),
        ("[instance]\nsize = 2", {"ranks"}),
        ("[puppet.p]\nkill = 'uninterruptible'", {"uninterruptible"}),
        ("[[step]]\nat = 'run'\ndo = 'panic'", {"panic"}),
    ],
)
def test_a_scenario_says_what_it_needs_of_a_world(resolved, text, needs):
    assert resolved(text).needs == needs
