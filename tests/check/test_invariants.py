"""Each invariant can fail: a trace that breaks it, beside one that doesn't."""

import pytest

from brokerctl.check.invariants import INVARIANTS
from brokerctl.durations import S
from brokerctl.model.tree import Tree
from brokerctl.records import Asked, Booted, Command, Ended, Exit, Fired, Hangup, Kill, Line, Lost, Moved, Signal, Start
from brokerctl.trace import Topology
from tests.driver import action, settings


def found(name, made, *whats):
    """The findings on a trace of rank 0: each entry is an event or effect, or a time in seconds."""
    reader, t_ns, n = INVARIANTS[name](made, Tree(Topology())), 0, 0
    for what in whats:
        if isinstance(what, int):
            t_ns = what * S
            continue
        direction = "<" if isinstance(what, Signal | Fired | Asked) else ">"
        reader.see(Line(t_ns, 0, n, direction, what))
        n += 1
    return [finding.text for finding in reader.finish()]


def moved(old, new):
    return Moved("event", old, new, 0)


ONE = (action("one"),)
STOP = (moved("quorum", "run"), Signal(15), moved("run", "cleanup"))


def test_bounds_held():
    made = settings("hardened", cleanup=ONE, cleanup_timeout_ns=2 * S)
    assert found("bounds-held", made, *STOP, 14, moved("cleanup", "shutdown"), moved("shutdown", "finalize")) == [
        "finalize of rank 0 never ended; expected at most 1.0s"
    ]
    late = found("bounds-held", made, *STOP, 16, moved("cleanup", "shutdown"), Exit(0))
    assert late == ["cleanup of rank 0 lasted 16s; expected at most 15s"]


def test_bounds_held_counts_flux_limits_as_promises():
    made = settings(cleanup=ONE, cleanup_timeout_ns=2 * S)
    assert found("bounds-held", made, *STOP, 2, moved("cleanup", "shutdown"), Exit(0)) == []
    assert found("bounds-held", made, *STOP, 12, moved("cleanup", "shutdown"), Exit(0)) == [
        "cleanup of rank 0 lasted 12s; expected at most 3.0s"
    ]


def test_bounds_held_counts_from_a_signal_that_came_later():
    made = settings("hardened", cleanup=ONE)
    requested = (moved("quorum", "run"), Asked("shutdown"), moved("run", "cleanup"))
    assert found("bounds-held", made, *requested, 1000, moved("cleanup", "shutdown"), Exit(0)) == []
    assert found("bounds-held", made, *requested, 1000, Signal(15), 1058, moved("cleanup", "shutdown"), Exit(0)) == []
    assert found("bounds-held", made, *requested, 1000, Signal(15), 1059, moved("cleanup", "shutdown"), Exit(0)) == [
        "cleanup of rank 0 lasted 59s; expected at most 58s"
    ]


def ended(run, rc):
    return Ended(run, "command", rc, "Exited", 0)


def test_honest_exit():
    assert found("honest-exit", settings(), ended("cleanup.0", 5), Exit(5)) == []
    assert found("honest-exit", settings(), ended("cleanup.0", 5), Exit(0)) == [
        "rank 0 exited with 0 although cleanup.0 ended with 5"
    ]


def start(run, text="one"):
    return Start(run, Command(text))


def test_starts_end():
    assert found("starts-end", settings(), start("rc3.0"), ended("rc3.0", 0), Exit(0)) == []
    assert found("starts-end", settings(), start("rc3.0"), Exit(0)) == ["rank 0 exited while rc3.0 had not ended"]


@pytest.mark.parametrize("cause", [Fired("cleanup-timeout"), Signal(15)])
def test_nothing_after_abort(cause):
    made = settings(cleanup=(*ONE, action("save", essential=True)))
    abort = (start("cleanup.0"), cause, Kill("cleanup.0", 1, "group"), ended("cleanup.0", 129))
    assert found("nothing-after-abort", made, *abort, start("cleanup.1", "save"), start("rc3.0")) == []
    assert found("nothing-after-abort", made, *abort, start("cleanup.1")) == [
        "cleanup.1 of rank 0 was started after cleanup was aborted"
    ]


def test_an_actions_own_timeout_is_no_abort_of_the_list():
    own = (start("cleanup.0"), Fired("action cleanup.0"), Kill("cleanup.0", 1, "all"), ended("cleanup.0", 129))
    assert found("nothing-after-abort", settings(), *own, start("cleanup.1")) == []


def test_well_formed():
    def texts(*lines):
        reader = INVARIANTS["well-formed"](settings(), Tree(Topology()))
        for line in lines:
            reader.see(line)
        return [finding.text for finding in reader.finish()]

    one, two = Line(5, 0, 0, ">", Exit(0)), Line(4, 0, 2, "<", Signal(15))
    assert texts(one) == []
    assert texts(one, two) == [
        "line 2 of rank 0; expected number 1",
        "time of rank 0 went back at line 2",
        "line 2 of rank 0 came after its exit",
    ]


# ---- leaves to root


TREE = Tree(Topology((-1, 0, 0), ("n0", "n1", "n2")))


def early(*entries):
    """The findings of leaves-to-root on (rank, record) of a leader with two children."""
    reader = INVARIANTS["leaves-to-root"](settings(), TREE)
    for n, (rank, what) in enumerate(entries):
        reader.see(Line(n, rank, n, "<" if isinstance(what, Lost | Fired) else ">", what))
    return [finding.text for finding in reader.finish()]


JOINED = [(1, moved("join", "config-sync")), (2, moved("join", "config-sync"))]
GONE = [(1, moved("finalize", "goodbye")), (2, moved("finalize", "goodbye"))]
RC3 = (0, moved("shutdown", "finalize"))


def test_leaves_to_root():
    assert early(*JOINED, *GONE, RC3) == []
    assert early(*JOINED, GONE[0], RC3) == ["rank 0 ran rc3 before n2 (rank 2) had said goodbye"]
    assert early(*JOINED, RC3, *GONE) == ["rank 0 ran rc3 before n[1-2] (rank 1-2) had said goodbye"]


def test_leaves_to_root_asks_nobody_who_never_joined():
    assert early(JOINED[0], GONE[0], RC3) == []


@pytest.mark.parametrize("why", [(0, Lost(2, "lost")), (0, Hangup(2)), (0, Fired("shutdown-timeout"))])
def test_leaves_to_root_waits_for_nobody_who_is_lost_or_shed_nor_beyond_the_bound(why):
    assert early(*JOINED, GONE[0], why, RC3) == []


def test_leaves_to_root_sees_a_child_that_was_left_behind_and_runs_rc3_after_its_parent():
    behind = [*JOINED, GONE[0], (0, Fired("shutdown-timeout")), (0, Hangup(2)), RC3, (2, moved("shutdown", "finalize"))]
    assert early(*behind) == ["rank 2 ran rc3 after rank 0, its parent, whose bound had ended"]


def test_leaves_to_root_counts_what_the_parent_knows_and_not_the_child():
    assert early(*JOINED, GONE[0], (2, Lost(0, "lost")), RC3) != []
    assert early(*JOINED, GONE[0], (2, Fired("shutdown-timeout")), RC3) != []


def test_leaves_to_root_begins_anew_with_a_new_life():
    assert early(*JOINED, (0, moved("load-builtins", "join")), RC3) == []


LIFE = (Booted(), moved("load-builtins", "join"))


def test_a_life_that_was_killed_says_nothing_of_the_next():
    made = settings("hardened", cleanup=ONE, cleanup_timeout_ns=2 * S)
    requested = (moved("quorum", "run"), Asked("shutdown"), moved("run", "cleanup"))
    killed = (*LIFE, *STOP, 2, Fired("cleanup-timeout"), start("cleanup.0"), Kill("cleanup.0", 1, "all"))
    done = (ended("cleanup.0", 0), moved("cleanup", "shutdown"), Exit(0))
    later = (*LIFE, *requested, start("cleanup.0"), 90_000, *done)
    for name in ("bounds-held", "honest-exit", "starts-end", "nothing-after-abort"):
        assert found(name, made, *killed, 7200, *later) == []
        assert found(name, made, *killed, ended("cleanup.0", 129), 7200, *later) == []


def test_nothing_after_abort_tells_a_signals_kill_from_another_one():
    made = settings(cleanup=(action("one"), action("two")))
    kill, start = Kill("cleanup.0", 1, "group"), Start("cleanup.1", Command("two"))
    assert found("nothing-after-abort", made, *STOP, 5, Signal(15), kill, 6, start) != []
    assert found("nothing-after-abort", made, *STOP, 5, kill, 6, start) == [], "its own timeout ends one action alone"
