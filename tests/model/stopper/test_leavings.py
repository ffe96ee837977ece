"""What the wrapper leaves behind, and the small print of its times: timers, actions, who is signalled, progress."""

from __future__ import annotations

from itertools import pairwise

import pytest

from brokerctl.durations import MINUTE, MS, S
from brokerctl.records import Abandon, Arm, Kill, KillHolder, Log, MainGone, Observed, Query
from brokerctl.records.stops import Limits, Look, Written
from brokerctl.settings import Rung, StopSettings
from tests.driver import action
from tests.model.stopper.test_decisions import as_dict
from tests.stopping import CONT, HUP, KILL, TERM, Main, Stop

FLUX = Limits(cleanup_timeout_ns=45 * S, shutdown_timeout_ns=5 * MINUTE)


def armed(stop: Stop) -> set[str]:
    return {name for name in stop._armed if not name.startswith("query ")}


@pytest.mark.parametrize(
    ("main", "at_ns", "timer"),
    [
        (Main("finalize", finalize=1 * MINUTE), 10 * S, "look"),
        (Main(frozen=(1,), size=2, limits=FLUX), 10 * S, "shed"),
        (Main(holder=KILL, limits=FLUX), 10 * S, "holders"),
    ],
)
def test_when_main_has_gone_no_timer_is_left_whichever_were_armed(main, at_ns, timer):
    stop = Stop(main)
    stop.run(until_ns=at_ns)
    assert timer in armed(stop)
    stop.give(MainGone())
    assert armed(stop) == set()


def test_when_main_goes_while_its_report_is_waited_for_it_gets_no_sigterm():
    stop = Stop(Main())
    stop.answers["before"] = lambda _: None
    stop.run(until_ns=50 * MS)
    assert armed(stop) == {"before"}
    stop.give(MainGone())
    assert armed(stop) == set()
    assert stop.run().main.signals == []


def test_when_a_main_has_gone_that_could_not_be_asked_it_is_not_asked_again():
    stop = Stop(Main())
    stop.answers["look"] = lambda _: "no answer"
    stop.run(until_ns=100 * MS)
    assert armed(stop) == {"ask"}
    stop.give(MainGone())
    assert armed(stop) == set()


def test_when_a_process_of_another_kind_has_gone_nothing_is_armed_any_more():
    stop = Stop(Main(cleanup=40 * S), kind="other")
    stop.run(until_ns=1 * S)
    assert armed(stop) == {"still-there"}
    stop.give(MainGone())
    assert armed(stop) == set()


def test_told_to_end_it_kills_the_group_of_the_action_that_runs_and_waits_for_nothing():
    stop = Stop(Main(), StopSettings(actions=(action("slow"),)))
    stop.runs = {"stop.0": None}
    stop.at(2 * S, stop.told_to_end)
    stop.run()
    assert stop.sent(Kill) == [Kill("stop.0", KILL, "group")]
    assert stop.sent(Abandon) == [Abandon("stop.0")]


def test_an_action_that_is_aborted_gets_the_first_rung_first():
    stop = Stop(Main(), StopSettings(actions=(action("hangs"),)))
    stop.runs = {"stop.0": None}
    stop.run()
    assert [order.signum for order in stop.sent(Kill)] == [HUP]


def test_a_process_of_another_kind_gets_its_sigterm_after_the_site_actions_and_is_never_asked():
    stop = Stop(Main(), StopSettings(actions=(action("drain"),)), kind="other")
    stop.runs = {"stop.0": 3 * S}
    stop.run()
    assert (len(stop.terms()), stop.sent(Query)) == (1, [])
    assert stop.terms()[0] >= 3 * S


def test_the_report_gets_how_long_the_stop_took_and_not_what_time_it_was():
    stop = Stop(Main(cleanup=10 * S))
    stop.now_ns = 600 * S
    stop.run()
    words = next(query.words for query in stop.sent(Query) if query.what == "after")
    took_ns = int(next(word for word in words if word.startswith("took=")).partition("=")[2])
    assert 10 * S <= took_ns <= 14 * S


def test_a_report_that_fails_does_not_hold_the_sigterm_and_nothing_is_told_of_it():
    stop = Stop(Main())
    stop.answers["before"] = lambda _: "cannot ask"
    stop.run()
    assert stop.terms()[0] < 100 * MS
    assert (stop.logged(), stop.code) == ([], 0)


# ---- what is seen of main


def test_each_state_that_is_seen_is_a_fact_of_the_trace_with_how_long_the_one_before_lasted():
    stop = Stop(Main(cleanup=10 * S, finalize=20 * S)).run()
    seen = stop.sent(Observed)
    assert [(fact.old, fact.new) for fact in seen] == [("run", "cleanup"), ("cleanup", "finalize")]
    assert seen[0].held_ns < 100 * MS
    assert 10 * S - 100 * MS <= seen[1].held_ns <= 10 * S + 100 * MS


def test_peers_are_asked_for_in_shutdown_alone_and_every_5_seconds():
    stop = Stop(Main(cleanup=20 * S, shutdown=22 * S, finalize=20 * S)).run()
    began, ended = (next(at for at, state in stop.main.history if state == name) for name in ("shutdown", "finalize"))
    asked = [at for at, effect in stop.effects if isinstance(effect, Query) and effect.what == "peers"]
    assert all(began <= at <= ended + 2 * S for at in asked)
    assert len(asked) in {4, 5}
    assert min(later - earlier for earlier, later in pairwise(asked)) >= 5 * S


def test_a_main_that_answers_but_never_says_its_state_is_given_time_as_one_that_may_be_saving():
    stop = Stop(Main(finalize=1 * MINUTE))
    stop.answers["look"] = lambda _: Look("run" if stop.now_ns < S else "", limits=FLUX)
    stop.run(until_ns=30 * S)
    first = stop.notified("EXTEND_TIMEOUT_USEC")[0][0]
    assert 5 * S <= first <= 7 * S, "after five looks in vain"


def test_an_answer_of_another_kind_is_no_answer_and_said_to_who_debugs():
    stop = Stop(Main(cleanup=10 * S))
    stop.answers["look"] = lambda _: Written(1) if 3 * S < stop.now_ns < 4 * S else stop.look()
    stop.run()
    assert "no look at main: the answer is a Written" in [log.text for log in stop.sent(Log)]
    assert stop.code == 0


# ---- who holds CLEANUP


def test_a_holder_is_signalled_as_the_process_that_was_listed_and_not_by_its_pid_alone():
    stop = Stop(Main(holder=KILL, limits=FLUX)).run()
    assert [(order.pid, order.started) for order in stop.sent(KillHolder)] == [(99, 5)] * 3


def test_a_rung_is_over_when_its_time_is_and_not_at_the_next_full_second():
    ladder = (Rung(HUP, 300 * MS), Rung(TERM, 400 * MS), Rung(KILL, 300 * MS))
    stop = Stop(Main(holder=KILL, limits=FLUX), StopSettings(ladder=ladder)).run()
    at = [time_ns for time_ns, effect in stop.effects if isinstance(effect, KillHolder)]
    assert 300 * MS <= at[1] - at[0] <= 400 * MS
    assert 400 * MS <= at[2] - at[1] <= 500 * MS


def test_while_the_ladder_is_climbed_that_is_work_and_after_its_last_rung_it_is_none():
    stop = Stop(Main(holder=99, limits=FLUX)).run(until_ns=75 * S)
    arms = [(at, effect) for at, effect in stop.effects if isinstance(effect, Arm) and effect.timer == "holders"]
    timers = [(at, effect.reminder) for at, effect in arms]
    last = max(at for at, effect in stop.effects if isinstance(effect, KillHolder))
    assert not any(reminder for at, reminder in timers if at <= last)
    assert all(reminder for at, reminder in timers if at > last + 6 * S)


def test_holders_are_looked_for_since_main_was_last_seen_in_run_where_it_does_not_tell_since_when_it_cleans_up():
    stop = Stop(Main(holder=HUP, limits=FLUX))
    stop.answers["look"] = lambda _: Look(**{**as_dict(stop.look()), "held_ns": None})
    stop.run()
    began = next(at for at, state in stop.main.history if state == "cleanup")
    (since,) = next(query.words for query in stop.sent(Query) if query.what == "holders")
    assert int(since) <= began


# ---- what saves state


def stalled(*written: Written) -> int:
    """How long a FINALIZE counts as stalled after a minute in which it has written so much, a step each second."""
    stop = Stop(Main(finalize=2 * MINUTE, writes=False, limits=FLUX))
    stop.answers["written"] = lambda _: written[min(stop.now_ns // S, len(written) - 1)]
    stop.run(until_ns=60 * S)
    return round(stop.stopper.watch.stalled_ns() / S)


STEP = 256 << 10


@pytest.mark.parametrize(
    ("made", "is_progress"),
    [
        (lambda _: Written(), False),
        (lambda second: Written(storage=second), True),
        (lambda second: Written(anywhere=second * STEP), True),
        (lambda second: Written(anywhere=(100 - second) * STEP), True),  # one that wrote has ended
        (lambda second: Written(anywhere=second * 100_000), True),  # little at a time, but all the time
        (lambda second: Written(anywhere=second * 4_000), False),  # what one that idles writes
    ],
)
def test_what_counts_as_progress_is_any_byte_to_storage_and_more_than_an_idle_main_writes_elsewhere(made, is_progress):
    seconds = stalled(*(made(second) for second in range(70)))
    assert (seconds <= 3) if is_progress else (seconds >= 55)


def test_what_one_that_idles_writes_never_adds_up_to_progress():
    stop = Stop(Main(finalize=60 * MINUTE, writes=False, limits=FLUX))
    stop.answers["written"] = lambda _: Written(anywhere=stop.now_ns // S * 2_000)
    stop.run(until_ns=30 * MINUTE)
    began = next(at for at, state in stop.main.history if state == "finalize")
    extended = [at + int(usec) * 1000 for at, usec in stop.notified("EXTEND_TIMEOUT_USEC")]
    assert max(extended) <= began + 5 * MINUTE + 2 * S


def test_a_main_that_is_still_seen_in_run_after_its_sigterm_is_told_so():
    stop = Stop(Main(cleanup=1 * MINUTE))
    stop.answers["look"] = lambda _: Look("run", limits=FLUX)
    stop.run(until_ns=10 * S)
    assert stop.notified("STATUS")[-1][1] == "brokerctl stop: SIGTERM was sent"
    assert [signum for _, signum in stop.main.signals] == [TERM, CONT]


def test_a_main_of_which_nothing_is_known_is_called_main_where_it_stalls_and_where_it_goes_on():
    stop = Stop(Main(cleanup=2 * MINUTE))
    stop.answers["look"] = lambda _: "no answer"
    stop.answers["written"] = lambda _: Written(storage=int(stop.now_ns > 45 * S))
    stop.run(until_ns=60 * S)
    stalled_line, goes_on = stop.logged()[-2:]
    assert stalled_line.startswith("main: no progress for 3")
    assert stalled_line.endswith("s; nothing is sent")
    assert goes_on == "main: it makes progress again"


def test_time_is_asked_for_again_every_ten_seconds_and_not_with_every_look():
    stop = Stop(Main(finalize=1 * MINUTE, limits=FLUX)).run()
    times = [at for at, _ in stop.notified("EXTEND_TIMEOUT_USEC")]
    assert min(later - earlier for earlier, later in pairwise(times)) >= 10 * S
    assert max(later - earlier for earlier, later in pairwise(times)) <= 12 * S
