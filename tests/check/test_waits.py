"""Culprits: what a rank waited for during its stop, how long, and what is not over yet."""

from brokerctl.check.waits import OVER_MAX, Culprit, Waits
from brokerctl.durations import S
from brokerctl.records import Asked, Command, Ended, Event, Exit, Line, Moved, Served, Signal, Start, Waiting


def waits(*entries):
    """After these (seconds, rank, record)."""
    reader = Waits()
    for n, (seconds, rank, what) in enumerate(entries):
        reader.see(Line(seconds * S, rank, n, "<" if isinstance(what, Event) else ">", what))
    return reader


def start(run="cleanup.0"):
    return Start(run, Command("it"))


def ended(run="cleanup.0", rc=0):
    return Ended(run, "it", rc, "Exited", 0)


def moved(old, new):
    return Moved("event", old, new, 0)


def test_what_ended_before_the_stop_held_nobody_up():
    assert waits((0, 0, start("rc1.0")), (9, 0, ended("rc1.0")), (10, 0, Signal(15))).culprits() == []


def test_what_began_before_the_stop_counts_from_the_stop():
    for stop in (Signal(15), Asked("shutdown"), moved("run", "cleanup")):
        reader = waits((0, 0, start("rc2.0")), (10, 0, stop), (12, 0, ended("rc2.0", 129)))
        assert reader.culprits() == [Culprit(0, "rc2.0", "it", 2 * S, ended=True, rc=129)]


def test_what_waited_for_the_stop_held_nobody_up():
    reader = waits(
        (0, 0, Waiting("rank 0", "a signal or a request to stop")),
        (10, 0, Signal(15)),
        (10, 0, moved("run", "cleanup")),
        (10, 0, Served("rank 0", "a signal or a request to stop")),
    )
    assert reader.culprits() == []


def test_a_signal_that_stops_nobody_begins_no_stop():
    assert waits((0, 0, start("rc2.0")), (1, 0, Signal(10)), (9, 0, ended("rc2.0"))).culprits() == []


def test_the_stop_of_one_rank_is_not_that_of_another():
    reader = waits((0, 0, Signal(15)), (0, 1, start("rc1.0")), (9, 1, ended("rc1.0")))
    assert reader.culprits() == []


def test_what_is_not_over_comes_first_and_the_longest_of_the_rest_next():
    reader = waits(
        (0, 0, Signal(15)),
        (0, 0, start("cleanup.0")),
        (5, 0, ended("cleanup.0")),
        (5, 0, start("cleanup.1")),
        (14, 0, ended("cleanup.1")),
        (14, 0, start("cleanup.2")),
        (15, 0, moved("cleanup", "shutdown")),
    )
    assert [(one.who, one.held_ns // S, one.ended) for one in reader.culprits()] == [
        ("cleanup.2", 1, False),
        ("cleanup.1", 9, True),
        ("cleanup.0", 5, True),
    ]


def test_two_waits_of_a_rank_end_one_by_one():
    reader = waits(
        (0, 0, Signal(15)),
        (0, 0, Waiting("rank 0", "2 peers")),
        (0, 0, start("rexec.cleanup.0")),
        (2, 0, ended("rexec.cleanup.0")),
        (5, 0, Served("rank 0", "2 peers")),
    )
    assert [(one.who, one.on, one.held_ns // S) for one in reader.culprits()] == [
        ("rank 0", "2 peers", 5),
        ("rexec.cleanup.0", "it", 2),
    ]


def test_a_rank_that_has_exited_waits_for_nothing():
    assert waits((0, 0, Signal(15)), (0, 0, start()), (9, 0, Exit(1))).culprits() == []


def test_without_a_stop_what_is_waited_for_is_told():
    reader = waits((0, 0, Waiting("rank 0", "quorum")), (9, 1, Waiting("rank 1", "its parent to stop")))
    assert reader.culprits() == [Culprit(0, "rank 0", "quorum", 9 * S, ended=False)]


def test_of_many_only_the_longest_are_kept():
    entries = [(0, 0, Signal(15))]
    for nth in range(5 * OVER_MAX):
        entries += [(nth * 1000, 0, start(f"cleanup.{nth}")), (nth * 1000 + nth + 1, 0, ended(f"cleanup.{nth}"))]
    culprits = waits(*entries).culprits()
    assert len(culprits) == OVER_MAX
    assert culprits[0].who == f"cleanup.{5 * OVER_MAX - 1}"


def test_a_new_life_waits_for_nothing_that_an_earlier_one_has_waited_for():
    killed = [(0, 0, start()), (1, 0, Signal(15)), (1, 0, moved("run", "cleanup"))]
    reader = waits(*killed, (5, 0, moved("load-builtins", "join")), (6, 0, start("rc2.0")), (9, 0, ended("rc2.0")))
    assert reader.culprits() == []
