"""Who main is, and which processes are its own."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress

import pytest

from brokerctl.kernel import pidfd, proc
from brokerctl.kernel.proc import User
from brokerctl.stop import members, target
from brokerctl.stop.target import Aim


@pytest.mark.parametrize(
    ("words", "name", "kind"),
    [
        (["/usr/libexec/flux/cmd/flux-broker", "-Sx=1"], "flux-broker", "flux"),
        (["broker", "--setattr=x=1"], "flux-broker-0", "flux"),
        (["/b/src/cmd/.libs/lt-flux-broker"], "lt-flux-broker", "flux"),
        (["/usr/bin/python3", "-I", "-m", "brokerctl", "run"], "python3", "brokerctl"),
        (["/usr/bin/python3", "/usr/bin/brokerctl", "start", "--size", "4"], "brokerctl", "brokerctl"),
        (["/usr/bin/python3", "-m", "brokerctl", "status"], "python3", "other"),
        (["/usr/bin/python3", "-m", "brokerctl", "--debug", "run"], "python3", "brokerctl"),
        (["/venv/brokerctl/__main__.py", "run"], "__main__.py", "brokerctl"),
        (["/bin/sleep", "flux-broker"], "sleep", "other"),
        (["/bin/sh", "-c", "brokerctl run"], "sh", "other"),
        ([], "gone", "other"),
    ],
)
def test_what_a_process_is_by_its_words(words, name, kind):
    assert target.kind_of(words, name) == kind


def test_a_process_that_has_gone_is_nobody():
    done = subprocess.Popen(["true"])
    done.wait()
    assert target.take(done.pid) is None


@pytest.fixture
def main():
    """A process in a session of its own, with a child in a group of its own and one in main's group."""
    script = "setsid sleep 60 & setsid env FLUX_JOB_ID=f1 sleep 61 & sleep 62 & sleep 63; wait"
    process = subprocess.Popen(["sh", "-c", script], start_new_session=True)
    deadline = time.monotonic() + 5
    while sum(map(runs, members.descendants(process.pid))) < 4 and time.monotonic() < deadline:
        time.sleep(0.02)
    yield process
    for pid in members.descendants(process.pid):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.kill()
    process.wait()


def runs(pid: int) -> bool:
    """It is what it was started for, and no shell, nor setsid, any more."""
    return proc.command(pid).startswith("sleep ")


def aim(process) -> Aim:
    return Aim("other", process.pid, "sh", "", User(os.geteuid(), os.getegid()))


def test_holders_are_in_a_group_of_their_own_and_of_no_job(main):
    found = members.holders(aim(main), 0)
    assert [holder.text for holder in found.holders] == ["sleep 60"]


def test_what_was_started_before_holds_nothing(main):
    assert members.holders(aim(main), time.monotonic_ns() + 1).holders == ()


def test_a_holder_is_killed_only_if_it_still_is_that_process(main):
    holder = members.holders(aim(main), 0).holders[0]
    members.kill(holder.pid, holder.started + 1, signal.SIGKILL)
    assert proc.stat(holder.pid).state != "Z"
    members.kill(holder.pid, holder.started, signal.SIGKILL)
    deadline = time.monotonic() + 5
    while (at := proc.stat(holder.pid)) is not None and at.state != "Z" and time.monotonic() < deadline:
        time.sleep(0.02)
    assert proc.stat(holder.pid) is None or proc.stat(holder.pid).state == "Z"


def test_what_is_in_our_own_session_is_none_of_mains():
    process = subprocess.Popen(["sh", "-c", "sleep 60 & wait"], process_group=0)
    try:
        assert members.members(aim(process)) == []
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_what_main_and_its_processes_write_is_counted(main, tmp_path):
    before = members.written(aim(main)).anywhere
    writer = subprocess.Popen(
        ["sh", "-c", f"head -c 1000000 /dev/zero > {tmp_path}/x; sleep 60"], start_new_session=True
    )
    try:
        deadline = time.monotonic() + 5
        while members.written(aim(writer)).anywhere < 1_000_000 and time.monotonic() < deadline:
            time.sleep(0.02)
        assert members.written(aim(writer)).anywhere >= 1_000_000
        assert before < 100_000, "of another main"
    finally:
        os.killpg(writer.pid, signal.SIGKILL)
        writer.wait()


@pytest.mark.fact(19)
def test_a_pidfd_of_a_dead_main_is_ready_at_once():
    process = subprocess.Popen(["sleep", "60"])
    fd, _ = target.take(process.pid)
    process.kill()
    process.wait()
    assert pidfd.send(fd, signal.SIGTERM) != 0
    os.close(fd)
