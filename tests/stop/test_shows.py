"""A stop as an admin sees it, real brokers under a real systemd: what the wrapper saves, what is lost without it."""

from __future__ import annotations

import os
import time

import pytest

from tests.stop.service import QUICK, Service

STUBBORN = "trap '' HUP TERM; exec sleep {}"


@pytest.fixture
def service(private_systemd, tmp_path):
    def make(name="show", **how) -> Service:
        made = Service(private_systemd, tmp_path, name, **how)
        made.start()
        made.await_run()
        return made

    return make


def stopped(made: Service) -> tuple[str, str]:
    made.begin_stop()
    made.await_end()
    return made.show("ActiveState"), made.show("Result")


def test_a_healthy_tree_is_stopped_and_its_state_saved(service):
    made = service(size=2, lasts=(0.3, 0.3, 0.3))
    assert stopped(made) == ("inactive", "success")
    assert made.saved()
    assert made.told("stopped in")


def test_a_cleanup_action_that_ignores_everything_is_ended_and_the_state_saved(service):
    made = service(cleanup=STUBBORN.format(60), cleanup_timeout="1s", config=QUICK, lasts=(0, 0, 0.3))
    assert stopped(made) == ("failed", "exit-code")
    assert made.saved()
    assert made.told("status=3")
    for name in ("SIGHUP", "SIGTERM", "SIGKILL"):
        assert made.told(f"held by sleep 60 (pid {made_pid(made)}): {name}")


def made_pid(made: Service) -> str:
    line = next(line for line in made.journal() if "held by sleep 60 (pid " in line)
    return line.partition("(pid ")[2].partition(")")[0]


def test_a_frozen_follower_is_shed_and_the_state_saved(service):
    made = service(size=2, config=QUICK, lasts=(0.3, 0.3, 0.3))
    made.kill_rank(1, "STOP")
    assert stopped(made) == ("failed", "exit-code")
    assert made.saved()
    assert made.told("(rank 1) disconnected by request")
    assert made.told("shed rank 1")
    assert made.told("status=3")


def test_a_stopped_main_is_continued_and_stops_as_any_other(service):
    made = service(lasts=(0.3, 0, 0.3))
    made.manager.systemctl("kill", "--kill-whom=main", "--signal=STOP", made.unit)
    assert stopped(made) == ("inactive", "success")
    assert made.saved()


@pytest.mark.parametrize("phase", ["cleanup", "finalize"])
def test_a_shutdown_that_is_under_way_is_joined_and_nothing_is_cut(service, phase):
    made = service(lasts=(1.5, 0, 1.5))
    made.shutdown()
    made.wait(lambda: made.state() == phase, phase)
    assert stopped(made)[1] == "success"
    assert made.saved()
    assert not made.told("signal 15")


def test_without_the_wrapper_the_same_stop_cuts_rc3_and_counts_as_a_success(service):
    made = service(lasts=(0.1, 0, 3), stop="")
    made.shutdown()
    made.wait(lambda: made.state() == "finalize", "finalize")
    made.begin_stop()
    made.await_end()
    assert not made.saved()


def test_p7_finalize_beyond_the_time_of_the_unit_is_extended_while_it_writes(service, tmp_path):
    writing = f"for i in 1 2 3 4 5; do head -c 1000000 /dev/zero >> {tmp_path}/dump; sleep 1; done"
    told, deaf = (service(each, timeout=2.5, access=each, lasts=(0.1, 0, f"0; {writing}")) for each in ("exec", "main"))
    began = time.monotonic()
    told.begin_stop()
    deaf.begin_stop()
    told.await_end()
    deaf.await_end()
    assert time.monotonic() - began > 4.5
    assert (told.saved(), told.show("Result")) == (True, "success")
    assert (deaf.saved(), deaf.show("Result")) == (False, "timeout")


def test_a_failed_site_action_is_exit_1_and_the_stop_as_good_as_any(service):
    config = '[[actions]]\ncommand = "echo drained; exit 4"\ntext = "drain"\n'
    made = service(config=config, lasts=(0.1, 0, 0.1))
    assert stopped(made) == ("failed", "exit-code")
    assert made.saved()
    assert made.told("stop.0: drained")
    assert made.told("status=1")


def test_a_configuration_that_others_could_write_is_left_out_and_the_stop_goes_on(service):
    made = service(config='[[actions]]\ncommand = "touch /tmp/never"\n', lasts=(0.1, 0, 0.1))
    (made.place / "stop.toml").chmod(0o666)
    assert stopped(made) == ("failed", "exit-code")
    assert made.saved()
    assert made.told("expected that only root may write it")
    assert not os.path.exists("/tmp/never")  # noqa: PTH110, S108


# ---- however close the end of CLEANUP is to a deadline of the wrapper

FIRST_S, LAST_S = 1.0, 2.8  # the rungs come at 1.5, 1.9 and 2.3 s
BATCH = 10


@pytest.mark.slow
def test_a_sweep_of_cleanups_end_over_all_deadlines_cuts_no_rc3(private_systemd, tmp_path):
    stops = int(os.environ.get("BROKERCTL_STOP_SWEEP", "20"))
    step_s = (LAST_S - FIRST_S) / (stops - 1)
    ends = [FIRST_S + step_s * nth for nth in range(stops)]
    lost = []
    for begin in range(0, stops, BATCH):
        services = [
            Service(
                private_systemd,
                tmp_path,
                f"sweep-{begin + nth}",
                cleanup=STUBBORN.format(f"{end:.3f}"),
                cleanup_timeout="1s",
                config=QUICK,
                lasts=(0, 0, 0.5),
            )
            for nth, end in enumerate(ends[begin : begin + BATCH])
        ]
        for made in services:
            made.start()
        for made in services:
            made.await_run()
        for made in services:
            made.begin_stop()
        for made in services:
            made.await_end()
            if not made.saved():
                lost.append((made.name, made.journal()))
    assert not lost
