"""What a broker posts and when: reasons, signals in every state, requests, limits, exit codes (FLUX.md A, C, D)."""

import pytest

from brokerctl.durations import MS, S
from brokerctl.records import Answer, Asked, Ignored, OutputEnded
from tests.driver import HUP, TERM, Driver, action, settings

RC1, RC2, ONE, RC3 = (action("rc1"),), (action("rc2"),), (action("one"),), (action("rc3"),)


def answers(driver):
    return [answer.body for answer in driver.of(Answer)]


def test_a_start_and_a_clean_stop_walk_the_states_in_flux_order():
    driver = Driver(settings(rc1=RC1, cleanup=ONE, rc3=RC3)).until_run()
    driver.signal()
    assert driver.finish() == 0
    assert driver.moves == [
        "builtins-success: load-builtins->join",
        "parent-none: join->config-sync",
        "sync-none: config-sync->init",
        "rc1-success: init->quorum",
        "quorum-full: quorum->run",
        "shutdown: run->cleanup",
        "cleanup-success: cleanup->shutdown",
        "children-none: shutdown->finalize",
        "rc3-success: finalize->goodbye",
        "goodbye: goodbye->unload-builtins",
        "builtins-done: unload-builtins->exit",
    ]


def test_empty_lists_are_none_events():
    driver = Driver(settings()).until_run()
    driver.signal()
    assert driver.code == 0
    events = [move.partition(":")[0] for move in driver.moves]
    assert {"rc1-none", "cleanup-none", "rc3-none"} <= set(events)
    assert [(ignored.event, ignored.state) for ignored in driver.of(Ignored)] == [("rc2-none", "run")]


@pytest.mark.parametrize(("rc", "event"), [(0, "rc2-success"), (3, "rc2-fail")])
def test_rc2_ends_the_run_by_itself_and_its_code_is_the_brokers(rc, event):
    driver = Driver(settings(rc2=RC2, cleanup=ONE, cleanup_timeout_ns=5)).until_run()
    driver.exits("rc2.0", rc)
    assert driver.moves[-1] == f"{event}: run->cleanup"
    assert "cleanup-timeout" not in driver.timers, "no signal started this stop"
    assert driver.finish() == rc


# ---- signals in every state


def test_a_signal_before_run_skips_cleanup():
    driver = Driver(settings(rc1=RC1, cleanup=ONE, rc3=RC3)).boot()
    driver.signal()
    assert driver.kills == [("rc1.0", HUP)]
    driver.exits("rc1.0", by=HUP)
    assert driver.moves[3:5] == ["rc1-fail: init->shutdown", "children-none: shutdown->finalize"]
    assert driver.finish() == 129


def test_a_signal_in_quorum_fails_it_with_exit_0():
    driver = Driver(settings(cleanup=ONE, rc3=RC3)).boot()
    assert driver.state == "quorum"
    driver.signal()
    assert "quorum-fail: quorum->shutdown" in driver.moves
    driver.exits("rc3.0", 0)
    assert driver.effects[-1].code == 0


def test_a_signal_in_run_hangs_up_rc2():
    driver = Driver(settings(rc2=RC2, cleanup=ONE)).until_run()
    driver.signal()
    assert driver.kills == [("rc2.0", HUP)]
    assert driver.state == "run"
    driver.exits("rc2.0", by=HUP)
    assert driver.moves[-1] == "rc2-fail: run->cleanup"
    assert driver.finish() == 129


@pytest.mark.parametrize("signum", [1, 2, 3, 14, 15])
def test_terminating_signals_stop_the_broker(signum):
    driver = Driver(settings(cleanup=ONE)).until_run()
    driver.signal(signum)
    assert driver.logs[-1] == f"signal {signum}"
    assert driver.state == "cleanup"


@pytest.mark.parametrize("signum", [10, 12, 13, 18])
def test_other_signals_do_not_stop_the_leader(signum):
    driver = Driver(settings(cleanup=ONE)).until_run()
    driver.signal(signum)
    assert driver.state == "run"
    assert (driver.logs[-1] == f"signal {signum}") == (signum in {10, 12})


def test_a_second_signal_in_cleanup_aborts_it():
    driver = Driver(settings(cleanup=(*ONE, *ONE))).until_run()
    driver.signal()
    driver.signal(after_s=4)
    assert driver.kills == [("cleanup.0", HUP)]
    driver.exits("cleanup.0", by=HUP)
    assert "cleanup-fail: cleanup->shutdown" in driver.moves
    assert driver.code == 129


def test_a_signal_in_finalize_aborts_rc3():
    driver = Driver(settings(rc3=RC3)).until_run()
    driver.signal()
    assert driver.state == "finalize"
    driver.signal(after_s=5)
    driver.exits("rc3.0", by=HUP)
    assert "rc3-fail: finalize->goodbye" in driver.moves
    assert driver.code == 129


# ---- the cleanup timeout and who it applies to


def test_the_cleanup_timeout_is_armed_only_if_a_signal_started_the_stop():
    made = settings(cleanup=ONE, cleanup_timeout_ns=45 * S)
    signalled, requested = Driver(made).until_run(), Driver(made).until_run()
    signalled.signal()
    requested.give(Asked("shutdown", 1))
    assert signalled.timers["cleanup-timeout"].after_ns == 45 * S
    assert "cleanup-timeout" not in requested.timers
    assert signalled.finish() == requested.finish() == 0, "within the budget it changes nothing"


def test_a_timeout_of_zero_aborts_the_first_action_at_once():
    driver = Driver(settings(cleanup=ONE, cleanup_timeout_ns=0)).until_run()
    driver.signal()
    assert driver.due["cleanup-timeout"] == driver.now_ns
    driver.fire("cleanup-timeout")
    driver.exits("cleanup.0", by=HUP)
    assert driver.code == 129


def test_flux_a_signal_in_a_requested_cleanup_aborts_it():
    driver = Driver(settings(cleanup=ONE, cleanup_timeout_ns=45 * S)).until_run()
    driver.give(Asked("shutdown", 1))
    driver.signal()
    assert driver.kills == [("cleanup.0", HUP)]


def test_hardened_a_signal_in_a_requested_cleanup_arms_the_timeout_and_aborts_nothing():
    driver = Driver(settings("hardened", cleanup=ONE)).until_run()
    driver.give(Asked("shutdown", 1))
    driver.signal(after_s=100)
    assert driver.kills == []
    assert driver.due["cleanup-timeout"] == driver.now_ns + 45 * S, "from that moment"
    driver.signal(after_s=2)
    assert driver.kills == [("cleanup.0", HUP)], "another signal asks for the end"


def test_hardened_two_equal_signals_within_a_second_are_one():
    driver = Driver(settings("hardened", cleanup=ONE)).until_run()
    driver.signal()
    for _ in range(5):
        driver.signal(after_s=0.04)
    assert driver.kills == []
    driver.signal(HUP)
    assert driver.kills == [("cleanup.0", HUP)], "another signal is another"


def test_hardened_no_signal_aborts_rc3_but_its_timeout_is_armed():
    driver = Driver(settings("hardened", rc3=RC3)).until_run()
    driver.give(Asked("shutdown", 1))
    assert driver.state == "finalize"
    assert "finalize-timeout" not in driver.timers, "a request waits"
    driver.signal()
    driver.signal(after_s=10)
    assert driver.kills == []
    driver.fire("finalize-timeout")
    assert driver.kills == [("rc3.0", HUP)]
    driver.exits("rc3.0", by=HUP, emptied=True)
    assert driver.code == 129


# ---- requests


def test_a_request_stops_a_running_broker_and_a_second_one_is_refused():
    driver = Driver(settings(cleanup=ONE)).until_run()
    driver.give(Asked("shutdown", 1))
    driver.give(Asked("shutdown", 2))
    assert answers(driver) == [{}, {"error": "shutdown is already in progress"}]
    assert driver.finish() == 0


def test_a_request_before_run_is_refused():
    driver = Driver(settings(rc1=RC1)).boot()
    driver.give(Asked("shutdown", 1))
    assert answers(driver) == [{"error": "shutdown cannot be initiated in state init"}]


def test_a_request_hangs_up_rc2():
    driver = Driver(settings(rc2=RC2)).until_run()
    driver.give(Asked("shutdown", 1))
    assert driver.kills == [("rc2.0", HUP)]
    driver.give(Asked("shutdown", 2))
    assert answers(driver)[-1] == {"error": "shutdown is already in progress"}
    driver.exits("rc2.0", by=HUP)
    assert driver.code == 129


def test_a_pushed_action_goes_before_the_others_the_last_one_first():
    driver = Driver(settings(cleanup=ONE)).until_run()
    driver.give(Asked("cleanup-push", 1, ("first; exit 9",)))
    driver.give(Asked("cleanup-push", 2, ("second", "--arg")))
    driver.signal()
    driver.finish()
    assert driver.started == ["second --arg", "first; exit 9", "one"]
    assert driver.of(Answer)[0].body == {}


def test_a_push_without_a_list_makes_one():
    driver = Driver(settings()).until_run()
    driver.give(Asked("cleanup-push", 1, ("late",)))
    driver.signal()
    assert driver.running == ["cleanup.0"]
    assert driver.finish() == 0


def test_a_push_to_a_running_list_is_refused():
    driver = Driver(settings(cleanup=ONE)).until_run()
    driver.signal()
    driver.give(Asked("cleanup-push", 1, ("late",)))
    assert answers(driver) == [{"error": "cleanup actions cannot be added in state cleanup"}]
    driver.finish()
    assert driver.started == ["one"]


def test_an_empty_push_and_an_unknown_request_are_refused():
    driver = Driver(settings()).until_run()
    driver.give(Asked("cleanup-push", 1, (" ",)))
    driver.give(Asked("dance", 2))
    assert answers(driver) == [{"error": "the command is empty"}, {"error": "unknown request 'dance'"}]


def test_status_tells_state_action_time_left_and_what_is_waited_for():
    driver = Driver(settings("hardened", cleanup=(*ONE, *ONE), rc2=RC2)).until_run()
    driver.exits("rc2.0", 3)
    driver.now_ns += 7 * S
    driver.give(Asked("status", 1))
    body = answers(driver)[0]
    assert body["state"] == "cleanup"
    assert body["held_ns"] == 7 * S
    assert body["left_ns"] is None, "not signal-initiated: without limit"
    assert body["running"][0]["run"] == "cleanup.0"
    assert body["running"][0]["for_ns"] == 7 * S
    assert body["pending"] == {"cleanup": 2}
    assert body["failed"] == {"rc2": "rc2.0: rc2"}
    assert body["code"] == 3


# ---- exit codes


@pytest.mark.parametrize("policy", ["flux", "hardened"])
@pytest.mark.parametrize(("rc", "by_request", "expected"), [(0, True, 42), (5, True, 42), (0, False, 0), (5, False, 5)])
def test_exit_norestart_stands_after_a_request_only(policy, rc, by_request, expected):
    driver = Driver(settings(policy, cleanup=ONE, exit_norestart=42)).until_run()
    driver.give(Asked("shutdown", 1)) if by_request else driver.signal()
    driver.exits("cleanup.0", rc)
    assert driver.code == expected
    told = "exit code 42 (exit-norestart) stands for a failure with 5" in driver.logs
    assert told == (policy == "hardened" and by_request and rc == 5), "never hidden silently"


def test_exit_norestart_stands_after_a_failed_rc1():
    driver = Driver(settings(rc1=RC1, exit_norestart=42)).boot()
    driver.exits("rc1.0", 3)
    assert driver.code == 42


def test_a_panic_sets_exit_1_and_overrides():
    driver = Driver(settings(rc3=RC3)).until_run()
    driver.give(Asked("panic"))
    assert "panic: run->shutdown" in driver.moves
    driver.exits("rc3.0", 7)
    assert driver.code == 1


def test_flux_never_disarms_the_shutdown_timeout_and_hardened_does():
    driver = Driver(settings(rc3=RC3, shutdown_timeout_ns=1 * S)).until_run()
    driver.signal()
    driver.fire("shutdown-timeout")
    assert driver.logs[-1] == "shutdown timeout"
    assert driver.effects[-1] == Ignored("children-complete", "finalize")
    assert driver.finish() == 0
    driver = Driver(settings("hardened", rc3=RC3, shutdown_timeout_ns=1 * S)).until_run()
    driver.signal()
    assert "shutdown-timeout" not in driver.timers


def test_no_handle_leaves_work_half_done_when_everything_ends_at_once():
    driver = Driver(settings(online_batch_ns=100 * MS)).boot()
    driver.signal(TERM)
    assert driver.state == "exit"
    assert not driver.of(OutputEnded)
