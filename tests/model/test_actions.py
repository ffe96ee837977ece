"""Ordered lists of commands: FLUX.md B."""

import os
import signal

import pytest

from brokerctl.durations import S
from brokerctl.model import words
from brokerctl.model.actions import ActionList
from brokerctl.records import KillFailed, Log, Output, OutputEnded, SpawnFailed
from tests.driver import HUP, KILL, TERM, Driver, action, settings

THREE = (action("one"), action("two"), action("three"))


def test_actions_run_in_order_and_a_failing_one_does_not_stop_the_next():
    driver = Driver(settings(cleanup=THREE)).until_run()
    driver.signal()
    driver.exits("cleanup.0", 5)
    driver.exits("cleanup.1", 9)
    driver.exits("cleanup.2", 0)
    assert driver.started == ["one", "two", "three"]
    assert driver.code == 5, "the list's code is the first nonzero one (FLUX.md 17)"


def test_the_exit_code_is_the_first_nonzero_of_rc2_cleanup_rc3():
    made = settings(rc2=(action("rc2"),), cleanup=(action("c"),), rc3=(action("rc3"),))
    for codes, expected in (((3, 5, 7), 3), ((0, 5, 7), 5), ((0, 0, 7), 7), ((0, 0, 0), 0)):
        driver = Driver(made).until_run()
        for run, rc in zip(("rc2.0", "cleanup.0", "rc3.0"), codes, strict=True):
            driver.exits(run, rc)
        assert driver.code == expected


def test_who_is_named_at_the_end_is_whose_code_it_is():
    """The cleanup list is made first, by what is configured; it fails second."""
    driver = Driver(settings("hardened", rc2=(action("rc2"),), cleanup=(action("c"),))).until_run()
    driver.exits("rc2.0", 7)
    driver.exits("cleanup.0", 3)
    assert driver.code == 7
    assert driver.logs[-1] == "exit code 7: the first to fail was rc2.0: rc2"


@pytest.mark.parametrize("rc", [0, 1, 2, 32, 64, 126, 127, 128, 129, 254, 255])
def test_every_exit_code_of_an_action_becomes_the_brokers(rc):
    driver = Driver(settings(cleanup=(action("c"),))).until_run()
    driver.signal()
    driver.exits("cleanup.0", rc)
    assert driver.ended == [("cleanup.0", rc, "Exited")]
    assert driver.code == rc


@pytest.mark.parametrize("signum", [1, 2, 3, 6, 9, 11, 15, 31])
@pytest.mark.parametrize("core", [0, 0x80])
def test_death_by_a_signal_counts_as_128_plus_its_number(signum, core):
    driver = Driver(settings(cleanup=(action("c"),))).until_run()
    driver.signal()
    driver.exits("cleanup.0", by=signum | core)
    assert driver.ended == [("cleanup.0", 128 + signum, signal.strsignal(signum))]
    assert driver.code == 128 + signum


def test_an_action_is_complete_only_when_it_exited_and_its_output_ended():
    driver = Driver(settings(cleanup=(action("c"),))).until_run()
    driver.signal()
    driver.give(OutputEnded("cleanup.0"))
    assert driver.state == "cleanup"
    driver.exits_only("cleanup.0")
    assert driver.state == "exit"

    driver = Driver(settings(cleanup=(action("c"),))).until_run()
    driver.signal()
    driver.exits_only("cleanup.0")
    assert driver.state == "cleanup", "a child still holds its output (FLUX.md 22)"
    driver.give(OutputEnded("cleanup.0"))
    assert driver.code == 0


@pytest.mark.parametrize(("errno", "rc"), [(2, 127), (13, 126), (8, 126), (7, 126)])
def test_a_command_that_cannot_be_started_counts_127_or_126(errno, rc):
    driver = Driver(settings(rc1=(action("flux modprobe rc1"),))).boot()
    driver.give(SpawnFailed("rc1.0", errno))
    assert driver.ended == [("rc1.0", rc, f"error launching process: {os.strerror(errno)}")]
    assert driver.moves[3:] == [
        "rc1-fail: init->shutdown",
        "children-none: shutdown->finalize",
        "rc3-none: finalize->goodbye",
        "goodbye: goodbye->unload-builtins",
        "builtins-done: unload-builtins->exit",
    ]
    assert driver.code == rc


def test_an_abort_drops_the_rest_which_never_run_nor_are_logged():
    driver = Driver(settings(cleanup=THREE, cleanup_timeout_ns=3)).until_run()
    driver.signal()
    driver.fire("cleanup-timeout")
    assert driver.kills == [("cleanup.0", HUP)]
    driver.exits("cleanup.0", by=HUP)
    assert driver.started == ["one"]
    assert driver.logs[-1] == "signal 15"
    assert driver.code == 129


@pytest.mark.parametrize(
    ("rc", "expected"), [(0, (1, "aborted after exit with rc=0")), (4, (4, "Exited")), (7, (7, "Exited"))]
)
def test_an_aborted_action_that_exits_0_counts_1_and_another_code_is_kept(rc, expected):
    driver = Driver(settings(cleanup=THREE, cleanup_timeout_ns=3)).until_run()
    driver.signal()
    driver.fire("cleanup-timeout")
    driver.exits("cleanup.0", rc)
    assert driver.ended == [("cleanup.0", *expected)]
    assert driver.code == expected[0]


def test_output_lines_are_logged_with_the_actions_name():
    driver = Driver(settings(cleanup=(action("c"),))).until_run()
    driver.signal()
    driver.give(Output("cleanup.0", "out", "hello"))
    driver.give(Output("cleanup.0", "err", "oops"))
    driver.give(OutputEnded("cleanup.0", dropped=1_000_000))
    driver.exits_only("cleanup.0")
    assert driver.logs[2:] == [
        "cleanup.0: hello",
        "cleanup.0: oops",
        "cleanup.0: 1000000 more bytes of output were not logged",
    ]


def test_without_a_ladder_an_action_that_ignores_hangup_is_waited_for_and_each_signal_sends_it_again():
    driver = Driver(settings(cleanup=THREE, cleanup_timeout_ns=3)).until_run()
    driver.signal()
    driver.fire("cleanup-timeout")
    driver.signal(after_s=5)
    driver.signal(after_s=5)
    assert driver.kills == [("cleanup.0", HUP)] * 3, "FLUX.md 27: SIGHUP again, no SIGKILL ever"
    assert driver.timers == {}, "nothing bounds it (letter a)"
    driver.exits("cleanup.0", 7, after_s=60)
    assert driver.code == 7


# ---- hardened: the ladder, its scope, and what is left


def hardened(*actions, **fields):
    return Driver(settings("hardened", cleanup=actions, **fields)).until_run()


def test_the_ladder_climbs_hangup_term_kill_each_with_its_time():
    driver = hardened(*THREE)
    driver.signal()
    driver.fire("cleanup-timeout")
    begun_ns = driver.now_ns
    waits = []
    while "ladder cleanup.0" in driver.timers:
        waits.append(driver.timers["ladder cleanup.0"].after_ns)
        driver.fire("ladder cleanup.0")
    assert driver.kills == [("cleanup.0", HUP), ("cleanup.0", TERM), ("cleanup.0", KILL)]
    assert driver.now_ns - begun_ns == sum(waits)
    assert driver.ended == [("cleanup.0", 137, "still running")], "never a hang, never success"
    assert any("still running after SIGHUP, SIGTERM, SIGKILL" in text for text in driver.logs)
    assert driver.code == 137


def test_a_signal_during_a_ladder_advances_one_rung_and_on_the_last_one_waits():
    driver = hardened(*THREE)
    driver.signal()
    driver.fire("cleanup-timeout")
    driver.signal(after_s=1.5)
    assert driver.kills[-1] == ("cleanup.0", TERM)
    driver.signal(after_s=1.5)
    assert driver.kills[-1] == ("cleanup.0", KILL)
    driver.signal(after_s=1.5)
    assert driver.state == "cleanup", "SIGKILL has its time"
    driver.exits("cleanup.0", by=KILL, emptied=True)
    assert driver.code == 137


def test_an_aborted_action_is_complete_only_when_nothing_of_it_is_left():
    driver = hardened(*THREE)
    driver.signal()
    driver.fire("cleanup-timeout")
    driver.exits("cleanup.0", by=HUP)
    assert driver.state == "cleanup", "a child in a session of its own may still live"
    driver.fire("ladder cleanup.0")
    assert driver.kills[-1] == ("cleanup.0", TERM), "the ladder goes on for what is left"
    driver.give_emptied("cleanup.0")
    assert driver.ended == [("cleanup.0", 129, "Hangup")], "its own code stands"


def test_a_stranger_that_holds_the_output_is_named_after_the_grace_and_the_code_stands():
    driver = hardened(action("c"))
    driver.signal()
    driver.exits_only("cleanup.0", 0)
    driver.fire("output-grace cleanup.0")
    driver.give(OutputEnded("cleanup.0", holder="sleep (pid 4711)"))
    assert "cleanup.0: its output was still held by sleep (pid 4711)" in driver.logs
    assert driver.code == 0


def test_an_essential_action_still_runs_after_the_abort_within_its_slice():
    driver = hardened(action("slow"), action("dropped"), action("save", essential=True))
    driver.signal()
    driver.fire("cleanup-timeout")
    driver.exits("cleanup.0", by=HUP, emptied=True)
    assert driver.started == ["slow", "save"]
    driver.fire("action cleanup.1")
    assert driver.kills[-1] == ("cleanup.1", HUP)
    driver.exits("cleanup.1", by=HUP, emptied=True)
    assert "cleanup: not run: dropped" in driver.logs
    assert driver.code == 129


def test_an_essential_action_that_runs_when_the_budget_ends_keeps_its_slice():
    driver = hardened(action("save", essential=True), action("dropped"))
    driver.signal()
    driver.fire("cleanup-timeout")
    assert driver.kills == []
    driver.exits("cleanup.0", 0)
    assert driver.started == ["save"]
    assert driver.code == 1, "what was cut off never counts as success"


def test_an_actions_own_timeout_ends_it_alone():
    driver = hardened(action("slow", timeout_ns=5), action("next"))
    driver.signal()
    driver.fire("action cleanup.0")
    assert "cleanup.0: timed out after 0ms" in driver.logs
    driver.exits("cleanup.0", by=HUP, emptied=True)
    driver.exits("cleanup.1", 0)
    assert driver.started == ["slow", "next"]
    assert driver.code == 129


def test_an_action_that_timed_out_is_told_with_its_limit():
    driver = hardened(action("slow", timeout_ns=90 * S))
    driver.signal()
    driver.fire("action cleanup.0")
    (line,) = [line for line in driver.of(Log) if "timed out" in line.text]
    assert (line.component, line.level, line.text) == ("broker", 3, "cleanup.0: timed out after 90s")


def test_what_an_abort_dropped_is_told_in_one_line_and_the_list_has_not_succeeded():
    driver = hardened(action("slow"), action("one"), action("save", essential=True), action("two"))
    driver.signal()
    driver.fire("cleanup-timeout")
    driver.exits("cleanup.0", 0, emptied=True)
    driver.exits("cleanup.1", 0)
    (line,) = [line for line in driver.of(Log) if "not run" in line.text]
    assert (line.component, line.level, line.text) == ("broker", 3, "cleanup: not run: one; two")
    assert driver.code == 1


def test_an_essential_action_with_a_timeout_of_its_own_keeps_it_over_the_abort():
    driver = hardened(action("save", essential=True, timeout_ns=50 * S))
    driver.signal()
    assert driver.timers["action cleanup.0"].after_ns == 50 * S
    driver.fire("cleanup-timeout")
    assert driver.timers["action cleanup.0"].after_ns == 50 * S
    assert driver.due["action cleanup.0"] == 50 * S
    driver.exits("cleanup.0", 0)
    assert driver.code == 0, "nothing was cut off"


def test_an_essential_action_without_one_gets_its_slice_from_the_moment_of_the_abort():
    driver = hardened(action("save", essential=True))
    driver.signal()
    assert "action cleanup.0" not in driver.timers
    driver.fire("cleanup-timeout")
    assert driver.due["action cleanup.0"] == driver.now_ns + 10 * S


def test_a_second_abort_gives_an_essential_action_no_second_slice():
    driver = hardened(action("save", essential=True), action("dropped"))
    driver.signal()
    driver.fire("cleanup-timeout")
    due_ns = driver.due["action cleanup.0"]
    driver.signal(after_s=5)
    assert driver.due["action cleanup.0"] == due_ns
    driver.exits("cleanup.0", 0)
    assert "cleanup: not run: dropped" in driver.logs, "what the first abort dropped"


def test_a_list_describes_the_action_that_runs_and_else_itself():
    driver = hardened(action("one"))
    waiting = ActionList(driver.node.broker, "rc3", (action("x"), action("y")), started=print, done=print)
    assert waiting.describe() == "rc3"
    assert len(waiting) == 2
    driver.signal()
    driver.fire("cleanup-timeout")
    assert "cleanup-timeout: cleanup.0 (one) is aborted" in driver.logs


def test_an_action_is_put_before_all_others():
    driver = hardened(action("one"))
    waiting = ActionList(driver.node.broker, "rc3", (action("x"),), started=print, done=print)
    waiting.push(action("first"))
    assert [pending.command.text for pending in waiting._pending] == ["first", "x"]


def test_a_kill_that_is_not_permitted_is_told():
    driver = hardened(*THREE)
    driver.signal()
    driver.fire("cleanup-timeout")
    driver.give(KillFailed("cleanup.0", HUP, 1))
    assert driver.logs[-1] == "cleanup.0: cannot send SIGHUP: Operation not permitted"


def test_names_of_signals_and_errors_are_the_c_librarys():
    for signum, text in words.SIGNALS.items():
        assert signal.strsignal(signum) == text
    for errno, text in words.ERRORS.items():
        assert os.strerror(errno) == text
