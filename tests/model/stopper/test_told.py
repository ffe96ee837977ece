"""What a stop tells the journal and the service manager, word for word: it is all that an administrator sees of it."""

from __future__ import annotations

import pytest

from brokerctl.durations import MINUTE, MS, S
from brokerctl.records import Arm, MainGone, Query, SignalFailed
from brokerctl.records.stops import Aimed, Holders, Limits, Look, Report, Written
from brokerctl.settings import StopSettings
from tests.driver import action
from tests.model.stopper.telling import DEBUG, ERR, FLUX, INFO, WARNING, WHOM, held, looks, statuses, told
from tests.model.stopper.test_decisions import as_dict
from tests.stopping import HUP, TERM, Main, Stop

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


def test_a_main_that_can_not_be_asked_from_the_beginning_has_stalled_since_its_sigterm_and_not_since_the_boot():
    stop = Stop(Main(cleanup=2 * MINUTE))
    stop.now_ns = 100 * 60 * MINUTE
    stop.answers["look"] = lambda _: "no answer"
    stop.answers["written"] = lambda _: Written()
    stop.run(until_ns=stop.now_ns + 60 * S)
    assert [text for _, text in told(stop) if "no progress" in text] == ["main: no progress for 30s; nothing is sent"]
    first_ns, usec = stop.notified("EXTEND_TIMEOUT_USEC")[0]
    assert first_ns + int(usec) * 1000 == stop.terms()[0] + 5 * MINUTE


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


def test_a_main_whose_state_only_its_status_tells_is_told_once_and_fails_a_stop_in_which_it_never_answered():
    stop = Stop(Main())
    looks(stop, guessed=True)
    stop.run()
    warning = (WARNING, f"{WHOM} does not answer; by its status it is in run: who holds its stop is left alone")
    assert told(stop) == [warning, (ERR, "main has ended; failed: main could not be asked for its state")]
    assert (len(stop.terms()), stop.code) == (1, 1)
    stop = Stop(Main(cleanup=10 * S))
    stop.answers["look"] = lambda _: Look(**{**as_dict(stop.look()), "guessed": stop.now_ns < 3 * S})
    stop.run()
    assert (told(stop), stop.code) == ([warning], 0)


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


def test_a_requested_cleanup_that_is_joined_has_the_time_left_that_it_is_given_and_not_what_was_left_before():
    stop = Stop(Main("cleanup", cleanup=None, limits=FLUX))
    stop.now_ns = 600 * S
    stop.main.since = 0
    stop.run(until_ns=612 * S)
    assert statuses(stop)[0] == "cleanup, at most 45s more: Running cleanup"
    assert statuses(stop)[-1] == "cleanup, at most 35s more: Running cleanup"


def test_the_status_shows_which_step_of_how_many_and_the_time_that_main_promises():
    stop = Stop(Main(cleanup=20 * S, limits=Limits()))
    looks(stop, step="2/4", left_ns=12 * S)
    stop.run(until_ns=5 * S)
    assert statuses(stop)[-1] == "cleanup, 2/4, at most 15s more: Running cleanup"


# ---- how it ends


def test_a_report_is_told_with_the_level_that_each_line_names_on_one_line_each():
    stop = Stop(Main())
    stop.answers["after"] = lambda _: Report(
        ("<3>bad", "<9a>odd", "<x>odd", "<9>odd", "<²>odd", "plain", "two\nlines"), failed="rc3"
    )
    assert told(stop.run()) == [
        (ERR, "bad"),
        (INFO, "<9a>odd"),
        (INFO, "<x>odd"),
        (INFO, "<9>odd"),
        (INFO, "<²>odd"),
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
