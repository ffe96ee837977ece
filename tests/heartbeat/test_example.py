"""The worker of docs/heartbeat.md, unchanged, under each who may watch it; and the manifest's probes."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from brokerctl.cli.units import files, render
from brokerctl.durations import S
from brokerctl.monitors.contract import Tender
from brokerctl.monitors.process import ProcessMonitor
from brokerctl.monitors.systemd import SystemdMonitor
from brokerctl.settings import Rung

PAGE = (Path(__file__).parents[2] / "docs" / "heartbeat.md").read_text()
UNIT = "brokerctl-worker@.service"


def block(name):
    return re.search(rf"<!-- {name} -->\n```[\w .]+\n(.*?)```\n<!-- end {name} -->", PAGE, re.DOTALL)[1]


def until(there, limit_s=30.0):
    end = time.monotonic() + limit_s
    while not (found := there()):
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)
    return found


class Example:
    def __init__(self, folder):
        self.program = folder / "indexer.py"
        self.program.write_text(block("worker"))
        self.spool = folder / "spool"
        self.file = folder / "heartbeat"

    def give(self, words):
        draft = self.spool / "draft"
        draft.write_text(words)
        draft.rename(self.spool / f"{time.monotonic_ns()}.job")

    def is_idle(self):
        return not list(self.spool.glob("*.job"))


@pytest.fixture
def example(tmp_path):
    return Example(tmp_path)


@pytest.fixture
def started(example):
    """The worker as a plain process, with a limit of one second."""
    env = {**os.environ, "BROKERCTL_HEARTBEAT_FILE": str(example.file), "WATCHDOG_USEC": "1000000"}
    process = subprocess.Popen([sys.executable, example.program, example.spool], env=env)
    until(lambda: check(example, "--ready") == 0)
    yield process
    process.kill()
    process.wait()


def check(example, *options):
    argv = [sys.executable, "-m", "brokerctl", "heartbeat", "check", *options, example.file]
    return subprocess.run(argv, stdout=subprocess.DEVNULL, check=False).returncode


# ---- as a process


def test_the_probe_finds_a_hang_and_not_a_long_job(example, started):
    assert check(example) == 0
    example.give("long 2.5")
    until(lambda: "state=working" in example.file.read_text())
    time.sleep(1.5)
    assert check(example, "--ready") == 0, "it works on something long"
    until(example.is_idle)
    example.give("short 60")
    until(lambda: check(example) == 1)
    assert check(example, "--ready") == 1
    started.kill()
    started.wait()
    assert check(example) == 1


def test_it_ends_its_job_when_it_is_told_to_stop(example, started):
    started.send_signal(signal.SIGTERM)
    assert started.wait(30) == 0
    assert "status=Stopping: SIGTERM" in example.file.read_text()


def test_the_process_monitor_ends_a_hang_and_not_a_long_job(example, started):
    monitor = ProcessMonitor(ladder=(Rung(signal.SIGTERM, S), Rung(signal.SIGKILL, 5 * S)))
    monitor.add(example.file)
    dead = []
    tender = Tender(monitor, dead.append)
    try:
        example.give("long 2.5")
        until(lambda: tender.turn() and example.is_idle())
        assert not dead
        example.give("short 60")
        until(lambda: tender.turn() and dead)
        assert started.wait(30) == -signal.SIGKILL, "it hangs, and asks for no signal"
    finally:
        monitor.close()


# ---- under systemd


@pytest.fixture
def unit(private_systemd, example):
    """The unit file that comes with brokerctl, with shorter times; the worker's name is in it."""
    program = f"{example.program} {example.spool}"
    text = render(files()[UNIT], sys.executable).replace("/etc/brokerctl/workers/%i.py", program)
    name = "brokerctl-worker@indexer.service"
    private_systemd.unit(UNIT, text)
    drop_in = "[Service]\nWatchdogSec=1s\nRestart=no\n"
    drop_in += f"RuntimeDirectory=\nEnvironment=BROKERCTL_HEARTBEAT_FILE={example.file}\n"
    private_systemd.unit(f"{UNIT}.d/test.conf", drop_in)
    private_systemd.systemctl("start", name)
    return name


def state(systemd, unit):
    return systemd.show(unit, "ActiveState", "Result", "StatusText", "ExecMainStatus")


def test_systemd_ends_a_hang_with_sigabrt_and_not_a_long_job(private_systemd, example, unit):
    """Show 1."""
    assert state(private_systemd, unit)["ActiveState"] == "active"
    example.give("long 2.5")
    until(example.is_idle)
    assert state(private_systemd, unit)["ActiveState"] == "active"
    until(lambda: state(private_systemd, unit)["StatusText"] == "1 jobs done")
    probe = [sys.executable, "-m", "brokerctl", "heartbeat", "check", "--ready", str(example.file)]
    assert private_systemd.run(probe).stdout == "alive: 1 jobs done\n", "the same worker, asked as Kubernetes does"
    example.give("short 60")
    until(lambda: state(private_systemd, unit)["ActiveState"] == "failed")
    found = state(private_systemd, unit)
    assert (found["Result"], found["ExecMainStatus"]) == ("watchdog", str(int(signal.SIGABRT)))


def test_systemd_stops_it_cleanly(private_systemd, example, unit):
    private_systemd.systemctl("stop", unit)
    assert state(private_systemd, unit)["Result"] == "success"
    assert "status=Stopping: SIGTERM" in example.file.read_text()


SAVES = """\
import signal, time
from brokerctl.heartbeat import Heartbeat
told = []
signal.signal(signal.SIGTERM, lambda signum, frame: told.append(time.monotonic()))
with Heartbeat() as heart:
    heart.ready()
    while not told or time.monotonic() < told[0] + 0.5:
        heart.beat()
        time.sleep(0.02)
time.sleep(2.5)
"""


def test_a_worker_that_beats_after_it_was_told_to_stop_has_time_to_save(private_systemd, tmp_path):
    """A beat wakes a watchdog that rests during the stop: `stopping` is what ends it."""
    (tmp_path / "saves.py").write_text(SAVES)
    command = f"{sys.executable} {tmp_path}/saves.py"
    private_systemd.unit("saves.service", f"[Service]\nType=notify\nWatchdogSec=1s\nExecStart={command}\n")
    private_systemd.systemctl("start", "saves.service")
    private_systemd.systemctl("stop", "saves.service")
    assert private_systemd.show("saves.service", "Result")["Result"] == "success"


def test_the_systemd_monitor_tells_the_death_once_and_does_not_act(private_systemd, example, unit):
    monitor = SystemdMonitor([unit], systemctl=("nsenter", "-t", str(private_systemd.pid), "-a", "systemctl"))
    dead, conditions = [], set()
    tender = Tender(monitor, dead.append)
    found = tender.turn()[0]
    assert (found.condition, found.ready) == ("alive", True)
    example.give("short 60")
    until(lambda: conditions.update(health.condition for health in tender.turn()) or dead)
    tender.turn()
    assert [health.text for health in dead] == ["its watchdog bit: it was late"]


# ---- in Kubernetes


def test_the_manifest_is_one_and_its_probes_are_what_they_say(example, started):
    manifest = yaml.safe_load(block("manifest"))
    assert (manifest["apiVersion"], manifest["kind"]) == ("apps/v1", "Deployment")
    container = manifest["spec"]["template"]["spec"]["containers"][0]
    env = {entry["name"]: entry["value"] for entry in container["env"]}
    probes = {name: container[name]["exec"]["command"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}

    def run(probe):
        assert probes[probe][-1] == env["BROKERCTL_HEARTBEAT_FILE"]
        words = ["-m", *probes[probe][:-1], str(example.file)]
        return subprocess.run([sys.executable, *words], stdout=subprocess.DEVNULL, check=False).returncode

    assert {name: run(name) for name in probes} == dict.fromkeys(probes, 0)
    example.give("short 60")
    until(lambda: run("livenessProbe") == 1)
    assert run("readinessProbe") == 1
    assert int(env["WATCHDOG_USEC"]) == 30_000_000
    assert started.poll() is None, "a probe ends nothing"
