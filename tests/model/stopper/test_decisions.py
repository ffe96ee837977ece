"""What the wrapper does about main, by what it is told of it."""

from __future__ import annotations

import pytest

from brokerctl.durations import MINUTE, MS, S
from brokerctl.records import (
    Aimed,
    Answered,
    Exit,
    Exited,
    Kill,
    MainGone,
    Notify,
    Query,
    Signal,
    SignalFailed,
    SignalMain,
    Start,
)
from brokerctl.records.stops import Look, Report, Written
from brokerctl.settings import StopSettings
from tests.driver import action
from tests.stopping import CONT, KILL, TERM, Main, Stop


def signals(stop: Stop) -> list[int]:
    return [signum for _, signum in stop.main.signals]


def after_its_end(report: Report):
    """Answers of a helper that has only this to report, at the end."""
    return lambda query: report if query.what == "after" else Report()


# ---- the one SIGTERM


def test_a_broker_in_run_gets_sigterm_and_sigcont_once_and_the_wrapper_stays_until_it_is_gone():
    stop = Stop(Main()).run()
    assert (signals(stop), stop.code) == ([TERM, CONT], 0)
    assert stop.now_ns >= stop.main.history[-1][0]


@pytest.mark.parametrize("state", ["cleanup", "shutdown", "finalize", "goodbye", "unload-builtins"])
def test_a_stop_that_is_under_way_is_joined_and_nothing_is_sent(state):
    stop = Stop(Main(state))
    stop.at(3 * S, lambda: stop.enter("", state))
    stop.run()
    assert (signals(stop), stop.code) == ([], 0)
    assert any("joined, no signal is sent" in text for text in stop.logged())


@pytest.mark.parametrize("state", ["join", "init", "quorum", "config-sync"])
def test_before_run_main_gets_sigterm_without_site_actions(state):
    stop = Stop(Main(state), StopSettings(actions=(action("drain"),))).run()
    assert (signals(stop), stop.sent(Start)) == ([TERM, CONT], [])


def test_a_follower_in_join_is_told_that_its_rc3_will_fail_and_that_counts_for_nothing():
    stop = Stop(Main("join", rank=3, size=4))
    stop.answers["after"] = lambda _: Report(failed="rc3")
    stop.run()
    assert any("its rc3 will fail" in text for text in stop.logged())
    assert stop.code == 0


def test_a_follower_runs_no_site_action_and_a_rank_with_jobs_is_warned():
    stop = Stop(Main(rank=1, size=2), StopSettings(actions=(action("drain"),)))
    stop.answers["look"] = lambda _: Look(**{**as_dict(stop.look()), "jobs": 3})
    stop.run()
    assert (signals(stop), stop.sent(Start)) == ([TERM, CONT], [])
    assert any("under 3 running jobs" in text for text in stop.logged())


def as_dict(look: Look) -> dict:
    return {name: getattr(look, name) for name in look.__struct_fields__}


def test_any_other_process_gets_sigterm_at_once_and_the_manager_decides_how_long_it_may_take():
    stop = Stop(Main(cleanup=40 * S), kind="other").run()
    assert (stop.terms(), stop.code, stop.sent(Query)) == ([0], 0, [])
    assert any("the service manager's own time decides" in text for text in stop.logged())


def test_a_sigterm_that_is_not_permitted_is_left_to_the_manager():
    stop = Stop(Main(), kind="other")
    stop.run(until_ns=0)
    stop.give(SignalFailed(TERM, 1))
    assert stop.code == 1
    assert "left to the service manager" in stop.logged()[-1]


def test_a_main_that_vanishes_under_the_sigterm_is_no_failure():
    stop = Stop(Main(), kind="other")
    stop.run(until_ns=0)
    stop.give(SignalFailed(TERM, 3))
    stop.give(MainGone())
    assert stop.code == 0


# ---- a main that can't be asked


def test_a_main_that_can_not_be_asked_gets_its_sigterm_after_the_patience_without_site_actions():
    stop = Stop(Main(), StopSettings(actions=(action("drain"),)))
    stop.answers["look"] = lambda _: None
    stop.run()
    assert (set(signals(stop)), stop.sent(Start), stop.code) == ({TERM, CONT}, [], 1)
    assert len(stop.terms()) == 1
    assert 5 * S <= stop.terms()[0] <= 8 * S


def test_a_main_that_is_stopped_is_continued_before_it_is_asked_again():
    stop = Stop(Main())
    stop.answers["look"] = lambda _: stop.look() if CONT in signals(stop) else None
    stop.run()
    assert (signals(stop), stop.code) == ([CONT, TERM, CONT], 0)


def test_a_helper_that_dies_is_asked_again_and_a_stop_under_way_is_still_joined():
    stop = Stop(Main("finalize", finalize=20 * S))
    asked = []
    stop.answers["look"] = lambda _: asked.append(0) or ("the helper has died" if len(asked) < 5 else stop.look())
    stop.settle()
    stop.run()
    assert (stop.terms(), stop.main.cut, stop.code) == ([], False, 0)


def test_an_answer_that_names_no_known_state_is_no_answer():
    stop = Stop(Main())
    stop.answers["look"] = lambda _: Look("dreaming")
    stop.run()
    assert stop.terms()[0] >= 5 * S


def test_a_question_is_answered_once_and_by_its_own_kind_alone():
    stop = Stop(Main())
    stop.answers["look"] = lambda query: Written(1) if query.query == 1 else stop.look()
    stop.run()
    assert len(stop.terms()) == 1
    assert stop.code == 0


def test_an_old_look_does_not_lead_back():
    stop = Stop(Main(cleanup=5 * S, finalize=5 * S))
    stop.answers["look"] = lambda _: Look("run") if stop.main.state == "finalize" else stop.look()
    stop.run()
    assert len(stop.terms()) == 1


def test_a_wrapper_that_can_not_see_any_more_waits_and_extends_only_while_something_is_written():
    stop = Stop(Main(cleanup=30 * S, finalize=60 * S))
    stop.answers["look"] = lambda _: stop.look() if stop.now_ns < 2 * S else "the helper has ended 4 times"
    stop.run()
    assert (len(stop.terms()), stop.code) == (1, 0)
    assert len(stop.notified("EXTEND_TIMEOUT_USEC")) >= 5


def test_a_stop_that_was_joined_is_extended_as_well_when_main_can_not_be_asked_any_more():
    stop = Stop(Main("cleanup", cleanup=30 * S, finalize=60 * S))
    stop.answers["look"] = lambda _: stop.look() if stop.now_ns < 2 * S else Look()
    stop.settle()
    stop.run()
    assert (stop.terms(), stop.code) == ([], 0)
    assert len(stop.notified("EXTEND_TIMEOUT_USEC")) >= 5
    assert len([text for text in stop.logged() if "main can't be asked any more" in text]) == 1


# ---- the site's actions


def test_site_actions_run_before_the_sigterm():
    stop = Stop(Main(), StopSettings(actions=(action("one"), action("two"))))
    stop.runs = {"stop.0": 1 * S, "stop.1": 2 * S}
    stop.run()
    assert stop.terms()[0] >= 3 * S
    assert stop.code == 0
    assert any("site action 2/2" in text for _, text in stop.notified("STATUS"))


def test_site_actions_are_cut_off_at_their_timeout_and_the_stop_goes_on_and_exits_with_1():
    stop = Stop(Main(), StopSettings(actions=(action("stuck"), action("next"), action("vital", essential=True))))
    stop.runs = {"stop.0": None, "stop.1": 1 * S}
    stop.run()
    assert [each.command.text for each in stop.sent(Start)] == ["stuck", "vital"]
    assert 10 * S <= stop.terms()[0] <= 25 * S
    assert stop.code == 1


def test_a_helper_that_dies_under_long_site_actions_is_asked_again_before_the_sigterm():
    stop = Stop(Main(cleanup=20 * S), StopSettings(actions=(action("slow"),), actions_timeout_ns=60 * S))
    stop.runs = {"stop.0": 30 * S}
    stop.at(20 * S, lambda: stop.enter("cleanup", "run"))
    stop.answers["look"] = lambda _: "the helper has died" if 30 * S < stop.now_ns < 33 * S else stop.look()
    stop.run()
    assert stop.terms() == []


def test_an_answer_without_a_state_after_the_site_actions_is_none_whatever_was_known_before():
    stop = Stop(Main(cleanup=20 * S), StopSettings(actions=(action("slow"),)))
    stop.runs = {"stop.0": 3 * S}
    stop.at(2 * S, lambda: stop.enter("cleanup", "run"))
    stop.answers["look"] = lambda _: Look() if 3 * S < stop.now_ns < 5 * S else stop.look()
    stop.run()
    assert (stop.terms(), stop.code) == ([], 0)


def test_a_stop_that_begins_while_site_actions_run_is_joined():
    stop = Stop(Main(cleanup=20 * S), StopSettings(actions=(action("slow"),)))
    stop.runs = {"stop.0": 5 * S}
    stop.at(2 * S, lambda: stop.enter("cleanup", "run"))
    stop.run()
    assert (signals(stop), stop.code) == ([], 0)


def test_a_main_that_ends_by_itself_under_the_site_actions_leaves_them_their_time():
    stop = Stop(Main(), StopSettings(actions=(action("slow"),)), kind="other")
    stop.runs = {"stop.0": 5 * S}
    stop.at(2 * S, lambda: stop.give(MainGone()))
    stop.run()
    assert (signals(stop), stop.code, stop.now_ns >= 5 * S) == ([], 0, True)


# ---- being told to end


@pytest.mark.parametrize("at_ns", [5 * MS, 500 * MS, 1500 * MS])
def test_told_to_end_it_exits_with_75_at_once_and_sends_nothing_more(at_ns):
    stop = Stop(Main())
    stop.at(at_ns, stop.told_to_end)
    stop.run()
    assert (stop.code, stop.now_ns) == (75, at_ns)
    assert len(stop.terms()) <= 1


def test_told_to_end_under_site_actions_it_leaves_none_behind():
    stop = Stop(Main(), StopSettings(actions=(action("slow"),)))
    stop.runs = {"stop.0": None}
    stop.at(2 * S, stop.told_to_end)
    stop.run()
    assert stop.code == 75
    assert [(order.run, order.signum) for order in stop.sent(Kill)] == [("stop.0", KILL)]


# ---- what the service manager shows


def test_the_last_status_before_the_sigterm_is_ours_and_mains_first_one_comes_after_it():
    stop = Stop(Main(cleanup=40 * S)).run()
    told = [effect for _, effect in stop.effects if isinstance(effect, Notify | SignalMain)]
    assert told[0].text == "STATUS=brokerctl stop: SIGTERM to main (pid 4711)"
    assert told[1] == SignalMain(TERM)


def test_a_new_status_of_mains_stands_for_a_look_before_ours_hides_it():
    """One that came right after it, unseen, would be lost otherwise: and it alone names the running action."""
    stop = Stop(Main(cleanup=8 * S))
    stop.answers["look"] = lambda _: Look(
        **{**as_dict(stop.look()), "text": "" if stop.main.state == "run" else f"Running {stop.now_ns // (4 * S)}"}
    )
    stop.run()
    seen: dict[str, int] = {}
    for at, event in stop.events:
        if isinstance(event, Answered) and isinstance(event.answer, Look) and event.answer.text:
            seen.setdefault(event.answer.text, at)
    for text in ("Running 0", "Running 1"):
        quoted_ns = [at for at, said in stop.notified("STATUS") if said.endswith(text)]
        assert quoted_ns[0] - seen[text] >= 1 * S
    assert not [at for at, _ in stop.notified("STATUS") if seen["Running 1"] <= at < quoted_ns[0]]


# ---- codes and reports


def test_a_failed_cleanup_of_the_service_behind_its_exit_code_is_exit_1():
    stop = Stop(Main())
    stop.answers["after"] = lambda _: Report(failed="cleanup")
    assert stop.run().code == 1


def test_reports_are_told_line_by_line_with_their_level_and_bounded():
    stop = Stop(Main())
    stop.answers["before"] = lambda _: Report(("<4>3 jobs of alice", "x" * 5000, *["more"] * 200))
    stop.run()
    told = stop.logged()
    assert told[0] == "3 jobs of alice"
    assert max(map(len, told)) <= 400
    assert len(told) <= 60


def test_a_report_that_takes_its_time_does_not_hold_the_sigterm():
    stop = Stop(Main())
    stop.answers["before"] = lambda query: (
        stop.after(1 * S, lambda: stop.give(_answered(query, Report(("late",))))) and None
    )
    stop.run()
    assert stop.terms()[0] < 200 * MS
    assert "late" in stop.logged()


def _answered(query: Query, report: Report):
    return Answered(query.query, report)


def test_no_report_at_the_end_costs_two_seconds_at_most():
    stop = Stop(Main())
    stop.answers["after"] = lambda _: None
    stop.run()
    assert stop.code == 0
    assert stop.now_ns - stop.main.history[-1][0] <= 2100 * MS


def test_what_was_wrong_with_the_configuration_is_exit_1_and_no_reason_not_to_stop():
    stop = Stop(Main())
    stop.give(Aimed("flux", 4711, "main", "stop.toml: others may write it"))
    stop.run()
    assert (len(stop.terms()), stop.code) == (1, 1)


def test_what_is_told_to_a_wrapper_that_has_exited_is_not_there_any_more():
    stop = Stop(Main()).run()
    assert isinstance(stop.effects[-1][1], Exit)
    assert not [event for _, event in stop.events if isinstance(event, Exited | Signal)]
    assert len(stop.sent(SignalMain)) == 2


def test_the_report_at_the_end_gets_the_times_of_the_states_and_what_was_done():
    stop = Stop(Main(cleanup=10 * S, finalize=5 * MINUTE)).run()
    words = next(query.words for query in stop.sent(Query) if query.what == "after")
    told = dict(word.split("=", 1) for word in words)
    assert abs(int(told["state.cleanup"]) - 10 * S) < 1 * S
    assert 5 * MINUTE - 2 * S < int(told["state.finalize"]) < 5 * MINUTE + 2 * S
