"""What the service manager is told, and when it is asked for more time (FLUX.md I)."""

from brokerctl.durations import S
from brokerctl.model import bounds
from brokerctl.model.lifecycle import State
from brokerctl.records import Asked
from tests.driver import Driver, action, settings

ONE = (action("one"),)


def test_silence_without_sd_notify():
    driver = Driver(settings(cleanup=ONE)).until_run()
    driver.signal()
    driver.finish()
    assert driver.notes == []


def test_flux_extends_from_the_second_step_of_the_stop_and_before_each_action():
    made = settings(sd_notify=True, sd_stop_timeout_ns=90 * S, cleanup=(*ONE, action("two")), rc3=(action("rc3"),))
    driver = Driver(made).until_run()
    assert driver.notes[0] == "READY=1"
    started = len(driver.notes)
    driver.signal()
    driver.finish()
    extend = "EXTEND_TIMEOUT_USEC=90000000"
    assert driver.notes[started:] == [
        extend,
        "STATUS=Running one",
        extend,
        "STATUS=Running two",
        extend,
        "STATUS=Waiting for overlay peers to shutdown",
        extend,
        extend,
        "STATUS=Running rc3",
        extend,
        "STATUS=Exiting",
    ]


def test_hardened_covers_each_bounded_state_by_its_bound_and_repeats_in_time_but_never_beyond():
    driver = Driver(settings("hardened", cleanup=ONE)).until_run()
    driver.signal()
    bound_ns = bounds.state_ns(State.CLEANUP, driver.node.settings, driver.tree, 0, signalled=True)
    deadline_ns = driver.now_ns + bound_ns
    while "extend" in driver.timers:
        assert driver.timers["extend"].reminder
        driver.fire("extend")
    asked = [int(note.partition("=")[2]) * 1000 for note in driver.notes if note.startswith("EXTEND")]
    assert asked[0] == bound_ns
    assert len(asked) == 6, "58 s, told again every 10 s"
    assert asked == sorted(asked, reverse=True)
    assert driver.now_ns < deadline_ns


def test_hardened_a_request_asks_for_no_time_until_a_signal_comes():
    driver = Driver(settings("hardened", cleanup=ONE)).until_run()
    driver.give(Asked("shutdown", 1))
    assert not [note for note in driver.notes if note.startswith("EXTEND")]
    driver.signal()
    assert driver.notes[-1] == "EXTEND_TIMEOUT_USEC=58000000"
