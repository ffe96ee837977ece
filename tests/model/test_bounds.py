"""The bounds: the one place that adds timeouts (DESIGN 5)."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from brokerctl.config import FLUX, HARDENED
from brokerctl.durations import S
from brokerctl.model import bounds
from brokerctl.model.tree import Tree, kary
from brokerctl.settings import Rung
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
