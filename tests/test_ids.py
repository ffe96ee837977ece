"""Rank sets and host lists are written so that others read the same ranks and hosts from them."""

from __future__ import annotations

import pytest
from ClusterShell.NodeSet import NodeSet
from ClusterShell.RangeSet import RangeSet
from hypothesis import given
from hypothesis import strategies as st

from brokerctl.ids import hostlist, idset


@pytest.mark.parametrize(
    ("ids", "text"),
    [((), ""), ((3,), "3"), ((0, 1, 2), "0-2"), ((5, 2, 0, 1, 1), "0-2,5"), ((0, 1), "0-1"), ((1, 3), "1,3")],
)
def test_an_idset_is_written_as_flux_logs_it(ids, text):
    assert idset(ids) == text
    assert idset(iter(ids)) == text


@pytest.mark.parametrize(
    ("hosts", "text"),
    [
        ((), ""),
        (("vm",), "vm"),
        (("vm", "vm"), "vm,vm"),
        (("picl0", "picl1", "picl2", "picl7", "login"), "picl[0-2,7],login"),
        (("picl1", "picl0"), "picl[1,0]"),
        (("picl0", "picl0"), "picl[0,0]"),
        (("n8", "n9", "n10"), "n[8-10]"),
        (("n08", "n09", "n10"), "n[08-10]"),
        (("n098", "n099", "n100"), "n[098-100]"),
        (("n99", "n100"), "n[99-100]"),
        (("n09", "n10", "n100"), "n[09-10],n100"),
        (("n1", "n01"), "n1,n01"),
        (("a1", "b2"), "a1,b2"),
        (("a-1b",), "a-1b"),
        (("n0", "n1", "m", "n2"), "n[0-1],m,n2"),
        (("n" + 5000 * "1", "n" + 5000 * "2"), "n" + 5000 * "1" + ",n" + 5000 * "2"),
    ],
)
def test_a_hostlist_keeps_the_order_and_the_padding_of_its_hosts(hosts, text):
    assert hostlist(hosts) == text


@given(st.sets(st.integers(0, 200), min_size=1))
def test_clustershell_reads_the_same_ranks(ids):
    assert set(map(int, RangeSet(idset(ids)))) == ids


host = st.builds(
    lambda prefix, number, width: f"{prefix}{number:0{width}d}",
    st.sampled_from(["n", "picl", "rack-7-", "a.b"]),
    st.integers(0, 120),
    st.integers(1, 4),
) | st.sampled_from(["vm", "login", "x0y"])


@given(st.lists(host, max_size=20))
def test_clustershell_reads_the_same_hosts(hosts):
    assert set(NodeSet(hostlist(hosts))) == set(hosts)


@given(st.lists(st.integers(0, 300), unique=True, min_size=1).map(sorted))
def test_sorted_hosts_of_one_kind_are_one_group_with_the_ranges_of_their_ranks(numbers):
    text = hostlist([f"n{number}" for number in numbers])
    assert text == (f"n[{idset(numbers)}]" if len(numbers) > 1 else f"n{numbers[0]}")
