"""The unit's machine: what must hold of it whatever happens, and what no scenario shows."""

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from brokerctl.durations import S
from brokerctl.model.unit.deeds import DEEDS
from brokerctl.model.unit.states import ACTIVE, AT_REST, LIMITS, TABLE, Do, Sub, What
from brokerctl.records import KillProcess, Log, SpawnFailed
from brokerctl.records.units import ExitStatuses, UnitSettings
from tests.model.unit.driver import Driver, T, line, settings


def test_every_state_has_a_row_and_an_active_state_and_every_deed_is_done_by_somebody():
    assert set(TABLE) == set(ACTIVE) == set(Sub)
    assert set(DEEDS) == set(Do)
    assert {do for row in TABLE.values() for do in row.values()} <= set(Do)
    assert set(LIMITS) == {sub for sub, row in TABLE.items() if What.TIMEOUT in row}
    assert all(hasattr(UnitSettings(), name) for name in LIMITS.values())


def test_every_deed_stands_in_the_table():
    in_table = {do for row in TABLE.values() for do in row.values()}
    assert set(Do) - in_table == {Do.START_PRE, Do.START} - in_table


LINES = st.lists(st.just(line()), max_size=2).map(tuple)
SETTINGS = st.fixed_dictionaries(
    {
        "type": st.sampled_from(["simple", "notify", "oneshot"]),
        "exit_type": st.sampled_from(["main", "cgroup"]),
        "exec_condition": st.lists(st.just(line()), max_size=1).map(tuple),
        "exec_start_pre": LINES,
        "exec_start_post": LINES,
        "exec_reload": LINES,
        "exec_stop": LINES,
        "exec_stop_post": LINES,
        "remain_after_exit": st.booleans(),
        "restart": st.sampled_from(["no", "always", "on-failure"]),
        "kill_mode": st.sampled_from(["control-group", "mixed", "process", "none"]),
        "send_sigkill": st.booleans(),
        "timeout_start_failure_mode": st.sampled_from(["terminate", "abort", "kill"]),
        "timeout_stop_failure_mode": st.sampled_from(["terminate", "abort", "kill"]),
        "watchdog_ns": st.sampled_from([0, S]),
        "notify_access": st.sampled_from([None, "exec", "all"]),
        "runtime_max_ns": st.sampled_from([None, 5 * S]),
    }
)
VERBS = ("start", "stop", "restart", "reload", "cancel", "daemon-reload", "reset-failed", "freeze", "thaw", "kill")
SAID = ("READY=1", "STOPPING=1", "WATCHDOG=1", "WATCHDOG=trigger", "EXTEND_TIMEOUT_USEC=5000000", "STATUS=x")
DEEDS_OF_THE_WORLD = st.one_of(
    st.tuples(st.just("systemctl"), st.sampled_from(VERBS)),
    st.tuples(st.just("says"), st.sampled_from(SAID)),
    st.tuples(st.just("ends"), st.sampled_from([0, 256, 9, 15])),
    st.tuples(st.just("leaves"), st.integers(0, 2)),
    st.tuples(st.just("fires"), st.none()),
)


def act(driver: Driver, what: str, how) -> None:
    match what:
        case "systemctl":
            driver.systemctl(how)
        case "says":
            driver.says(how)
        case "ends" if driver.alive:
            driver.ends(driver.alive[-1], how)
        case "leaves":
            driver.leaves(how)
        case "fires" if driver.due:
            driver.fire()
        case _:
            pass


@hypothesis_settings(max_examples=300, deadline=None)
@given(SETTINGS, st.lists(DEEDS_OF_THE_WORLD, max_size=25))
def test_whatever_happens_nothing_breaks_and_a_stop_ends_within_its_limits(fields, deeds):
    driver = Driver(settings(**fields))
    driver.systemctl("start")
    for what, how in deeds:
        act(driver, what, how)
        unit = driver.unit
        assert unit.state in AT_REST | {Sub.EXITED} or driver.due or driver.alive or driver.others
        assert unit.result == "success" or unit.state is not Sub.RUNNING or fields["exit_type"] == "cgroup"
    if driver.unit.state is Sub.AUTO_RESTART:
        driver.fire()
    driver.systemctl("stop")
    begun_ns = max(driver.now_ns, driver.unit.since_ns)
    extended_ns = 5 * S
    while driver.state not in {"dead", "failed"}:
        assert driver.due, driver.state
        driver.fire()
    lines = len(fields["exec_stop"]) + len(fields["exec_stop_post"])
    assert driver.now_ns - begun_ns <= (lines + 4) * T + extended_ns
    assert driver.unit.jobs.is_idle()
    assert set(driver.returned) == set(range(1, driver.clients + 1)), "every client returns"


def test_a_main_process_that_cannot_be_executed_has_exited_with_203():
    driver = Driver(settings(exec_stop=(line(),)))
    driver.systemctl("start")
    driver.alive.remove("main")
    driver.give(SpawnFailed("main", 2))
    assert (driver.state, driver.unit.result, driver.unit.main_status) == ("failed", "exit-code", 203 << 8)


def test_a_oneshot_is_started_when_all_its_lines_have_run_and_the_starter_hears_of_failure():
    driver = Driver(settings(type="oneshot", timeout_start_ns=None, exec_start=(line("a"), line("b"))))
    first = driver.systemctl("start")
    driver.ends("main")
    assert driver.state == "start"
    driver.ends("main")
    assert (driver.state, driver.returned[first]) == ("dead", 0)
    second = driver.systemctl("start")
    driver.ends("main", 15)  # not clean for a oneshot (SYSTEMD.md 90)
    assert (driver.state, driver.unit.result, driver.returned[second]) == ("failed", "signal", 1)


def test_a_oneshot_that_remains_is_active_without_a_process_and_stops():
    driver = Driver(settings(type="oneshot", remain_after_exit=True, exec_stop=(line(),)))
    started = driver.systemctl("start")
    driver.ends("main")
    assert (driver.state, driver.returned[started]) == ("exited", 0)
    again = driver.systemctl("start")
    assert driver.returned[again] == 0
    driver.systemctl("stop")
    driver.ends("exec-stop.0")
    assert driver.state == "dead"


def test_a_start_that_comes_twice_is_one_and_both_hear_the_same():
    driver = Driver(settings(type="oneshot"))
    one, two = driver.systemctl("start"), driver.systemctl("start")
    assert driver.returned == {}
    driver.ends("main", 7 << 8)
    assert (driver.returned[one], driver.returned[two]) == (1, 1)


def test_a_restart_during_the_start_runs_it_again_and_the_first_starter_waits_for_that():
    driver = Driver(settings(type="oneshot"))
    one = driver.systemctl("start")
    two = driver.systemctl("restart")
    assert driver.state == "stop-sigterm"
    driver.ends("main", 15)
    assert (driver.state, driver.returned) == ("start", {})
    driver.ends("main")
    assert (driver.returned[one], driver.returned[two]) == (0, 0)


def test_a_failed_unit_with_collect_mode_is_unloaded_and_knows_nothing():
    driver = Driver(settings(type="oneshot", collect_mode="inactive-or-failed"))
    driver.systemctl("start")
    driver.ends("main", 7 << 8)
    assert driver.states()[-2:] == ["failed", "dead"]
    assert driver.unit.result == "success"


def test_the_start_limit_counts_until_reset_failed_and_an_unloaded_unit_forgets_it():
    driver = Driver(settings(start_limit_burst=2))
    for _ in range(6):  # each succeeds, so the unit is unloaded
        driver.systemctl("start")
        driver.systemctl("stop")
        driver.ends("main")
    assert set(driver.returned.values()) == {0}
    for _ in range(2):
        driver.systemctl("start")
        driver.ends("main", 256)
    refused = driver.systemctl("start")
    assert (driver.returned[refused], driver.state, driver.alive) == (1, "failed", [])
    driver.systemctl("reset-failed")
    assert driver.state == "dead"
    again = driver.systemctl("start")
    assert driver.returned[again] == 0


def test_a_reload_that_takes_too_long_is_killed_and_the_service_goes_on():
    driver = Driver(settings(exec_reload=(line(),), timeout_start_ns=S))
    driver.systemctl("start")
    client = driver.systemctl("reload")
    driver.fire()
    assert (driver.state, driver.alive, driver.returned[client]) == ("running", ["main"], 1)


def test_a_reload_without_exec_reload_or_of_a_dead_unit_is_refused():
    driver = Driver(settings())
    assert driver.returned[driver.systemctl("reload")] == 1
    driver.systemctl("start")
    assert driver.returned[driver.systemctl("reload")] == 1


def test_systemctl_kill_reaches_whom_it_names_and_fails_where_nobody_is():
    driver = Driver(settings(exec_stop=(line(),)))
    assert driver.returned[driver.systemctl("kill")] == 1
    driver.systemctl("start")
    driver.leaves(1)
    assert driver.returned[driver.systemctl("kill", whom="control")] == 1
    assert driver.returned[driver.systemctl("kill", whom="main")] == 0
    assert driver.returned[driver.systemctl("kill", signum=10)] == 0


def test_a_signal_that_restarts_only_is_not_that_of_a_stop():
    driver = Driver(settings(restart_kill_signal=12))
    driver.systemctl("start")
    driver.systemctl("restart")
    assert [effect.signum for effect in driver.effects if type(effect).__name__ == "KillProcess"] == [12, 18]


def test_what_survives_sigkill_is_left_behind_and_told():
    driver = Driver(settings(exec_stop_post=(line(),)))
    driver.systemctl("start")
    driver.systemctl("stop")
    driver.alive.remove("main")  # uninterruptible: SIGKILL has no effect on it
    driver.fire()
    assert driver.state == "stop-sigkill"
    driver.fire()
    assert driver.state == "stop-post"
    driver.ends("exec-stop-post.0")
    driver.fire()
    driver.fire()
    assert driver.state == "failed"
    texts = [effect.text for effect in driver.effects if isinstance(effect, Log)]
    assert "Processes still around after SIGKILL. Ignoring." in texts
    assert "1 processes remain running after unit stopped." in texts


@pytest.mark.parametrize(
    ("restart", "restarted"),
    [
        ("no", {}),
        ("on-success", {0, 15}),
        ("on-failure", {256, 11}),
        ("on-abnormal", {11}),
        ("on-abort", {11}),
        ("on-watchdog", {}),
        ("always", {0, 15, 256, 11}),
    ],
)
def test_which_ends_each_policy_restarts_after(restart, restarted):
    for status in (0, 15, 256, 11):
        driver = Driver(settings(restart=restart))
        driver.systemctl("start")
        driver.ends("main", status)
        assert (driver.state == "auto-restart") == (status in restarted), status


def test_an_exit_that_forces_a_restart_restarts_without_a_policy():
    driver = Driver(settings(restart_force_exit_status=ExitStatuses(codes=(3,))))
    driver.systemctl("start")
    driver.ends("main", 3 << 8)
    assert driver.state == "auto-restart"


def test_a_message_from_outside_of_the_unit_is_not_heard():
    driver = Driver(settings(type="notify", notify_access="all"))
    driver.systemctl("start")
    driver.says("READY=1", sender="outside")
    assert driver.state == "start"
    driver.says("READY=1", sender="child")
    assert driver.state == "running"


@pytest.mark.parametrize(
    ("status", "ends"),
    [(0, "running"), (1 << 8, "running"), (2 << 8, "dead"), (254 << 8, "dead"), (255 << 8, "failed"), (15, "failed")],
)
def test_a_condition_holds_skips_or_fails(status, ends):
    made = settings(exec_condition=(line(),), success_exit_status=ExitStatuses(codes=(1,)))
    driver = Driver(made)
    driver.systemctl("start")
    driver.ends("exec-condition.0", status)
    assert driver.state == ends


def test_a_core_dump_is_no_success_whatever_is_listed():
    listed = ExitStatuses(signals=(6,))
    for status, result in ((6, "success"), (6 | 0x80, "core-dump")):
        driver = Driver(settings(success_exit_status=listed, restart="always", restart_prevent_exit_status=listed))
        driver.systemctl("start")
        driver.ends("main", status)
        assert driver.states()[-1] == ("dead" if result == "success" else "failed"), "the list prevents a restart"
        assert driver.unit.result == result


def test_a_beat_takes_back_what_was_extended_in_the_same_message():
    for text, after_ns in (("WATCHDOG=1\nEXTEND_TIMEOUT_USEC=5000000", S), ("EXTEND_TIMEOUT_USEC=5000000", 5 * S)):
        driver = Driver(settings(type="notify", watchdog_ns=S))
        driver.systemctl("start")
        driver.says("READY=1")
        driver.says(text)
        assert driver.due == {"watchdog": after_ns}, text


def test_a_main_that_beats_while_it_is_aborted_is_aborted_again_and_the_limit_begins_anew():
    driver = Driver(settings(type="notify", watchdog_ns=S))
    driver.systemctl("start")
    driver.says("READY=1")
    driver.fire()
    assert driver.states()[-1] == "stop-watchdog"
    driver.says("WATCHDOG=1")
    driver.fire()
    assert (driver.now_ns, driver.due) == (2 * S, {"state": 2 * S + T})
    assert driver.states().count("stop-watchdog") == 1
    assert [effect.signum for effect in driver.effects if isinstance(effect, KillProcess)] == [6, 18, 6, 18]


def test_no_message_wakes_the_watchdog_of_a_unit_that_is_down():
    driver = Driver(settings(type="notify", watchdog_ns=S, kill_mode="none", notify_access="all"))
    driver.systemctl("start")
    driver.says("READY=1")
    driver.systemctl("stop")
    driver.says("WATCHDOG=1", sender="child")
    assert (driver.state, driver.due) == ("dead", {})


def test_a_reload_that_hangs_is_killed_also_where_nobody_else_would_be():
    driver = Driver(settings(exec_reload=(line(),), timeout_start_ns=S, kill_mode="none"))
    driver.systemctl("start")
    driver.systemctl("reload")
    driver.fire()
    assert driver.alive == ["main"]


@pytest.mark.parametrize(("status", "rc"), [(0, 0), (256, 1)])
@pytest.mark.parametrize("restart", ["no", "always"])
def test_a_reload_that_main_does_not_outlive_is_told_how_the_unit_has_ended(status, rc, restart):
    driver = Driver(settings(exec_reload=(line(),), exec_stop=(line(),), restart=restart))
    driver.systemctl("start")
    client = driver.systemctl("reload")
    driver.ends("main", status)
    driver.ends("exec-reload.0")
    if driver.state == "stop":
        assert client not in driver.returned
        driver.ends("exec-stop.0")
    assert driver.returned[client] == rc


@pytest.mark.parametrize(
    ("fields", "texts"),
    [
        ({}, ["State 'stop-sigterm' timed out. Killing.", "State 'stop-post' timed out. Terminating."]),
        ({"send_sigkill": False}, ["State 'stop-sigterm' timed out. Skipping SIGKILL."]),
        (
            {"timeout_stop_failure_mode": "abort"},
            ["State 'stop-sigterm' timed out. Aborting.", "State 'stop-watchdog' timed out. Killing.",
             "State 'stop-post' timed out. Aborting.", "State 'final-watchdog' timed out. Killing."],
        ),
        ({"exec_stop": (line(),)}, ["Stopping timed out. Terminating."]),
        ({"exec_stop": (line(),), "timeout_stop_failure_mode": "kill"}, ["Stopping timed out. Killing."]),
        ({"exec_start_pre": (line(),), "timeout_start_ns": S}, ["start-pre operation timed out. Terminating."]),
        (
            {"exec_start_pre": (line(),), "timeout_start_ns": S, "timeout_start_failure_mode": "abort"},
            ["start-pre operation timed out. Aborting."],
        ),
    ],
)  # fmt: skip
def test_the_journal_says_what_follows_from_a_limit_that_is_over(fields, texts):
    """The words of systemd 252: people search for them."""
    driver = Driver(settings(exec_stop_post=(line(),), **fields))
    driver.systemctl("start")
    if driver.state == "running":
        driver.systemctl("stop")
    while driver.state not in {"dead", "failed"}:
        driver.fire()
    told = [effect.text for effect in driver.effects if isinstance(effect, Log) and "timed out" in effect.text]
    assert set(texts) <= set(told)
