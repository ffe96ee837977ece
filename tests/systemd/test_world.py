"""The world of a real systemd: scenarios with a unit hold there as they do in the simulator."""

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from brokerctl.durations import S
from brokerctl.records.base import UNIT
from brokerctl.records.units import UnitMoved
from brokerctl.scenario import format as scenario_format
from brokerctl.scenario import runner
from brokerctl.worlds.systemd import private, world
from brokerctl.worlds.systemd.service import Service, open_log, read_log

FOLDER = Path(__file__).parents[2] / "scenarios"
FACTS = [
    path
    for folder in ("systemd", "stop")
    for path in sorted((FOLDER / folder).rglob("*.toml"))
    if "systemd" in scenario_format.load(path).file.worlds
]
# Each waits most of its time.
AT_ONCE = 5
# What is told of a run whose end was not seen: it goes on till its horizon.
LOST = "expect.outcome"

HANGS = """\
about = "ExecStop= hangs"
worlds = ["sim", "systemd"]
[unit]
Type = "notify"
TimeoutStopSec = 1
KillMode = "mixed"
main = "main"
exec-stop = ["hangs"]
[puppet.main]
runs = "forever"
notify = ["READY=1"]
[puppet.hangs]
runs = "forever"
[[step]]
at = "unit running + 0.3s"
do = "systemctl stop"
[expect.unit]
result = "timeout"
takes = "1s"
signals = ["main TERM", "control TERM"]
"""

BROKERS = """\
about = "the unit's main process is the leader of two brokers"
worlds = ["sim", "systemd"]
[unit]
Type = "notify"
TimeoutStopSec = 20
KillMode = "mixed"
[instance]
size = 2
[attrs]
"broker.sd-notify" = 1
"broker.sd-stop-timeout" = "90s"
[puppet.quick]
runs = "0.2s"
[puppet.fails]
runs = "0.1s"
exit = 3
[[rc1]]
puppet = "quick"
[[cleanup]]
puppet = "fails"
[[rc3]]
puppet = "quick"
[[step]]
at = "run + 0.3s"
do = "systemctl stop"
[expect]
exit = 3
log = ["cleanup.0: fails Exited (rc=3)"]
[expect.unit]
active = "failed"
result = "exit-code"
main = 3
signals = ["main TERM"]
rc = [0, 0]
status = "Exiting"
"""


@pytest.fixture
def supported():
    if reason := private.unsupported():
        pytest.skip(f"no private systemd: {reason}")
    yield
    world._close()


def scenario(tmp_path, text):
    path = tmp_path / "scenario.toml"
    path.write_text(text)
    return scenario_format.load(path)


def failures(*options):
    """By name what does not hold in a real systemd of those scenarios, and the report; none may be skipped."""
    done = subprocess.run(
        [sys.executable, "-m", "brokerctl", "test", "--world", "systemd", "--format", "tap", *map(str, options)],
        env={**os.environ, "PYTHONPATH": str(FOLDER.parent)}, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=400, check=False,
    )  # fmt: skip
    assert done.stderr == ""
    assert "# SKIP" not in done.stdout
    failed = {}
    for block in re.split(r"^(?=(?:not )?ok )", done.stdout, flags=re.MULTILINE):
        if found := re.match(r"not ok \d+ - (\S+) ", block):
            failed[found[1]] = re.findall(r'^    - "(.*)"$', block, re.MULTILINE)
    return failed, done.stdout


@pytest.mark.usefixtures("supported")
def test_every_fact_and_every_short_stop_holds_in_a_real_systemd():
    late, report = failures("-j", AT_ONCE, *FACTS)
    for _ in range(2):  # several at once on a busy machine may be late, and miss each other; alone, each holds
        assert not any(told.startswith(LOST) for failed in late.values() for told in failed), report
        if late:
            late, report = failures(*(path for path in FACTS if path.stem in late))
    assert not late, report


@pytest.mark.usefixtures("supported")
@pytest.mark.parametrize("text", [HANGS, BROKERS], ids=["puppets", "brokers"])
def test_a_scenario_holds_in_the_simulator_and_in_a_real_systemd(tmp_path, text):
    for name in ("sim", "systemd"):
        result = runner.run(scenario(tmp_path, text), name)
        assert (result.status, result.failures) == ("passed", ())


@pytest.mark.usefixtures("supported")
@pytest.mark.parametrize(
    ("right", "wrong", "what"),
    [
        ('result = "timeout"', 'result = "success"', "expect.unit.result"),
        ('takes = "1s"', 'takes = "2s"', "expect.unit.takes"),
        ('"control TERM"', '"control KILL"', "expect.unit.signals"),
    ],
)
def test_a_scenario_that_expects_something_else_fails_there(tmp_path, right, wrong, what):
    result = runner.run(scenario(tmp_path, HANGS.replace(right, wrong)), "systemd")
    assert [failure.name for failure in result.failures] == [what]


@pytest.mark.usefixtures("supported")
def test_the_states_of_a_real_unit_are_those_of_the_model(tmp_path):
    def states(name):
        lines = []
        runner.run(scenario(tmp_path, HANGS), name, sink=lines.append)
        return [(line.what.old, line.what.new) for line in lines if isinstance(line.what, UnitMoved)]

    assert states("systemd") == states("sim")


@pytest.mark.usefixtures("supported")
def test_a_trace_goes_on_in_time_and_number(tmp_path):
    lines = []
    runner.run(scenario(tmp_path, HANGS), "systemd", sink=lines.append)
    assert {line.rank for line in lines} == {UNIT}
    assert [line.n for line in lines] == list(range(len(lines)))
    assert [line.t_ns for line in lines] == sorted(line.t_ns for line in lines)


@pytest.mark.usefixtures("supported")
def test_a_world_that_gets_no_processor_for_a_while_loses_nothing(monkeypatch):
    """A daemon-reload alone is hundreds of lines in the manager's log."""
    ready = Service.ready

    def late(self, fds):
        time.sleep(0.6)
        ready(self, fds)

    monkeypatch.setattr(Service, "ready", late)
    result = runner.run(scenario_format.load(FOLDER / "systemd" / "daemon-reload-does-no-other-harm.toml"), "systemd")
    assert [failure for failure in result.failures if failure.name == LOST] == []


def test_an_entry_of_the_log_that_is_read_late_has_the_time_at_which_it_was_sent(tmp_path):
    with open_log(tmp_path / "log") as log, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as journal:
        before_ns = time.monotonic_ns()
        journal.sendto(b"one", str(tmp_path / "log"))
        after_ns = time.monotonic_ns()
        time.sleep(0.5)
        [(sent_ns, data)] = read_log(log)
    assert data == b"one"
    assert before_ns - S // 10 <= sent_ns <= after_ns + S // 10


@pytest.mark.usefixtures("supported")
def test_a_run_that_leaves_its_unit_active_leaves_the_next_one_nothing(tmp_path):
    text = HANGS.replace("about", 'horizon = "0.5s"\nabout').split("[[step]]")[0]
    runner.run(scenario(tmp_path, text), "systemd")
    assert runner.run(scenario(tmp_path, HANGS), "systemd").status == "passed"


@pytest.mark.usefixtures("supported")
def test_brokers_may_have_their_files_anywhere(monkeypatch):
    folder = Path("/root") / f"brokerctl-test-{os.getpid()}"
    folder.mkdir(mode=0o700)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    try:
        assert runner.run(scenario(folder, BROKERS), "systemd").failures == ()
    finally:
        shutil.rmtree(folder)


def test_more_brokers_than_a_machine_can_bear_are_not_started(tmp_path):
    result = runner.run(scenario(tmp_path, BROKERS.replace("size = 2", "size = 1000")), "systemd")
    assert (result.status, result.reason) == ("skipped", "world systemd runs at most 64 brokers")


def test_a_machine_that_cannot_have_one_skips_with_the_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(world, "unsupported", lambda: "needs root")
    result = runner.run(scenario(tmp_path, HANGS), "systemd")
    assert (result.status, result.reason) == ("skipped", "no private systemd: needs root")


def test_a_scenario_without_a_unit_is_not_for_this_world(tmp_path):
    text = 'about = "no unit"\nworlds = ["sim", "systemd"]\n[[step]]\nat = "run"\ndo = "sigterm"\n'
    result = runner.run(scenario(tmp_path, text), "systemd")
    assert (result.status, result.reason) == ("skipped", "world systemd runs scenarios with a [unit]")
