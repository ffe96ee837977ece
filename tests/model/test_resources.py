"""Cores, nodes and who has them."""

from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from brokerctl.model.job import Job, JobSpec
from brokerctl.model.resources import Resources
from brokerctl.records import Command, Drain
from tests.driver import settings

CORES = 4
TASK = Command("task")


def made(size):
    facts = []
    tree = SimpleNamespace(size=size)
    resources = Resources(SimpleNamespace(settings=settings(cores=CORES), tree=tree, emit=facts.append))
    resources.up(range(size))
    return resources, facts


def job(name, **spec):
    return Job(name, JobSpec(task=TASK, **spec))


SPECS = st.fixed_dictionaries({"nodes": st.integers(1, 4), "cores": st.none() | st.integers(1, CORES)})
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), SPECS),
        st.tuples(st.just("free"), st.integers(0, 9)),
        st.tuples(st.just("drain"), st.integers(0, 5)),
        st.tuples(st.just("down"), st.integers(0, 5)),
        st.tuples(st.just("up"), st.integers(0, 5)),
    ),
    max_size=40,
)


@given(STEPS)
def test_no_core_has_two_owners_and_nobody_gets_a_node_that_is_down_or_drained(steps):
    resources, _ = made(6)
    owners, jobs, down, drained = {}, [], set(), set()
    for nth, (what, value) in enumerate(steps):
        if what == "submit":
            one = job(str(nth), **value)
            found = resources.find(one.spec)
            if found is None:
                continue
            assert len(found) == value["nodes"]
            assert not (down | drained) & set(found)
            for rank, cores in found.items():
                assert len(cores) == (value["cores"] or CORES)
                for core in cores:
                    assert owners.setdefault((rank, core), one.id) == one.id
            one.alloc = found
            resources.allocate(one)
            jobs.append(one)
        elif what == "free" and value < len(jobs):
            resources.free(jobs[value], jobs[value].ranks)
            resources.free(jobs[value], jobs[value].ranks)  # twice is once
            owners = {key: owner for key, owner in owners.items() if owner != jobs[value].id}
        elif what == "drain":
            resources.drain([value], "why")
            drained.add(value)
        elif what == "down":
            resources.down([value])
            down.add(value)
        elif what == "up":
            resources.up([value])
            down.discard(value)
    usable = [rank for rank in range(6) if rank not in down | drained and not any(r == rank for r, _ in owners)]
    whole = resources.find(JobSpec(task=TASK, nodes=max(1, len(usable))))
    assert (whole is None) == (not usable)


def test_a_drained_node_keeps_its_first_reason():
    resources, facts = made(3)
    resources.drain([1], "one")
    resources.drain([1, 2], "two")
    assert facts == [Drain((1,), "one"), Drain((2,), "two")]
    assert resources.drained == {1: "one", 2: "two"}


def test_an_allocation_is_summed_up_as_the_scheduler_does():
    resources, _ = made(3)
    one = job("x", nodes=3)
    one.alloc = resources.find(one.spec)
    assert resources.summary(one) == "rank[0-2]/core[0-3]"
    one.alloc = {1: (2,)}
    assert resources.summary(one) == "rank1/core2"
