import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerctl.durations import MINUTE, MS, S
from brokerctl.records.stops import Holding, Limits, Peers
from brokerctl.stop import flux
from tests.stop.recordings import text


def test_the_state_is_told_with_how_long_it_has_lasted_but_not_in_run():
    assert flux.uptime(text("uptime-shutdown")) == flux.Uptime("shutdown", 1750 * MS, 4)
    assert flux.uptime(text("uptime-run")) == flux.Uptime("run", None, 4)
    assert flux.uptime(text("uptime-drained")) == flux.Uptime("run", None, 4)


@pytest.mark.parametrize(
    ("shown", "most_ns"),
    [
        ("0.54s", 545 * MS),
        ("54ms", 54_500_000),
        ("1s", 1050 * MS),
        ("23s", 23_500 * MS),
        ("1.2m", 75 * S),
        ("0s", 50 * MS),
    ],
)
def test_a_state_has_lasted_no_longer_than_two_digits_can_hide(shown, most_ns):
    assert flux.uptime(f" 21:20:58 cleanup {shown},  owner x,  depth 0,  size 1").held_ns == most_ns


@pytest.mark.parametrize("line", ["", "flux: broker.sock: Connection refused", " 21:20 run", "run 1s,  owner x", "\n"])
def test_what_is_no_state_is_none(line):
    assert flux.uptime(line) is None


def test_the_attributes_tell_the_limits_and_what_is_not_set_is_none():
    attrs = flux.attributes(text("lsattr"))
    assert attrs["rank"] == "0"
    assert attrs["broker.rc3_path"] == "flux modprobe rc3"
    assert attrs["parent-uri"] == ""
    assert flux.limits(attrs) == Limits(45 * S, None)
    assert flux.limits({"broker.shutdown-timeout": "5m", "broker.cleanup-timeout": "soon"}) == Limits(None, 5 * MINUTE)


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("Joining Flux instance via tcp://picl0:8050", "join"),
        ("Fetching configuration update from parent", "config-sync"),
        ("Running flux modprobe rc1", "init"),
        ("Waiting for instance quorum", "quorum"),
        ("Running as leader of 2 node Flux instance", "run"),
        ("Running as member of 2 node Flux instance", "run"),
        ("Running flux queue idle --quiet", "cleanup"),
        ("Waiting for overlay peers to shutdown", "shutdown"),
        ("Running flux modprobe rc3", "finalize"),
        ("flux-dump(1) has archived 1200 keys", "finalize"),
        ("Exiting", "exit"),
        ("", ""),
        ("stop: something of ours", ""),
    ],
)
def test_a_status_tells_the_state_where_flux_itself_does_not_answer(status, state):
    assert flux.guess(status, {}) == state


def test_an_rc_of_the_site_s_own_is_known_by_the_attribute():
    attrs = {"broker.rc1_path": "/etc/flux/rc1", "broker.rc3_path": "/etc/flux/rc3"}
    assert [flux.guess(f"Running /etc/flux/{name}", attrs) for name in ("rc1", "rc3", "x")] == [
        "init", "finalize", "cleanup",
    ]  # fmt: skip
    assert flux.archived("flux-dump(1) has archived 1200 keys") == 1200
    assert flux.archived("Running flux modprobe rc3") == 0


# ---- who holds SHUTDOWN: rank 2 is below 1; 1 and 3 are below the leader


def test_a_frozen_leaf_is_to_blame_and_who_has_gone_is_not_waited_for():
    found = flux.peers(flux.overlay(text("overlay-shutdown-rank3-frozen")))
    assert found.text == "1 peer: picl3"
    assert [(one.rank, one.host, one.severs) for one in found.holding] == [(3, "picl3", "")]


def test_a_router_that_waits_for_a_frozen_leaf_is_not_to_blame():
    found = flux.peers(flux.overlay(text("overlay-shutdown-rank2-frozen")))
    assert found.text == "2 peers: picl[1-2]"
    assert [(one.rank, one.severs) for one in found.holding] == [(2, "")]


def test_a_router_that_does_not_answer_is_to_blame_with_all_below_it():
    found = flux.peers(flux.overlay(text("overlay-shutdown-rank1-frozen")))
    assert found.text == "1 peer: picl1"
    assert found.holding == (Holding(1, "picl1", "does not answer (Connection timed out)", "2"),)


PERILOG = (
    '{"name":"perilog.so","procs":'
    '{"ƒ1":{"name":"epilog","active_ranks":"2-3"},"ƒ2":{"active_ranks":"0,7"},"ƒ3":{"active_ranks":""}}}'
)


def test_where_a_prolog_or_epilog_runs_is_told_by_its_plugin():
    assert flux.acting(PERILOG) == {0, 2, 3, 7}
    for nothing in ("", "flux-jobtap: not found", "{}", '{"procs":[]}', '{"procs":{"ƒ1":{}}}', '{"procs":{"ƒ1":7}}'):
        assert flux.acting(nothing) == frozenset()


def test_in_cleanup_only_who_does_not_answer_or_runs_a_prolog_or_epilog_is_to_blame():
    tree = (
        "0 a: full\n├─ 1 b: partial\n│  ├─ 2 c: full\n│  └─ 4 e: Connection timed out\n├─ 3 d: full\n└─ 7 f: lost x\n"
    )
    assert flux.holding_cleanup(flux.overlay(tree), flux.acting(PERILOG)) == (
        Holding(2, "c", "a prolog or epilog runs there"),
        Holding(4, "e", "does not answer (Connection timed out)"),
        Holding(3, "d", "a prolog or epilog runs there"),
    )
    assert flux.holding_cleanup(flux.overlay(text("overlay-full")), frozenset()) == ()
    assert flux.holding_cleanup(flux.overlay(tree), frozenset({1}))[0] == Holding(
        1, "b", "a prolog or epilog runs there", "2,4"
    )


def test_what_a_rank_says_of_itself_can_be_logged():
    (one,) = flux.peers(flux.overlay("0 a: full\n└─ 1 e\x1bvil\x07: Gone\x1bfishing\n")).holding
    assert (one.host, one.status) == ("e?vil?", "does not answer (Gone?fishing)")


def test_nobody_holds_where_all_have_gone():
    lines = "0 a: partial\n├─ 1 b: offline administrative shutdown\n│  └─ 2 c: full\n└─ 3 d: lost lost connection\n"
    assert flux.peers(flux.overlay(lines)) == Peers()
    assert flux.peers([]) == Peers()


def test_the_hosts_of_a_big_instance_fit_in_a_status():
    lines = "0 picl0: full\n" + "".join(f"├─ {n} host{n}x: full\n" for n in range(1, 5000))
    found = flux.peers(flux.overlay(lines))
    assert found.text.startswith("4999 peers: host1x,")
    assert len(found.text) < flux.HOSTS_SHOWN + 20
    assert len(found.holding) == 4999


def test_the_tree_of_a_running_instance_is_read_as_it_stands():
    nodes = flux.overlay(text("overlay-full"))
    assert [(node.depth, node.rank, node.host) for node in nodes] == [
        (0, 0, "picl0"), (1, 1, "picl1"), (2, 2, "picl2"), (1, 3, "picl3"),
    ]  # fmt: skip
    assert [node.rank for node in flux.subtree(nodes, 1)] == [2]


# ---- jobs and housekeeping


def test_jobs_that_run_are_told_with_their_ranks():
    found = flux.jobs(text("job-list"))
    assert [(job.f58, job.name, job.state, sorted(job.on)) for job in found] == [
        ("ƒ2hr17kT", "sleep", 16, [3]), ("ƒ2a8GreK", "sleeper", 16, [0, 1]),
    ]  # fmt: skip
    assert len(flux.jobs(text("job-list-all"))) == 3
    assert flux.jobs("no json\n{}\n" + text("job-list")) == found


def test_housekeeping_is_told_with_where_it_still_runs():
    (one,) = flux.housekeeping(text("stats-job-manager"))
    assert (one.job, one.pending, one.allocated) == ("ƒ2Nn2MXD", "2", "2")
    assert flux.housekeeping("{}") == flux.housekeeping("") == flux.housekeeping('{"housekeeping": 3}') == []


@given(st.text(max_size=200))
def test_no_output_is_a_reason_to_fail(any_text):
    flux.uptime(any_text)
    flux.limits(flux.attributes(any_text))
    flux.peers(flux.overlay(f"0 a: full\n├─ {any_text}"))
    flux.jobs(any_text)
    flux.housekeeping(any_text)
    flux.acting(any_text)
    flux.guess(any_text, {})
