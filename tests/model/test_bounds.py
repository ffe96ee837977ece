"""The bounds: the one place that adds timeouts."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from brokerctl.config import FLUX, HARDENED
from brokerctl.durations import S
from brokerctl.model import bounds
from brokerctl.model.lifecycle import State
from brokerctl.model.tree import Tree, kary
from brokerctl.settings import Rung, Settings, StopSettings
from brokerctl.trace import Topology
from tests.driver import action, settings

ONE, RC3 = (action("one"),), (action("rc3"),)


def tree(size, fanout):
    return Tree(Topology(kary(size, fanout), ("vm",) * size))


def test_flux_promises_nothing_where_one_hangup_is_all():
    made = settings(cleanup=ONE, rc3=RC3, cleanup_timeout_ns=45 * S)
    assert bounds.ladder_ns(made) is None
    assert bounds.cleanup_ns(made, signalled=True) is None
    assert bounds.worst_case(made, tree(1, 2)) is None


def test_hardened_cleanup_is_budget_plus_ladder_plus_the_slices_of_essential_actions():
    made = settings(
        "hardened", cleanup=(*ONE, action("a", essential=True), action("b", essential=True, timeout_ns=3 * S))
    )
    assert bounds.ladder_ns(made) == 12 * S
    expected = 45 + 12 + (10 + 12) + (3 + 12)
    assert bounds.cleanup_ns(made, signalled=True) == expected * S + bounds.SLACK_NS
    assert bounds.cleanup_ns(made, signalled=False) is None, "a request waits"


def test_actions_that_all_have_timeouts_bound_a_request_too():
    made = settings("hardened", cleanup=(action("a", timeout_ns=2 * S), action("b", timeout_ns=3 * S)))
    expected = 2 + 12 + 1 + 3 + 12 + 1
    assert bounds.cleanup_ns(made, signalled=False) == expected * S + bounds.SLACK_NS


def test_the_worst_case_is_the_sum_of_the_states_of_a_stop():
    made = settings("hardened", cleanup=ONE, rc3=RC3)
    states = (45 + 12) + 0 + (300 + 12) + 0 + 60
    assert bounds.worst_case(made, tree(1, 2)) == states * S + 5 * bounds.SLACK_NS


@given(st.integers(2, 200), st.integers(1, 16), st.none() | st.integers(1, 3600))
def test_a_parents_bound_exceeds_its_childs_shutdown_and_finalize(size, fanout, timeout_s):
    made = msgspec.structs.replace(HARDENED, rc3=RC3)
    shape = tree(size, fanout)
    if timeout_s is not None:
        made = msgspec.structs.replace(made, shutdown_timeout_ns=timeout_s * S)
    for rank in range(1, size):
        parent_ns = bounds.shutdown_ns(made, shape, shape.parents[rank])
        child_ns = bounds.shutdown_ns(made, shape, rank)
        assert parent_ns is not None
        assert child_ns is not None
        if timeout_s is None:
            assert parent_ns > child_ns + bounds.finalize_ns(made, shape, rank, bounded=True)
        else:
            assert parent_ns > child_ns


def test_the_flux_leader_alone_has_the_shutdown_timeout():
    made = msgspec.structs.replace(FLUX, shutdown_timeout_ns=300 * S)
    shape = tree(7, 2)
    assert bounds.shutdown_ns(made, shape, 0) == 300 * S
    assert bounds.shutdown_ns(made, shape, 1) is None


@given(st.lists(st.integers(0, 100), min_size=1, max_size=5))
def test_a_ladders_bound_is_the_sum_of_its_rungs(waits):
    made = msgspec.structs.replace(HARDENED, ladder=tuple(Rung(15, wait) for wait in waits))
    assert bounds.ladder_ns(made) == sum(waits)


def in_seconds(made, shape, rank, *, signalled=True):
    """The bound of each state that has one."""
    found = {state: bounds.state_ns(state, made, shape, rank, signalled=signalled) for state in State}
    return {str(state): bound_ns / S for state, bound_ns in found.items() if bound_ns is not None}


def test_every_state_of_every_level_has_the_bound_of_the_table():
    made, shape = settings("hardened", cleanup=ONE, rc3=RC3), tree(7, 2)
    rc3 = 300 + 12 + 1
    leader = {"config-sync": 61, "cleanup": 58, "shutdown": 2 * (rc3 + 10) + 1, "finalize": rc3, "goodbye": 1}
    router = {"config-sync": 61, "cleanup": 1, "shutdown": rc3 + 10 + 1, "finalize": rc3, "goodbye": 61}
    assert in_seconds(made, shape, 0) == {**leader, "unload-builtins": 61}
    assert in_seconds(made, shape, 1) == {**router, "unload-builtins": 61}
    assert in_seconds(made, shape, 6) == {**router, "shutdown": 1, "unload-builtins": 61}


def test_a_request_bounds_neither_the_cleanup_nor_the_leaders_rc3():
    made, shape = settings("hardened", cleanup=ONE, rc3=RC3), tree(7, 2)
    assert {"cleanup", "finalize"}.isdisjoint(in_seconds(made, shape, 0, signalled=False))
    assert in_seconds(made, shape, 1, signalled=False)["finalize"] == 300 + 12 + 1


def test_a_state_with_nothing_to_run_lasts_no_longer_than_a_world_is_slow():
    made = settings("hardened")
    assert bounds.cleanup_ns(made, signalled=False) == bounds.SLACK_NS
    assert bounds.finalize_ns(made, tree(1, 2), 0, bounded=False) == bounds.SLACK_NS


def test_under_a_shutdown_timeout_each_level_has_its_share_and_rc3_fits_into_it():
    shape = tree(7, 2)  # three levels
    made = settings("hardened", rc3=RC3, shutdown_timeout_ns=300 * S)
    assert [bounds.shutdown_ns(made, shape, rank) for rank in (0, 1, 6)] == [300 * S, 200 * S, 0]
    assert bounds.finalize_budget_ns(made, shape, 6) == (100 - 10 - 12) * S, "a share less slack and ladder"
    assert bounds.finalize_budget_ns(made, shape, 0) == 300 * S, "the leader's rc3 comes after it"
    short = msgspec.structs.replace(made, shutdown_timeout_ns=30 * S)
    assert bounds.finalize_budget_ns(short, shape, 6) == 5 * S, "half of the share is rc3's own"
    strict = msgspec.structs.replace(made, finalize_timeout_ns=3 * S)
    assert bounds.finalize_budget_ns(strict, shape, 6) == 3 * S, "never more than it has anyway"


def test_finalize_of_a_follower_is_promised_within_its_share_of_a_shutdown_timeout():
    made, shape = settings("hardened", rc3=RC3, shutdown_timeout_ns=300 * S), tree(7, 2)
    expected = (100 - 10 - 12) + 12
    for rank in (1, 6):
        bound_ns = bounds.state_ns(State.FINALIZE, made, shape, rank, signalled=False)
        assert bound_ns == expected * S + bounds.SLACK_NS
    leader_ns = bounds.state_ns(State.FINALIZE, made, shape, 0, signalled=True)
    assert leader_ns == (300 + 12) * S + bounds.SLACK_NS


@given(st.integers(1, 10**12), st.integers(2, 30), st.integers(1, 4))
def test_shares_of_a_shutdown_timeout_are_whole_nanoseconds(timeout_ns, size, fanout):
    made, shape = settings("hardened", rc3=RC3, shutdown_timeout_ns=timeout_ns), tree(size, fanout)
    for rank in range(size):
        assert isinstance(bounds.shutdown_ns(made, shape, rank), int)
        assert isinstance(bounds.finalize_budget_ns(made, shape, rank), int)


def test_where_rc3_has_no_bound_no_level_above_it_has_one():
    made, shape = settings("hardened", rc3=RC3, finalize_timeout_ns=None), tree(7, 2)
    assert [bounds.shutdown_ns(made, shape, rank) for rank in (0, 1, 6)] == [None, None, 0]


def test_without_slack_for_levels_a_followers_rc3_has_its_own_budget():
    made = msgspec.structs.replace(FLUX, rc3=RC3, shutdown_timeout_ns=300 * S, finalize_timeout_ns=7 * S)
    assert bounds.finalize_budget_ns(made, tree(7, 2), 6) == 7 * S


def test_answers_of_other_ranks_need_their_way_back():
    here = settings("hardened", cleanup=ONE)
    there = settings("hardened", cleanup=(action("one", ranks="all"),))
    difference_ns = bounds.cleanup_ns(there, signalled=True) - bounds.cleanup_ns(here, signalled=True)
    assert difference_ns == bounds.REMOTE_SLACK_NS


def test_actions_own_timeouts_bound_the_list_where_they_are_shorter_than_its_budget():
    made = settings("hardened", cleanup=(action("a", timeout_ns=2 * S),))
    assert bounds.cleanup_ns(made, signalled=True) == (2 + 12 + 1) * S + bounds.SLACK_NS


def test_the_end_of_rc2_counts_in_the_worst_case():
    without, with_rc2 = settings("hardened", cleanup=ONE), settings("hardened", cleanup=ONE, rc2=ONE)
    shape = tree(1, 2)
    assert bounds.worst_case(with_rc2, shape) - bounds.worst_case(without, shape) == 12 * S


# ---- the wrapper's


def test_the_wrapper_asks_in_vain_for_its_patience_and_one_question_more():
    stop = StopSettings(ask_patience_ns=5 * S, ask_timeout_ns=2 * S)
    assert bounds.stop_asking_ns(stop) == 7 * S + bounds.SLACK_NS


def test_site_actions_have_their_timeout_a_ladder_the_slices_of_essential_ones_and_a_second_look_at_main():
    stop = StopSettings(actions=(*ONE, action("vital", essential=True)), actions_timeout_ns=30 * S)
    asking_ns = bounds.stop_asking_ns(stop)
    assert bounds.stop_actions_ns(stop) == (30 + 12 + (10 + 12)) * S + asking_ns
    assert bounds.stop_actions_ns(StopSettings(actions_timeout_ns=30 * S)) == 0, "none, and nothing to wait for"
    endless = msgspec.structs.replace(stop, ladder=(Rung(1, None),))
    assert bounds.stop_actions_ns(endless) is None


def test_cleanup_of_main_lasts_as_long_as_main_says_else_as_configured_and_its_holders_a_ladder_more():
    stop = StopSettings(cleanup_timeout_ns=20 * S, holders_after_ns=4 * S)
    assert bounds.stop_cleanup_ns(stop, 45 * S) == (45 + 4 + 12) * S + bounds.SLACK_NS
    assert bounds.stop_cleanup_ns(stop, None) == (20 + 4 + 12) * S + bounds.SLACK_NS
    assert bounds.stop_cleanup_ns(StopSettings(), None) is None


def test_a_rank_is_shed_so_long_before_shutdown_timeout_that_shedding_can_still_help():
    stop = StopSettings(shed_after_ns=60 * S)
    after = {limit_s: bounds.shed_after_ns(stop, limit_s * S) / S for limit_s in (1, 5, 10, 30, 66, 67, 300)}
    assert after == {1: 0, 5: 4, 10: 9, 30: 27, 66: 59.4, 67: 60, 300: 60}
    assert bounds.shed_after_ns(stop, None) == 60 * S
    assert bounds.shed_after_ns(StopSettings(shed_after_ns=None), 300 * S) is None


@given(st.integers(0, 10**12), st.integers(0, 10**12))
def test_shedding_comes_in_whole_nanoseconds_and_never_after_shutdown_timeout(after_ns, limit_ns):
    shed_ns = bounds.shed_after_ns(StopSettings(shed_after_ns=after_ns), limit_ns)
    assert isinstance(shed_ns, int)
    assert 0 <= shed_ns <= max(0, limit_ns - S)


def test_the_worst_case_of_a_wrapped_stop_is_the_sum_of_its_parts_and_finalize_is_none_of_them():
    stop, main = StopSettings(actions=ONE), Settings()
    parts = {
        "asking": 5 + 2 + 1,
        "actions": 10 + 12 + (5 + 2 + 1),
        "cleanup": 45 + 5 + 12 + 1,
        "shutdown": 300 + 1,
        "goodbye and unload": 60 + 60 + 2,
    }
    worst_ns = bounds.stop_worst_case(stop, main, cleanup_timeout_ns=45 * S, shutdown_timeout_ns=300 * S)
    assert worst_ns == sum(parts.values()) * S
    assert bounds.stop_worst_case(stop, main, cleanup_timeout_ns=None, shutdown_timeout_ns=300 * S) is None
    assert bounds.stop_worst_case(stop, main, cleanup_timeout_ns=45 * S, shutdown_timeout_ns=None) is None
