"""Each invariant of jobs can fail: a trace that breaks it, beside one that doesn't."""

import pytest

from brokerctl.check.invariants import INVARIANTS
from brokerctl.durations import S
from brokerctl.model.tree import Tree, flat
from brokerctl.records import (
    Allocated,
    Booted,
    Command,
    Drain,
    Ended,
    Exit,
    Freed,
    JobEvent,
    Line,
    Log,
    Served,
    Service,
    Start,
    Waiting,
)
from brokerctl.settings import NodeService, Perilog
from brokerctl.trace import Topology
from tests.driver import settings

TREE = Tree(Topology(flat(4), ("n0", "n1", "n2", "n3")))
EPILOG = Perilog(command=Command("epilog"), per_rank=True)


def found(name, *whats, made=None):
    """The findings; each entry is a fact of rank 0, or (rank, fact)."""
    reader = INVARIANTS[name](made or settings(epilog=EPILOG), TREE)
    for n, what in enumerate(whats):
        rank, what = what if isinstance(what, tuple) else (0, what)  # noqa: PLW2901
        reader.see(Line(n * S, rank, n, ">", what))
    return [finding.text for finding in reader.finish()]


def event(job, name, **context):
    return JobEvent(f"ƒ{job}", job, name, context)


def given(job, *ranks, cores=(0, 1)):
    return Allocated(f"ƒ{job}", ranks, (cores,) * len(ranks))


def ran(job, what, rank):
    run = f"job.ƒ{job}.{what}"
    return (rank, Start(run, Command(what))), (rank, Ended(run, what, 0, "Exited", 0))


A, B = event("A", "submit"), event("B", "submit")


def test_one_job_a_core():
    good = (A, B, given("A", 1, cores=(0,)), given("B", 1, cores=(1,)), Freed("ƒA", (1,)), given("B", 2))
    assert found("one-job-a-core", *good) == []
    assert found("one-job-a-core", A, B, given("A", 1), given("B", 1, cores=(1,))) == [
        "core 1 of rank 1 was given to B; it is A's"
    ]


def test_epilogs_apart():
    task, epilog = ran("A", "task", 1), ran("A", "epilog", 1)
    assert found("epilogs-apart", A, B, *task, *epilog, given("B", 1)) == []
    assert found("epilogs-apart", A, B, *task, given("B", 1)) == ["rank 1 was given to B without an epilog of A"]
    assert found("epilogs-apart", A, B, *task, Drain((1,), "why"), given("B", 1)) == []
    assert found("epilogs-apart", A, B, epilog[0], given("B", 1)) == ["rank 1 was given to B during the epilog of A"]
    assert found("epilogs-apart", A, B, epilog[0], ran("B", "epilog", 1)[0]) == [
        "the epilog of B began on rank 1 during that of A"
    ]
    assert found("epilogs-apart", A, B, *task, given("B", 1), made=settings()) == [], "nobody asked for epilogs"


def test_jobs_in_order():
    good = (event("A", "alloc"), event("A", "free"), event("A", "clean"))
    assert found("jobs-in-order", *good) == []
    assert found("jobs-in-order", event("A", "clean")) == [], "it never had anything"
    assert found("jobs-in-order", good[0], good[2]) == ["A was clean before what it had was freed"]
    assert found("jobs-in-order", *good, event("A", "exception", severity=0)) == [
        "A had an event 'exception' after it was clean"
    ]


@pytest.mark.parametrize("phase", ["prolog", "epilog"])
def test_starts_finish(phase):
    start = event("A", f"{phase}-start", description="x")
    finish = event("A", f"{phase}-finish", description="x")
    assert found("starts-finish", start, finish, Exit(0)) == []
    assert found("starts-finish", start, Exit(0)) == [f"the broker ended without {phase}-finish of x of A"]
    told = Log("job-manager", 4, "ƒA: left in CLEANUP")
    assert found("starts-finish", start, told, Exit(0)) == []
    assert found("starts-finish", event("A", "start"), event("A", "finish", status=0), Exit(0)) == []
    assert found("starts-finish", event("A", "start"), Exit(0)) == ["the broker ended without finish of its tasks of A"]


def test_drained_are_spared():
    assert found("drained-are-spared", A, given("A", 1), Drain((1,), "why")) == []
    assert found("drained-are-spared", A, Drain((1, 2), "why"), given("A", 1, 3)) == [
        "A was given rank 1, which is drained"
    ]
    assert found("drained-are-spared", Drain((1,), "why"), given("A", 1)) == [], "it has it from an earlier life"


def test_releases_add_up():
    free = event("A", "free")
    assert found("releases-add-up", A, given("A", 1, 2), free, Freed("ƒA", (1,)), Freed("ƒA", (2,))) == []
    assert found("releases-add-up", A, given("A", 1), free, Freed("ƒA", (1,)), Freed("ƒA", (1,))) == [
        "A gave back rank 1, which it had not"
    ]
    assert found("releases-add-up", A, given("A", 1), Freed("ƒA", (1,))) == ["A gave back rank 1 before its free"]


def test_quiet_services():
    made = settings(services=(NodeService(name="mountd", active=True, quiet=True), NodeService(name="other")))
    start, finish = event("A", "start"), event("A", "finish", status=0)
    off, on = Service("mountd", (1, 2), active=False, by="x"), Service("mountd", (1, 2), active=True, by="y")
    assert found("quiet-services", given("A", 1, 2), off, start, finish, on, made=made) == []
    assert found("quiet-services", A, given("A", 1, 2), start, made=made) == [
        "mountd was active on n[1-2] (rank 1-2) while A ran"
    ]
    assert found("quiet-services", A, given("A", 1), off, start, on, made=made) == [
        "mountd was active on n1 (rank 1) while A ran"
    ]


def test_no_deadlock():
    chain = (Waiting("a", "b"), Waiting("b", "c"), Waiting("b", "d"))
    assert found("no-deadlock", *chain) == []
    assert found("no-deadlock", *chain, Waiting("d", "a")) == ["d waits for a; a waits for b; b waits for d"]
    assert found("no-deadlock", *chain, Served("b", "d"), Waiting("d", "a")) == []
    assert found("no-deadlock", Waiting("a", "a")) == ["a waits for a"]


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("one-job-a-core", (A, given("A", 1)), (B, given("B", 1))),
        ("epilogs-apart", (A, *ran("A", "task", 1)), (B, given("B", 1))),
        ("epilogs-apart", (A, ran("A", "epilog", 1)[0]), (B, given("B", 1))),
        ("jobs-in-order", (event("A", "clean"),), (A,)),
        ("jobs-in-order", (event("A", "alloc"),), (A, event("A", "clean"))),
        ("starts-finish", (event("A", "start"),), (Exit(0),)),
        ("drained-are-spared", (Drain((1,), "why"),), (A, given("A", 1))),
        ("releases-add-up", (A,), (given("A", 1), Freed("ƒA", (1,)))),
    ],
)
def test_each_life_of_the_leader_is_judged_by_itself(name, before, after):
    assert found(name, *before, *after) != []
    assert found(name, *before, Booted(), *after) == []
    assert found(name, *before, (1, Booted()), *after) != [], "a follower's life is none of the leader"


def test_quiet_services_are_as_they_were_declared_when_a_life_of_the_leader_begins():
    made = settings(services=(NodeService(name="mountd", active=False, quiet=True),))
    on = Service("mountd", (1,), active=True, by="x")
    assert found("quiet-services", on, given("A", 1), event("A", "start"), made=made) != []
    assert found("quiet-services", on, Booted(), given("A", 1), event("A", "start"), made=made) == []
