"""Workers in the model: started in order, watched, stopped in reverse order; nothing about a dead one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerctl.check.invariants import INVARIANTS
from brokerctl.durations import S
from brokerctl.model import bounds
from brokerctl.model.tree import Tree
from brokerctl.records import (
    Asked,
    Command,
    Emptied,
    Ended,
    Exit,
    Grown,
    Heard,
    Kill,
    Late,
    Line,
    Log,
    Notify,
    Served,
    SpawnFailed,
    Start,
    Waiting,
    Watch,
)
from brokerctl.settings import Worker
from brokerctl.trace import Topology
from tests.driver import KILL, TERM, Driver, action, settings

ABRT = 6


def worker(name, *, notify=True, **fields):
    watchdog_ns = fields.get("watchdog_ns")
    command = Command(name, (name,), notifies=notify, watchdog_ns=watchdog_ns)
    return Worker(name=name, command=command, **fields)


def driver(*workers, **fields):
    return Driver(settings("hardened", workers=workers, **fields)).until_run()


def ready(made, name):
    return made.give(Heard(f"worker.{name}", "READY=1"))


def both(**fields):
    made = driver(worker("a", **fields), worker("b", **fields))
    ready(made, "a")
    ready(made, "b")
    return made


def kills(made):
    return [(kill.run, kill.signum) for kill in made.of(Kill)]


def logs(made):
    return [log.text for log in made.of(Log)]


# ---- start


def test_each_is_started_when_the_one_before_is_ready_and_rc2_when_all_are():
    made = driver(worker("a"), worker("b"), rc2=(action("rc2"),))
    assert made.started == ["a"]
    ready(made, "a")
    assert made.started == ["a", "b"]
    made.give(Heard("worker.a", "STATUS=busy\nREADY=1"))
    assert made.started == ["a", "b"], "ready is said once"
    ready(made, "b")
    assert made.started == ["a", "b", "rc2"]


def test_one_that_says_nothing_is_ready_when_it_runs():
    made = driver(worker("a", notify=False), worker("b", notify=False), worker("c"))
    assert made.started == ["a", "b", "c"]


def test_many_that_say_nothing_are_started_without_end_of_stack():
    made = driver(*(worker(f"w{number}", notify=False) for number in range(100)), rc2=(action("rc2"),))
    assert len(made.started) == 101


def test_whoever_waits_for_a_worker_says_so():
    made = driver(worker("a"))
    assert made.of(Waiting)[-1] == Waiting("rank 0", "worker.a to be ready")
    ready(made, "a")
    assert Served("rank 0", "worker.a to be ready") in made.of(Served)


def test_one_that_is_not_ready_in_time_is_ended_and_the_next_never_started():
    made = driver(worker("a", ready_timeout_ns=7 * S), worker("b"))
    assert made.due["ready worker.a"] - made.now_ns == 7 * S
    made.fire("ready worker.a")
    assert kills(made) == [("worker.a", TERM)]
    ready(made, "a")
    assert made.started == ["a"], "too late"
    made.exits("worker.a", by=TERM, emptied=True)
    assert made.code == 143
    assert made.started == ["a"]


def test_more_time_for_its_start_is_given_and_never_less():
    made = driver(worker("a", ready_timeout_ns=7 * S))
    made.give(Heard("worker.a", "EXTEND_TIMEOUT_USEC=5000000"))
    assert made.due["ready worker.a"] - made.now_ns == 7 * S
    made.give(Heard("worker.a", "EXTEND_TIMEOUT_USEC=90000000"))
    assert made.due["ready worker.a"] - made.now_ns == 90 * S


def test_one_that_can_t_be_started_ends_the_run_with_127():
    made = driver(worker("a"), worker("b"))
    made.give(SpawnFailed("worker.a", 2))
    assert made.code == 127
    assert made.started == ["a"]


def test_an_optional_one_that_fails_at_its_start_holds_nobody_up():
    made = driver(worker("a", required=False), worker("b"))
    made.exits("worker.a", 3)
    assert made.started == ["a", "b"]
    assert made.state == "run"


def test_a_signal_while_one_starts_stops_it_and_starts_no_other():
    made = driver(worker("a"), worker("b"))
    made.signal()
    assert kills(made) == [("worker.a", TERM)]
    made.exits("worker.a", by=TERM)
    assert (made.started, made.code) == (["a"], 0)


# ---- watched


def test_the_watchdog_begins_when_it_is_ready():
    made = driver(worker("a", watchdog_ns=5 * S, memory=1000))
    assert made.of(Watch) == [Watch("worker.a", None, 1000)]
    ready(made, "a")
    assert made.of(Watch)[-1] == Watch("worker.a", 5 * S, 1000)


def test_whoever_has_no_limits_is_not_watched():
    made = both()
    made.signal()
    assert made.of(Watch) == []


def test_long_work_widens_the_watchdog_and_restores_it():
    made = driver(worker("a", watchdog_ns=5 * S))
    ready(made, "a")
    for usec, limit_ns in (("300000000", 300 * S), ("5000000", 5 * S), ("0", None)):
        made.give(Heard("worker.a", f"WATCHDOG_USEC={usec}"))
        assert made.of(Watch)[-1] == Watch("worker.a", limit_ns)


def test_it_may_start_a_watchdog_of_its_own():
    made = driver(worker("a"))
    ready(made, "a")
    made.give(Heard("worker.a", "WATCHDOG_USEC=1000000"))
    assert made.of(Watch) == [Watch("worker.a", 1 * S)]


def test_more_time_while_it_runs_is_for_the_next_beat():
    made = driver(worker("a", watchdog_ns=5 * S))
    ready(made, "a")
    made.give(Heard("worker.a", "EXTEND_TIMEOUT_USEC=90000000"))
    assert made.of(Watch)[-1] == Watch("worker.a", 5 * S, None, 90 * S)


@pytest.mark.parametrize(
    ("event", "signum", "text"),
    [
        (Late("worker.a", 5 * S), ABRT, "worker.a was silent for 5.0s; now SIGABRT"),
        (Heard("worker.a", "WATCHDOG=trigger"), ABRT, "worker.a has triggered its watchdog; now SIGABRT"),
        (Grown("worker.a", 3 << 20), TERM, "worker.a has more than 2 MiB of memory; now SIGTERM"),
    ],
)
def test_one_that_does_not_work_is_ended_and_the_run_with_it(event, signum, text):
    made = driver(worker("a", watchdog_ns=5 * S, memory=2 << 20), cleanup=(action("sweep"),))
    ready(made, "a")
    made.give(event)
    assert kills(made) == [("worker.a", signum)]
    assert text in logs(made)
    assert made.of(Watch)[-1] == Watch("worker.a")
    made.give(event)
    assert len(kills(made)) == 1, "told once"
    made.exits("worker.a", by=signum, emptied=True)
    assert made.state == "cleanup"
    made.exits("cleanup.0")
    assert made.code == 128 + signum
    assert logs(made)[-1] == f"exit code {128 + signum}: the first to fail was worker.a: a"


def test_one_that_survives_its_abort_is_killed_and_at_last_given_up():
    made = driver(worker("a", watchdog_ns=5 * S, stop_timeout_ns=3 * S))
    ready(made, "a")
    made.give(Late("worker.a", 5 * S))
    assert made.due["ladder worker.a"] - made.now_ns == 3 * S
    made.fire("ladder worker.a")
    assert kills(made)[-1] == ("worker.a", KILL)
    made.fire("ladder worker.a")
    assert made.code == 137
    assert "worker.a: still running after SIGABRT, SIGKILL: a" in logs(made)


def test_one_that_ends_by_itself_ends_the_run_with_its_code():
    for rc in (0, 7):
        made = driver(worker("a"), rc2=(action("rc2"),))
        ready(made, "a")
        made.exits("worker.a", rc)
        assert made.state == "run"
        made.exits("rc2.0", by=1, emptied=True)
        assert made.code == (rc or 129)


def test_one_that_stops_by_itself_has_its_stop_timeout():
    made = driver(worker("a", watchdog_ns=5 * S, stop_timeout_ns=3 * S))
    ready(made, "a")
    made.give(Heard("worker.a", "STOPPING=1"))
    assert made.of(Watch)[-1] == Watch("worker.a")
    made.fire("stopping worker.a")
    assert kills(made) == [("worker.a", TERM)]
    made.exits("worker.a", emptied=True)
    assert made.code == 1, "it had to be told"


def test_what_an_optional_one_ends_with_does_not_count():
    made = both(required=False)
    made.exits("worker.a", 9)
    assert made.state == "run"
    made.signal()
    made.exits("worker.b")
    assert made.code == 0


# ---- stop


def test_they_are_stopped_in_reverse_order_before_the_cleanup_actions():
    made = driver(worker("a"), worker("b"), cleanup=(action("sweep"),))
    ready(made, "a")
    ready(made, "b")
    made.signal()
    assert kills(made) == [("worker.b", TERM)]
    made.exits("worker.b")
    assert kills(made)[-1] == ("worker.a", TERM)
    made.exits("worker.a", by=TERM)
    assert made.running == ["cleanup.0"], "the numbers of actions stay theirs"
    made.exits("cleanup.0")
    assert made.code == 0, "death by the SIGTERM of its stop is a clean end"


def test_a_pushed_action_keeps_its_place_before_the_others():
    made = both()
    made.give(Asked("cleanup-push", 1, ("late",)))
    made.signal()
    made.exits("worker.b")
    made.exits("worker.a")
    assert made.started[-1] == "late"


def test_a_dead_one_is_not_signalled():
    made = both(required=False)
    made.exits("worker.b", 1)
    made.signal()
    assert kills(made) == [("worker.a", TERM)]
    made.exits("worker.a")
    assert made.code == 0


def test_one_that_dies_before_its_turn_is_not_signalled_and_its_code_counts():
    made = both()
    made.signal()
    made.exits("worker.a", 4)
    made.exits("worker.b")
    assert kills(made) == [("worker.b", TERM)]
    assert made.code == 4


def test_one_that_ignores_its_stop_is_killed_and_that_is_no_clean_end():
    made = both(stop_timeout_ns=3 * S)
    made.signal()
    made.fire("action stop.b")
    assert kills(made)[-1] == ("worker.b", KILL)
    made.exits("worker.b", by=KILL, emptied=True)
    made.exits("worker.a")
    assert made.code == 137


def test_a_stop_still_has_its_time_when_the_budget_is_over_and_the_actions_have_none():
    made = driver(worker("a", stop_timeout_ns=60 * S), cleanup=(action("sweep"),))
    ready(made, "a")
    made.signal()
    made.fire("cleanup-timeout")
    assert kills(made) == [("worker.a", TERM)], "it is not hurried"
    made.exits("worker.a")
    assert made.code == 1, "an action was cut off"
    assert "sweep" not in made.started


def test_nothing_is_taken_from_one_that_stops():
    """A late beat that was found before its stop began, and is told after it, must not abort it."""
    made = both(watchdog_ns=5 * S)
    made.signal()
    for event in (Late("worker.b", 5 * S), Grown("worker.b", 5), Heard("worker.b", "EXTEND_TIMEOUT_USEC=900000000")):
        made.give(event)
    assert kills(made) == [("worker.b", TERM)]
    made.exits("worker.b")
    made.give(Heard("worker.b", "STATUS=gone"))


def test_a_worker_that_was_late_and_is_told_to_stop_has_not_ended_cleanly():
    made = both(watchdog_ns=5 * S)
    made.give(Late("worker.b", 5 * S))
    made.signal()
    made.exits("worker.b", by=TERM, emptied=True)
    made.exits("worker.a")
    assert made.code == 143


def test_a_panic_ends_them_without_cleanup_and_says_who_is_left():
    made = both()
    made.give(Asked("panic"))
    assert kills(made) == [("worker.a", TERM), ("worker.b", TERM)]
    assert made.code == 1
    assert "worker.a: still running after its broker's end: a" in logs(made)


# ---- told


def test_status_has_them():
    made = driver(worker("a"), worker("b"))
    made.give(Heard("worker.a", "READY=1\nSTATUS=3 jobs done"))
    found = made.node.broker.workers.about()
    assert [(one["name"], one["state"], one["status"]) for one in found] == [
        ("a", "ready", "3 jobs done"),
        ("b", "starting", ""),
    ]


def test_the_service_manager_is_told_what_is_waited_for():
    made = driver(worker("a"))
    ready(made, "a")
    made.signal()
    texts = [notify.text for notify in made.of(Notify)]
    assert "STATUS=Running worker a" in texts
    assert "STATUS=Running stop of worker a" in texts


def test_the_bound_of_cleanup_has_a_slice_for_each_stop():
    tree = Tree(Topology())
    without = bounds.worst_case(settings("hardened"), tree)
    ladder = bounds.ladder_ns(settings("hardened"))
    budget = 45 * S + ladder
    for count in (1, 3):
        made = settings("hardened", workers=tuple(worker(f"w{n}", stop_timeout_ns=7 * S) for n in range(count)))
        own = count * (7 * S + ladder + made.output_grace_ns)
        assert bounds.worst_case(made, tree) == without + min(own, budget + count * (7 * S + ladder))


def found(invariant, made, *effects):
    reader = INVARIANTS[invariant](made, Tree(Topology()))
    for number, effect in enumerate(effects):
        reader.see(Line(number, 0, number, ">", effect))
    return [finding.text for finding in reader.finish()]


def test_a_signal_after_a_worker_s_end_is_found_in_a_trace():
    made = settings("hardened", workers=(worker("a"),))
    start, kill = Start("worker.a", Command("a")), Kill("worker.a", TERM, "group")
    ended = Ended("worker.a", "a", 0, "Exited", 1)
    assert found("the-dead-are-spared", made, start, kill, ended) == []
    assert found("the-dead-are-spared", made, start, ended, kill) == ["worker.a was signalled after its end"]


def test_only_a_required_worker_that_failed_makes_exit_0_a_lie():
    ended = Ended("worker.a", "a", 3, "Exited", 1)
    for required, count in ((True, 1), (False, 0)):
        made = settings("hardened", workers=(worker("a", required=required),))
        assert len(found("honest-exit", made, ended, Exit(0))) == count


EVENTS = st.sampled_from(
    [
        *(Heard(f"worker.{name}", text) for name in "ab" for text in (
            "READY=1", "STOPPING=1", "WATCHDOG_USEC=7", "WATCHDOG_USEC=x", "EXTEND_TIMEOUT_USEC=9", "=", "STATUS", "",
            "WATCHDOG=trigger", "EXTEND_TIMEOUT_USEC=" + "9" * 30,
        )),
        *(kind(f"worker.{name}", 5) for name in "ab" for kind in (Late, Grown)),
        "exit", "term", "timer",
    ]
)  # fmt: skip


def spared(effects):
    """Nobody is signalled who was not started, or has ended."""
    alive = set()
    for effect in effects:
        if isinstance(effect, Start):
            alive.add(effect.run)
        elif isinstance(effect, Ended):
            alive.discard(effect.run)
        elif isinstance(effect, Kill) and effect.run not in alive:
            return False
    return True


@given(st.lists(EVENTS, max_size=30), st.data())
def test_whatever_workers_say_and_do_the_dead_are_spared_and_the_stop_ends(events, data):
    made = driver(worker("a", watchdog_ns=5 * S), worker("b", memory=5, required=False))
    for event in [*events, "term", *["exit"] * 4]:
        if made.of(Exit):
            break
        before = set(made.running)
        if event == "exit":
            if made.running:
                run = data.draw(st.sampled_from(made.running))
                made.exits(run, data.draw(st.integers(0, 3)))
                if run in made.running:  # its ladder reaches all that descends from it
                    made.give(Emptied(run))
        elif event == "timer":
            if made.timers:
                made.fire(data.draw(st.sampled_from(sorted(made.timers))))
        elif event == "term":
            made.signal(after_s=5)
        elif event.run in before:
            made.give(event)
    assert spared(made.effects)
    assert made.of(Exit)
