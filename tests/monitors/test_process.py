import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from brokerctl.durations import S
from brokerctl.kernel import proc
from brokerctl.monitors import beatfile
from brokerctl.monitors.contract import Tender
from brokerctl.monitors.process import ProcessMonitor
from brokerctl.settings import Rung

REPOSITORY = Path(__file__).parents[2]
# file limit_ns what [more]: a worker that beats, hangs, leaks or ignores SIGTERM.
WORKER = """\
import signal, sys, time
from brokerctl.heartbeat import Heartbeat
file, limit_ns, what = sys.argv[1], int(sys.argv[2]), sys.argv[3]
if what == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
heart = Heartbeat(file, limit_ns=limit_ns)
heart.ready()
taken = []
for turn in range(3000):
    if what != "hang" or turn < 5:
        heart.beat()
    if what == "leak":
        taken.append(b"x" * (5 << 20))
    time.sleep(0.02)
"""
QUICK = (Rung(signal.SIGTERM, S // 2), Rung(signal.SIGKILL, 5 * S))


@pytest.fixture
def start(tmp_path):
    started = []

    def starts(name, what, limit_ns=60 * S):
        argv = [sys.executable, "-c", WORKER, tmp_path / name, str(limit_ns), what]
        started.append(subprocess.Popen(argv, cwd=REPOSITORY))
        until(lambda: beatfile.read(tmp_path / name).ready or started[-1].poll() is not None)
        return started[-1]

    yield starts
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture
def monitor():
    made = ProcessMonitor(ladder=QUICK)
    yield made
    made.close()


def until(there, limit_s=20.0):
    end = time.monotonic() + limit_s
    while not there():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.01)


def seen(monitor):
    return {health.worker: health.condition for health in monitor.look()}


def test_it_does_everything_itself(monitor):
    assert monitor.capabilities == frozenset()


def test_a_worker_that_beats_is_alive_and_one_that_has_ended_is_gone(monitor, start, tmp_path):
    process = start("w", "beat")
    monitor.add(tmp_path / "w")
    monitor.add(tmp_path / "nobody")
    assert seen(monitor) == {"w": "alive", "nobody": "gone"}
    process.kill()
    process.wait()
    until(lambda: seen(monitor)["w"] == "gone")


def test_a_zombie_is_gone(monitor, start, tmp_path):
    process = start("w", "beat")
    monitor.add(tmp_path / "w")
    assert seen(monitor) == {"w": "alive"}
    process.kill()
    until(lambda: seen(monitor)["w"] == "gone")  # nobody has reaped it


def test_one_that_hangs_is_stopped_and_its_death_told_once(monitor, start, tmp_path):
    process = start("w", "hang", S // 2)
    start("other", "beat", S)
    monitor.add(tmp_path / "w")
    monitor.add(tmp_path / "other")
    dead = []
    tender = Tender(monitor, dead.append)
    until(lambda: tender.turn() and dead)
    for _ in range(3):
        tender.turn()
    assert [health.worker for health in dead] == ["w"]
    assert process.wait() == -signal.SIGTERM


def test_one_that_leaks_is_stopped(monitor, start, tmp_path):
    process = start("w", "leak")
    monitor.add(tmp_path / "w", memory_max=150 << 20)
    conditions = []
    dead = []
    tender = Tender(monitor, dead.append)
    until(lambda: conditions.extend(health.condition for health in tender.turn()) or dead)
    assert "swollen" in conditions
    assert process.wait() == -signal.SIGTERM


def test_one_that_ignores_sigterm_is_killed_by_the_ladder(monitor, start, tmp_path):
    process = start("w", "stubborn")
    monitor.add(tmp_path / "w")
    monitor.look()
    assert monitor.stop("w")
    assert monitor.stop("w"), "asked twice it is stopped once"
    assert monitor.wait(["w"], 20 * S) == []
    assert process.wait() == -signal.SIGKILL


def test_a_wait_is_bounded_and_names_who_is_left(start, tmp_path):
    start("w", "stubborn")
    patient = ProcessMonitor(ladder=(Rung(signal.SIGTERM, None),))
    patient.add(tmp_path / "w")
    patient.look()
    patient.stop("w")
    assert patient.wait(["w"], S // 10) == ["w"]
    patient.close()


def test_another_life_under_the_same_name_is_met_and_the_death_of_the_first_told(monitor, start, tmp_path):
    first = start("w", "beat")
    monitor.add(tmp_path / "w")
    dead = []
    tender = Tender(monitor, dead.append)
    tender.turn()
    first.kill()
    first.wait()
    second = start("w", "beat")
    until(lambda: any(health.ready for health in tender.turn()))
    assert [health.life.split(":")[1] for health in dead] == [str(first.pid)]
    assert monitor.stop("w")
    assert second.wait(20) == -signal.SIGTERM


def forge(path, pid, start_ticks):
    path.write_text(
        f"brokerctl-heartbeat 1\npid={pid}\nstart_ticks={start_ticks}\nguid=g\nboot={beatfile.boot_id()}\n"
        f"beat_ns={time.monotonic_ns()}\nlimit_ns={60 * S}\nstate=ready\nstatus=\n"
    )


def test_a_forged_file_gets_nobody_signalled(monitor, tmp_path):
    """Show 2: somebody else's pid with a wrong start is not the worker."""
    innocent = subprocess.Popen(["sleep", "60"])
    try:
        found = proc.stat(innocent.pid)
        forge(tmp_path / "w", innocent.pid, found.start_ticks + 1)
        monitor.add(tmp_path / "w")
        dead = []
        tender = Tender(monitor, dead.append)
        tender.turn()
        assert not monitor.stop("w")
        assert monitor.wait(["w"], S) == []
        assert innocent.poll() is None
        assert "is sleep now" in dead[0].text
    finally:
        innocent.kill()
        innocent.wait()


def test_a_file_that_is_forged_after_the_worker_was_met_gets_nobody_signalled(monitor, start, tmp_path):
    start("w", "beat")
    monitor.add(tmp_path / "w")
    assert seen(monitor) == {"w": "alive"}
    innocent = subprocess.Popen(["sleep", "60"])
    try:
        forge(tmp_path / "draft", innocent.pid, proc.stat(innocent.pid).start_ticks + 1)
        (tmp_path / "draft").replace(tmp_path / "w")
        monitor._workers["w"].refresh(time.monotonic_ns(), beatfile.boot_id())
        assert not monitor.stop("w")
        assert innocent.poll() is None
    finally:
        innocent.kill()
        innocent.wait()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root could signal others, and give a file away")
def test_a_file_of_another_user_than_the_process_that_it_names_gets_nobody_signalled(monitor, tmp_path):
    """Its numbers are right, as anybody can read them in /proc: nobody may have root kill what is not theirs."""
    innocent = subprocess.Popen(["sleep", "60"])
    try:
        forge(tmp_path / "w", innocent.pid, proc.stat(innocent.pid).start_ticks)
        os.chown(tmp_path / "w", 12345, 12345)
        monitor.add(tmp_path / "w")
        (health,) = monitor.look()
        assert (health.condition, health.text) == ("gone", "its file is not of the user whose process it names")
        assert not monitor.stop("w")
        assert innocent.poll() is None
        forge(tmp_path / "own", innocent.pid, proc.stat(innocent.pid).start_ticks)
        monitor.add(tmp_path / "own")
        assert seen(monitor) == {"w": "gone", "own": "alive"}
        (tmp_path / "w").replace(tmp_path / "own")
        assert seen(monitor) == {"w": "gone", "own": "gone"}
        assert not monitor.stop("own")
    finally:
        innocent.kill()
        innocent.wait()


def reuse(tmp_path, how):
    """What became of a process that got a dead worker's pid, in a pid namespace of its own."""
    if os.geteuid():
        pytest.skip("a pid namespace needs root")
    if shutil.which("unshare") is None:
        pytest.skip("unshare(1) is not here")
    argv = ["unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc"]
    argv += [sys.executable, REPOSITORY / "tests/monitors/reuse.py", tmp_path / "w", how]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False, cwd=REPOSITORY)
    if "Operation not permitted" in done.stderr:
        pytest.skip("pid namespaces are not permitted here")
    assert done.returncode == 0, done.stderr
    return dict(line.split(" ", 1) for line in done.stdout.splitlines())


def test_a_pid_that_was_really_used_again_is_never_signalled(tmp_path):
    told = reuse(tmp_path, "met")
    assert told.pop("after").startswith("gone pid ")
    assert told == {"before": "alive", "reused": "True", "stopped": "False", "innocent": "alive"}


def test_a_pid_that_was_used_again_before_anybody_looked_is_never_signalled(tmp_path):
    told = reuse(tmp_path, "unmet")
    assert "began at another time" in told["after"]
    assert (told["reused"], told["stopped"], told["innocent"]) == ("True", "False", "alive")


def test_without_the_guard_the_innocent_is_hit(tmp_path):
    assert reuse(tmp_path, "broken")["innocent"] == "dead"
