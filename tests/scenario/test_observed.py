"""What can be seen of a run from outside, and what is left out because it never comes twice the same."""

from brokerctl.durations import S
from brokerctl.records import (
    Command,
    Drain,
    Ended,
    Exit,
    Ignored,
    JobEvent,
    Line,
    Log,
    Moved,
    Notify,
    Signal,
    Start,
    Unreachable,
)
from brokerctl.scenario.compare import differ
from brokerctl.scenario.observed import observed


def seen(*whats, size=2, **more):
    lines = [Line(n * S, 0, n, "<" if isinstance(what, Signal) else ">", what) for n, what in enumerate(whats)]
    return {key: [said.what for said in told] for key, told in observed(lines, size, **more).items()}


def test_transitions_actions_and_log_lines_of_a_rank_have_one_order_and_no_durations():
    moved, ended = Moved("shutdown", "run", "cleanup", 7), Ended("cleanup.0", "x", 0, "Exited", 9)
    assert seen(Signal(15), moved, Start("cleanup.0", Command("x")), ended, Log("broker", 6, "signal 15")) == {
        (0, "log"): [
            Moved("shutdown", "run", "cleanup", 0),
            Ended("cleanup.0", "x", 0, "Exited", 0),
            Log("broker", 6, "signal 15"),
        ],
    }


def test_what_races_has_an_order_of_its_own():
    lost = Log("broker", 3, "dead to Flux: vm (rank 1)")
    failed = Log("overlay", 3, "vm (rank 1) failed")
    assert seen(lost, failed) == {(0, "dead to Flux"): [lost], (0, "overlay"): [failed]}


def test_debug_lines_other_components_and_chance_are_left_out():
    online = Log("broker", 6, "online: a,b,c (ranks 0-2)")
    assert seen(Log("broker", 7, "x"), Log("kvs", 3, "x"), Ended("job.1.task", "x", 0, "Exited", 0)) == {}
    assert seen(online, size=3) == {}
    assert seen(online, size=2) == {(0, "log"): [online]}
    assert seen(Ignored("rc2-none", "run"), debug=False) == {}


def test_jobs_are_called_by_their_labels_and_release_may_stand_anywhere():
    events = [JobEvent("ƒ1", "job", name, {"userid": 5}) for name in ("submit", "finish", "release", "clean")]
    found = seen(*events, Unreachable(1, "ƒ1: epilog"), Drain((1,), "epilog failed for job ƒ1"))
    assert found[0, "job job"] == [
        JobEvent("", "job", "submit", {}),
        JobEvent("", "job", "finish", {"userid": 5}),
        JobEvent("", "job", "clean", {"userid": 5}),
    ]
    assert len(found[0, "release job"]) == 1
    assert found[0, "log of jobs"] == [Unreachable(1, "job: epilog")]
    assert found[0, "drains"] == [Drain((1,), "epilog failed for job job")]
    assert "job job" not in {name for _, name in seen(*events, jobs=frozenset())}


def test_what_ranks_answer_at_the_same_time_comes_in_any_order():
    one, two = Unreachable(1, "j: epilog"), Unreachable(2, "j: epilog")
    assert seen(one, two) == seen(two, one)


def test_the_progress_of_a_dump_and_the_uri_of_a_parent_are_left_out():
    sent = [
        "STATUS=Joining Flux instance via ipc://x",
        "EXTEND_TIMEOUT_USEC=9",
        "STATUS=flux-dump(1) has archived 9 keys",
    ]
    assert seen(*map(Notify, sent)) == {(0, "notify"): [Notify("STATUS=Joining Flux instance via")]}


def test_an_exit_code_is_compared():
    one, two = ([Line(0, 0, 0, ">", Exit(code))] for code in (0, 129))
    found = differ(observed(one, 1), observed(two, 1))
    assert found is not None
    assert (found.rank, found.component, found.index) == (0, "exit", 0)


def test_a_message_of_a_dump_is_left_out_with_its_extension_and_with_nothing_else():
    dump, extension = Notify("STATUS=flux-dump(1) has archived 3 keys"), Notify("EXTEND_TIMEOUT_USEC=90000000")
    status = Notify("STATUS=Running flux modprobe rc3")
    assert seen(status, extension, dump, extension, dump) == {(0, "notify"): [status]}
    assert seen(status, dump) == {(0, "notify"): [status]}
    assert seen(dump) == {(0, "notify"): []}


def test_how_long_a_broker_was_silent_when_that_was_noticed_is_not_compared():
    one, other = (
        Log("overlay", 3, f"broker on vm (rank 1) has been unresponsive for {told}") for told in ("2s", "34s")
    )
    assert (
        seen(one) == seen(other) == {(0, "overlay"): [Log("overlay", 3, "broker on vm (rank 1) has been unresponsive")]}
    )
