"""What a stop tells the journal and the service manager, word for word: it is all that an administrator sees of it."""

from __future__ import annotations

import pytest

from brokerctl.durations import MINUTE, MS, S
from brokerctl.records import Arm, Log, MainGone, Query, SignalFailed
from brokerctl.records.stops import Aimed, Holder, Holders, Holding, Limits, Look, Peers, Report, ShedRank, Sheds
from brokerctl.settings import StopSettings
from tests.driver import action
from tests.model.stopper.test_decisions import as_dict
from tests.stopping import HUP, TERM, Main, Stop

FLUX = Limits(cleanup_timeout_ns=45 * S, shutdown_timeout_ns=5 * MINUTE)
WHOM = "main (pid 4711)"
ERR, WARNING, INFO, DEBUG = 3, 4, 6, 7


def told(stop: Stop) -> list[tuple[int, str]]:
    """The level and the words of each line; all are the wrapper's own, and what its list of site actions says."""
    lines = stop.sent(Log)
    assert {line.component for line in lines if ": not run: " not in line.text} <= {"stop"}
    return [(line.level, line.text) for line in lines]


def statuses(stop: Stop) -> list[str]:
    prefix = "brokerctl stop: "
    found = [text for _, text in stop.notified("STATUS")]
    assert all(text.startswith(prefix) for text in found)
    return [text.removeprefix(prefix) for text in found]


def looks(stop: Stop, **fields) -> None:
    """Answer each look as main would, but for these."""
    stop.answers["look"] = lambda _: Look(**{**as_dict(stop.look()), **fields})


# ---- how it begins


def test_a_stop_without_trouble_writes_nothing_and_says_where_it_is():
    stop = Stop(Main(cleanup=12 * S, finalize=3 * S, limits=FLUX)).run()
    assert told(stop) == []
    assert statuses(stop) == [
        f"SIGTERM to {WHOM}",
        "cleanup, at most 45s more: Running cleanup",
        "cleanup, at most 40s more: Running cleanup",
        "cleanup, at most 35s more: Running cleanup",
        "finalize: Running finalize",
        f"{WHOM} has ended; reporting",
    ]


@pytest.mark.parametrize(("reason", "words"), [("request", " (request)"), ("", "")])
def test_a_stop_that_is_joined_is_told_with_its_reason_where_that_is_known(reason, words):
    stop = Stop(Main("finalize", finalize=2 * S))
    stop.at(2 * S, lambda: stop.enter("goodbye", "finalize"))
    looks(stop, reason=reason)
    stop.run()
    assert told(stop) == [
        (INFO, f"{WHOM} is in finalize: a stop is under way{words}; joined, no signal is sent"),
    ]


def test_a_main_that_is_not_in_run_yet_is_told_and_of_a_follower_in_join_that_its_rc3_fails():
    leader, follower = Stop(Main("join", size=2)).run(), Stop(Main("join", rank=1, size=2)).run()
    early = (INFO, f"{WHOM} is in join, not in run: it gets SIGTERM, no site action")
    never = 'its rc3 will fail ("upstream offline"), which is expected of a follower that never joined'
    assert told(leader) == [early]
    assert told(follower) == [early, (INFO, never)]
    assert told(Stop(Main("init", rank=1, size=2)).run()) == [(INFO, early[1].replace("join", "init"))]


@pytest.mark.parametrize(("jobs", "level", "words"), [(0, INFO, ""), (3, WARNING, ", under 3 running jobs")])
def test_a_follower_is_told_to_stop_alone_and_a_warning_if_jobs_run_above_it(jobs, level, words):
    stop = Stop(Main(rank=1, size=2), StopSettings(actions=(action("drain"),)))
    looks(stop, jobs=jobs)
    assert told(stop.run()) == [(level, f"follower (rank 1 of 2){words}: it stops alone, no site action")]


def test_a_main_that_can_not_be_asked_is_told_once_with_the_reason_and_counts_as_a_failure():
    stop = Stop(Main(), StopSettings(actions=(action("drain"),)))
    stop.answers["look"] = lambda _: "no such socket"
    stop.run()
    failed = "main could not be asked for its state"
    assert told(stop)[0] == (
        WARNING,
        f"{WHOM} can't be asked what it does (no such socket): it gets SIGTERM, no site action",
    )
    assert told(stop)[-1] == (ERR, f"main has ended; failed: {failed}")
    assert f"failed={failed}" in words_of(stop, "after")


def test_a_main_that_can_not_be_asked_after_the_site_actions_is_not_told_that_there_are_none():
    stop = Stop(Main(), StopSettings(actions=(action("drain"),)))
    stop.answers["look"] = lambda _: "gone mute" if stop.runs_ended() else stop.look()
    stop.runs_ended = lambda: stop.now_ns > S
    stop.runs = {"stop.0": 2 * S}
    stop.run()
    assert told(stop)[0] == (WARNING, f"{WHOM} can't be asked what it does (gone mute): it gets SIGTERM")


def test_a_main_whose_state_nobody_knows_is_told_so():
    stop = Stop(Main(cleanup=20 * S))
    looks(stop, state="")
    stop.run()
    why = "neither it nor its status tells its state"
    assert told(stop)[0] == (WARNING, f"{WHOM} can't be asked what it does ({why}): it gets SIGTERM, no site action")
    assert "waiting for main (pid 4711) to end" in statuses(stop)


def test_a_complaint_about_the_configuration_comes_first_and_again_at_the_end():
    stop = Stop(Main())
    stop.give(Aimed("flux", 0, "", "stop.toml: others may write it"))
    stop.run()
    assert told(stop) == [
        (ERR, "stop.toml: others may write it"),
        (ERR, "main has ended; failed: stop.toml: others may write it"),
    ]
    assert statuses(stop)[0] == "SIGTERM to main", "where neither name nor pid is known"


def test_a_process_of_another_kind_is_told_to_be_the_managers_after_30_seconds():
    stop = Stop(Main(cleanup=40 * S), kind="other").run()
    text = f"{WHOM} has not ended within 30s of SIGTERM; the service manager's own time decides"
    assert told(stop) == [(WARNING, text)]
    assert statuses(stop) == [f"SIGTERM to {WHOM}"]


def test_a_sigterm_that_is_not_permitted_is_told_with_the_reason():
    stop = Stop(Main(), kind="other")
    stop.run(until_ns=0)
    stop.give(SignalFailed(18, 1))
    assert stop.code is None, "SIGCONT is of no consequence"
    stop.give(SignalFailed(TERM, 1))
    text = f"cannot send SIGTERM to {WHOM}: Operation not permitted; it is left to the service manager"
    assert told(stop) == [(ERR, text)]


# ---- the site's actions


def test_each_site_action_is_named_as_it_begins_and_the_one_that_is_cut_off_at_the_end():
    three = (action("drain"), action("hangs"), action("never"), action("vital", essential=True))
    stop = Stop(Main(), StopSettings(actions=three))
    stop.runs = {"stop.0": 1 * S, "stop.1": None}
    stop.run()
    assert statuses(stop)[:4] == [
        "site action 1/4, before the SIGTERM: drain",
        "site action 2/4, before the SIGTERM: hangs",
        "site action 4/4, before the SIGTERM: vital",
        f"SIGTERM to {WHOM}",
    ]
    assert told(stop) == [
        (ERR, "actions-timeout: stop.1 (hangs) is aborted after 10s"),
        (ERR, "stop: not run: never"),
        (ERR, "main has ended; failed: site action stop.1: hangs (rc=129)"),
    ]


def test_site_actions_that_were_dropped_fail_a_stop_though_those_that_ran_did_not():
    stop = Stop(Main(), StopSettings(actions=(action("vital", essential=True), action("never"))))
    stop.runs = {"stop.0": 12 * S}
    stop.run()
    assert told(stop)[-1] == (ERR, "main has ended; failed: site action cut off (rc=1)")


# ---- who holds CLEANUP


def test_each_rung_at_a_process_that_holds_cleanup_is_told_and_that_it_survived_them_once():
    stop = Stop(Main(holder=99, limits=FLUX)).run(until_ns=80 * S)
    held = "cleanup is over its timeout, and held by stubborn (pid 99): "
    assert told(stop) == [
        (ERR, f"{held}SIGHUP"),
        (ERR, f"{held}SIGTERM"),
        (ERR, f"{held}SIGKILL"),
        (WARNING, "stubborn (pid 99) still runs after SIGHUP, SIGTERM, SIGKILL"),
    ]
    assert statuses(stop)[-1] == "cleanup, over its time: Running cleanup"


def test_the_report_gets_what_was_signalled_and_which_bound_was_broken():
    stop = Stop(Main(holder=TERM, limits=FLUX)).run()
    broken = "cleanup outlived its timeout of 45s"
    words = words_of(stop, "after")
    assert [word for word in words if word.startswith(("ended", "broken", "signalled"))] == [
        "signalled=1", "ended=SIGHUP, SIGTERM to stubborn (pid 99)", f"broken={broken}",
    ]  # fmt: skip
    assert told(stop)[-1] == (ERR, f"main has ended, but not within its bounds: {broken}")


def test_a_holder_that_is_started_later_joins_the_rung_that_is_reached_and_one_without_words_is_a_process():
    stop = Stop(Main(cleanup=66 * S, limits=FLUX))
    born = {7: 0, 8: 51 * S, 9: 58 * S, 10: 64 * S}
    stop.answers["holders"] = lambda _: Holders(
        tuple(Holder(pid, pid, "late" if pid > 7 else "") for pid, at in born.items() if stop.now_ns > at)
    )
    stop.run(until_ns=65 * S)
    assert [text.rpartition("held by ")[2] for level, text in told(stop) if level == ERR] == [
        "a process (pid 7): SIGHUP", "late (pid 8): SIGHUP", "a process (pid 7): SIGTERM", "late (pid 8): SIGTERM",
        "a process (pid 7): SIGKILL", "late (pid 8): SIGKILL", "late (pid 9): SIGKILL", "late (pid 10): SIGKILL",
    ]  # fmt: skip


def test_where_the_holders_are_not_known_that_is_told_and_they_are_asked_for_again_every_second():
    stop = Stop(Main(cleanup=54 * S, limits=FLUX))
    stop.answers["holders"] = lambda _: "permission denied"
    stop.run()
    warning = (WARNING, "who holds the cleanup is not known: permission denied")
    assert told(stop) == [warning] * len(told(stop))
    assert 4 <= len(told(stop)) <= 5


def test_on_a_guess_nobody_is_signalled_and_that_is_told():
    stop = Stop(Main(cleanup=52 * S, limits=FLUX))
    looks(stop, guessed=True)
    stop.run(until_ns=51 * S)
    assert told(stop)[0] == (WARNING, "who holds the cleanup is not known: main does not tell its state itself")


def test_a_cleanup_that_nobody_holds_is_told_once():
    stop = Stop(Main(cleanup=55 * S, limits=FLUX))
    stop.answers["holders"] = lambda _: Holders()
    stop.run()
    assert told(stop)[:-1] == [(WARNING, "cleanup is over its timeout, and no process is found that holds it")]
    assert len([query for query in stop.sent(Query) if query.what == "holders"]) >= 4


def test_holders_are_those_that_were_started_since_cleanup_began_with_the_clocks_tick_to_spare():
    stop = Stop(Main(holder=HUP, limits=FLUX)).run()
    began = next(at for at, state in stop.main.history if state == "cleanup")
    (since,) = words_of(stop, "holders")
    assert began - 100 * MS <= int(since) <= began


# ---- who holds SHUTDOWN


HOLDING = Peers(
    "2 peers: picl[1,5]", (Holding(1, "picl1", status="degraded", severs="3-4"), Holding(0, "picl0"), Holding(5))
)


def held(stop: Stop) -> Stop:
    """Peers hold SHUTDOWN until they are shed; one of them can't be."""
    stop.answers["peers"] = lambda _: HOLDING if stop.main.frozen else Peers()
    stop.answers["shed"] = lambda query: (
        (stop.main.frozen.clear(), stop.after(MS, stop.settle))
        and Sheds((ShedRank(1, "picl1", severed="3-4", jobs=("f2", "f3")), ShedRank(5, error=f"not {query.words[0]}")))
    )
    return stop


def test_who_is_shed_is_told_before_and_after_with_what_it_took_along():
    stop = held(Stop(Main(frozen=(1, 5), size=6, limits=FLUX))).run()
    assert told(stop) == [
        (ERR, "shutdown is held by picl1 (rank 1), degraded: it is shed, and its subtree with it (ranks 3-4)"),
        (ERR, "shutdown is held by rank 5: it is shed"),
        (ERR, "shed picl1 (rank 1), and its subtree with it (ranks 3-4); jobs cut off: f2 f3"),
        (ERR, "rank 5 can't be shed: not 1,5"),
        (ERR, "main has ended, but not within its bounds: picl1 (rank 1) was shed after 60s of shutdown"),
    ]
    assert "shed=1" in words_of(stop, "after")


def test_the_status_names_who_is_waited_for_and_how_long_till_it_is_shed():
    stop = held(Stop(Main(frozen=(1, 5), size=6, limits=FLUX)))
    stop.run(until_ns=20 * S)
    assert statuses(stop)[-1] == "shutdown, at most 45s more, 2 peers: picl[1,5]: Running shutdown"


def test_without_shedding_the_status_counts_mains_own_limit():
    stop = Stop(Main(frozen=(1,), size=2, limits=FLUX), StopSettings(shed_after_ns=None))
    stop.run(until_ns=20 * S)
    assert statuses(stop)[-1] == "shutdown, at most 4m45s more, 1 peers: Running shutdown"


def test_where_nobody_is_to_blame_that_is_told_once():
    stop = Stop(Main(frozen=(1,), size=2, limits=FLUX))
    stop.answers["peers"] = lambda _: Peers("1 peer: picl1")
    stop.run(until_ns=80 * S)
    assert told(stop) == [(WARNING, "shutdown: 1 peer: picl1, none of which is to blame by itself")]


@pytest.mark.parametrize("what", ["peers", "shed"])
def test_a_shedding_that_gets_no_answer_is_told_and_tried_again_after_5_seconds(what):
    stop = Stop(Main(frozen=(1,), size=2, limits=FLUX))
    stop.answers[what] = lambda _: "timed out"
    stop.run(until_ns=73 * S)
    lines = [line for line in told(stop) if line[0] == WARNING]
    assert lines == [(WARNING, "ranks that hold the stop can't be shed: timed out")] * 3


# ---- what saves state


def test_a_finalize_without_progress_is_told_at_doubling_times_and_so_is_its_next_progress():
    stop = Stop(Main(finalize=200 * S, writes=False, limits=FLUX))
    stop.answers["look"] = lambda _: Look(
        **{**as_dict(stop.look()), "done": int(stop.now_ns > 140 * S), "progress": "7 of 9 keys"}
    )
    stop.run(until_ns=150 * S)
    assert [level for level, _ in told(stop)] == [WARNING, WARNING, WARNING, INFO]
    for _, text in told(stop)[:3]:
        assert text.startswith("finalize: no progress for ")
        assert text.endswith(" (7 of 9 keys); nothing is sent")
    assert told(stop)[-1] == (INFO, "finalize: it makes progress again")
    assert statuses(stop)[-1] == "finalize, 7 of 9 keys: Running finalize"
    assert "finalize, 7 of 9 keys, no progress for 90s: Running finalize" in statuses(stop)


def test_a_main_that_goes_mute_is_told_after_five_looks_and_again_when_it_stalls():
    stop = Stop(Main(finalize=100 * S, writes=False))
    stop.answers["look"] = lambda _: stop.look() if stop.now_ns < S else "no answer"
    stop.run(until_ns=50 * S)
    mute = (DEBUG, "no look at main: no answer")
    lines = [line for line in told(stop) if line != mute]
    assert told(stop)[:4] == [mute] * 4
    assert lines[0] == (WARNING, "main can't be asked any more (no answer); its end is waited for all the same")
    assert lines[1][1].startswith("run: no progress for ")
    assert len(lines) == 2


def test_a_question_of_less_import_that_gets_no_answer_is_told_to_who_debugs():
    stop = Stop(Main(finalize=3 * S))
    stop.answers["written"] = lambda _: "no such process"
    stop.run()
    assert set(told(stop)) == {(DEBUG, "a question without an answer: no such process")}


def test_the_status_shows_which_step_of_how_many_and_the_time_that_main_promises():
    stop = Stop(Main(cleanup=20 * S, limits=Limits()))
    looks(stop, step="2/4", left_ns=12 * S)
    stop.run(until_ns=5 * S)
    assert statuses(stop)[-1] == "cleanup, 2/4, at most 15s more: Running cleanup"


# ---- how it ends


def test_a_report_is_told_with_the_level_that_each_line_names_on_one_line_each():
    stop = Stop(Main())
    stop.answers["after"] = lambda _: Report(("<3>bad", "<9a>odd", "<x>odd", "plain", "two\nlines"), failed="rc3")
    assert told(stop.run()) == [
        (ERR, "bad"),
        (INFO, "<9a>odd"),
        (INFO, "<x>odd"),
        (INFO, "plain"),
        (INFO, "two lines"),
        (ERR, "main has ended; failed: the service's own rc3"),
    ]


def test_a_report_that_does_not_come_is_told():
    stop = Stop(Main())
    stop.answers["after"] = lambda _: None
    assert told(stop.run()) == [(WARNING, "no report: no answer within 2.0s")]


def test_all_that_failed_and_all_that_was_broken_is_told_in_one_line():
    stop = Stop(Main(), StopSettings(actions=(action("fails"),)))
    stop.runs = {"stop.0": None}
    stop.answers["after"] = lambda _: Report(failed="cleanup")
    stop.run()
    assert told(stop)[-1] == (
        ERR,
        "main has ended; failed: site action stop.0: fails (rc=129); the service's own cleanup",
    )
    stop = held(Stop(Main(frozen=(1, 5), size=6, holder=HUP, limits=FLUX))).run()
    bounds = "cleanup outlived its timeout of 45s; picl1 (rank 1) was shed after 60s of shutdown"
    assert told(stop)[-1] == (ERR, f"main has ended, but not within its bounds: {bounds}")


@pytest.mark.parametrize(("at_ns", "rest"), [(5 * MS, f"{WHOM} still runs"), (10 * S, f"{WHOM} still runs in cleanup")])
def test_told_to_end_it_says_by_which_signal_and_where_main_is(at_ns, rest):
    stop = Stop(Main(cleanup=40 * S))
    stop.at(at_ns, stop.told_to_end)
    assert told(stop.run()) == [(ERR, f"told to end by SIGTERM: {rest}")]


def test_told_to_end_after_main_it_says_that_main_has_ended():
    stop = Stop(Main(), StopSettings(actions=(action("slow"),)))
    stop.runs = {"stop.0": None}
    stop.at(2 * S, lambda: stop.give(MainGone()))
    stop.at(3 * S, stop.told_to_end)
    assert told(stop.run()) == [(ERR, "told to end by SIGTERM: main has ended")]


# ---- what is asked, and which timers are work


def words_of(stop: Stop, what: str) -> tuple[str, ...]:
    return next(query.words for query in stop.sent(Query) if query.what == what)


def everything() -> list[Stop]:
    """Stops that together do all that a wrapper does."""
    acting = Stop(Main(), StopSettings(actions=(action("a"), action("b"))))
    acting.runs = {"stop.0": 12 * S}
    mute = Stop(Main())
    mute.answers["look"] = lambda _: "no answer"
    nobody = Stop(Main(cleanup=55 * S, limits=FLUX))
    nobody.answers["holders"] = lambda _: Holders()
    return [
        stop.run()
        for stop in (
            acting, mute, nobody, held(Stop(Main(frozen=(1, 5), size=6, limits=FLUX))), Stop(Main(), kind="other"),
            Stop(Main(holder=TERM, limits=FLUX)),
        )
    ]  # fmt: skip


def test_every_question_has_a_time_of_its_own():
    asked = {(query.what, query.within_ns / S) for stop in everything() for query in stop.sent(Query)}
    assert asked == {
        ("look", 2), ("before", 2), ("after", 2), ("holders", 2), ("written", 2), ("peers", 5), ("shed", 10),
    }  # fmt: skip


def test_the_timers_that_only_look_are_reminders_so_that_a_stop_that_hangs_is_seen_as_stuck():
    """In virtual time a reminder is no work that is still to come."""
    armed = {
        (timer.timer, timer.reminder)
        for stop in everything()
        for timer in stop.sent(Arm)
        if not timer.timer.startswith(("query ", "action ", "ladder "))
    }
    assert armed == {
        ("ask", False), ("before", False), ("actions-timeout", False),
        ("look", True), ("still-there", True),
        ("holders", False), ("holders", True),  # while nobody is found
        ("shed", False), ("shed", True),
    }  # fmt: skip


def test_nothing_is_armed_any_more_at_the_end():
    assert [stop._armed for stop in everything() if stop._armed] == []
