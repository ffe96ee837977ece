"""A helper that is told to stop leaves nothing running, and nothing starts after it (SYSTEMD.md 95, 96)."""

import os
import random
import signal

import pytest

from tests.perilog.conftest import JOB

DELAYS_MS = (0, 1, 2, 5, 10, 15, 20, 30, 100, None)
SOAK = int(os.environ.get("BROKERCTL_SOAK_ROUNDS", "0"))
# Each round has a helper for every delay.
ROUNDS = max(4, SOAK)
UNIT = f"flux-epilog@{JOB}.service"


@pytest.mark.fact(96)
def test_random_rounds_of_signals_leave_nothing_running_and_nothing_starts_late(site, tmp_path):
    log = tmp_path / "runs"
    site.script("epilog", f'echo "$FLUX_JOB_ID" >>{log}; exec sleep 60')
    report = site.inside(
        "told_to_stop", delays_ms=DELAYS_MS, rounds=ROUNDS, log=str(log), signals=[signal.SIGTERM, signal.SIGINT]
    )
    rounds = report["rounds"]
    assert len(rounds) == ROUNDS * len(DELAYS_MS)
    assert [entry for entry in rounds if entry["running"] or entry["late"]] == []
    assert report["running"] == {}
    assert max(entry["seconds"] for entry in rounds) < 15, "the unit's TimeoutStopSec had to end it"
    told = [entry for entry in rounds if entry["code"] == 143]
    dead = {-signal.SIGTERM}  # while the interpreter started
    assert [entry for entry in rounds if entry["code"] not in {143, *dead}] == []
    assert all("canceled by SIG" in entry["words"] for entry in told)
    assert any(entry["runs"] for entry in rounds), "no round came as far as the script"
    assert any(not entry["runs"] for entry in rounds), "no round was stopped before the script"
    assert site.files() == []


def test_whoever_comes_while_others_are_killed_or_told_to_stop_gets_the_scripts_own_code_or_is_canceled(site, tmp_path):
    seed = random.randrange(1 << 32)
    alone = f"exec 9>{tmp_path}/$FLUX_JOB_ID; flock -n 9 || exit 99"
    site.script("epilog", f"{alone}; sleep 0.15; exit 7")
    report = site.inside("at_random", rounds=ROUNDS * 2, seed=seed)
    dead = {-signal.SIGKILL, -signal.SIGTERM}
    odd = [answer for answer in report["answers"] if answer["code"] not in {7, 143, *dead}]
    assert odd == [], f"seed {seed}"  # 99: two at once
    assert report["running"] == {}, f"seed {seed}"
    assert site.files() == []


@pytest.mark.fact(95)
def test_a_script_that_ignores_sigterm_is_killed_and_a_second_signal_changes_nothing(site, tmp_path):
    site.systemd.unit("flux-epilog@.service.d/site.conf", "[Service]\nTimeoutStopSec=1s\n")
    site.script("epilog", f"trap '' TERM; touch {tmp_path}/began; while :; do sleep 1; done")
    report = site.inside("stop_the_stop", kind="epilog", job=JOB, wait_for=f"{tmp_path}/began", again_after_s=0.3)
    assert report["code"] == 143
    assert report["words"].count("canceled by SIGTERM") == 1
    assert report["seconds"] > 0.4
    assert report["state"] == {}
    assert site.files() == []


@pytest.mark.parametrize("kind", ["prolog", "epilog"])
def test_a_canceled_prolog_is_no_failure_of_the_node_but_an_epilog_that_was_cut_off_is(site, tmp_path, kind):
    site.settings(f'[{kind}]\non-failure = [["sh", "-c", "echo \\"$1\\" >{tmp_path}/drained", "sh", "{{how}}"]]\n')
    site.script(kind, f"touch {tmp_path}/began; exec sleep 60")
    report = site.inside("stop_the_stop", kind=kind, job=JOB, wait_for=f"{tmp_path}/began", again_after_s=0)
    assert report["code"] == 143
    assert (tmp_path / "drained").exists() == (kind == "epilog")


def test_one_of_several_helpers_of_a_job_that_is_told_to_stop_stops_the_run(site, tmp_path):
    site.script("epilog", f"touch {tmp_path}/began; exec sleep 60")
    report = site.inside("waiting_one_told", kind="epilog", job=JOB, wait_for=f"{tmp_path}/began")
    assert report["waiting"]["code"] == 143
    assert report["holder"]["code"] == 143
    assert "canceled: somebody stopped the unit" in report["holder"]["words"]
    assert report["state"] == {}
    assert site.files() == []


def test_a_start_that_systemd_reads_after_the_stop_finds_no_environment(site, tmp_path):
    """What makes it certain and not only likely that nothing starts late."""
    site.script("epilog", f"touch {tmp_path}/ran")
    assert site.systemd.systemctl("start", UNIT, check=False).returncode == 1
    assert not (tmp_path / "ran").exists()
    assert any("Failed to load environment files" in line for line in site.systemd.journal(UNIT))
