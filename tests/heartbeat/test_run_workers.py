"""`[[worker]]` of `brokerctl run`: real workers, and what a configuration may say."""

import json
import signal
import subprocess
import sys
import time

import pytest

from brokerctl import config
from brokerctl.durations import S
from brokerctl.errors import ConfigError

WORKER = """\
import signal, sys, time
from brokerctl.heartbeat import Heartbeat, S
what = sys.argv[1]
told = []
signal.signal(signal.SIGTERM, lambda signum, frame: told.append(signum))
heart = Heartbeat()
if what == "slow":
    heart.extend(30 * S)
    time.sleep(2.5)
heart.ready()
heart.status("at work")
began = time.monotonic()
while not told:
    heart.beat()
    if what == "works":
        with heart.working(30 * S):
            time.sleep(1.5)
        what = "done"
    elif what == "extends":
        heart.extend(30 * S)
        time.sleep(1.5)
        what = "done"
    elif what == "done":
        heart.status("has done it")
    elif what == "hangs" and time.monotonic() > began + 0.5:
        time.sleep(60)
    elif what == "ends" and time.monotonic() > began + 0.5:
        heart.stopping("nothing left to do")
        sys.exit(5)
    time.sleep(0.02)
heart.stopping("SIGTERM")
"""
CHILD = """\
import subprocess, sys, time
from brokerctl.heartbeat import Heartbeat
Heartbeat().ready()
child = "import time\\nfrom brokerctl.heartbeat import Heartbeat\\nheart = Heartbeat()\\n"
child += "while True:\\n    heart.beat()\\n    time.sleep(0.02)\\n"
subprocess.run([sys.executable, "-c", child])
"""


@pytest.fixture
def run(tmp_path):
    running = []

    def start(*workers, **tables):
        lines = []
        for entry in workers:
            lines.append("[[worker]]")
            lines += [f"{key} = {json.dumps(value)}" for key, value in entry.items()]
        for name, value in tables.items():
            lines += [f"[[{name}]]", f"command = {json.dumps(value)}"]
        (tmp_path / "config.toml").write_text("\n".join(lines))
        argv = [sys.executable, "-m", "brokerctl", "run", "--config", str(tmp_path / "config.toml")]
        argv += ["--rundir", str(tmp_path / "rundir"), "--trace", str(tmp_path / "trace")]
        running.append(subprocess.Popen(argv, stderr=subprocess.PIPE, text=True))
        return running[-1]

    yield start
    for process in running:
        if process.poll() is None:
            process.send_signal(signal.SIGQUIT)
            process.wait(60)
        process.stderr.close()


def worker(what, **more):
    return {"name": what, "command": [sys.executable, "-c", WORKER, what], "watchdog": "1s", **more}


def status(tmp_path):
    argv = [sys.executable, "-m", "brokerctl", "status", "--json", "--rundir", str(tmp_path / "rundir")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return json.loads(done.stdout)["workers"] if done.returncode == 0 else []


def until(there, limit_s=30.0):
    end = time.monotonic() + limit_s
    while not there():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.05)


def replays(tmp_path):
    argv = [sys.executable, "-m", "brokerctl", "replay", str(tmp_path / "trace")]
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout.startswith("equal:")


def test_workers_run_until_they_are_told_to_stop(run, tmp_path):
    broker = run(worker("a"), worker("slow", **{"ready-timeout": "2s"}), cleanup="echo sweep")
    until(lambda: [one["status"] for one in status(tmp_path)] == ["at work", "at work"])
    broker.send_signal(signal.SIGTERM)
    assert broker.wait(60) == 0
    log = broker.stderr.read()
    places = [
        log.index(word) for word in ("worker.a: ready", "worker.slow: ready", "worker.slow: /", "worker.a: /", "sweep")
    ]
    assert places == sorted(places)
    assert replays(tmp_path)


@pytest.mark.parametrize("what", ["works", "extends"])
def test_long_work_that_was_announced_is_no_hang(run, tmp_path, what):
    broker = run(worker(what))
    until(lambda: [one["status"] for one in status(tmp_path)] == ["has done it"])
    assert broker.poll() is None
    broker.send_signal(signal.SIGTERM)
    assert broker.wait(60) == 0
    assert "silent" not in broker.stderr.read()


def test_a_hang_is_found_and_ends_the_run(run, tmp_path):
    broker = run(worker("hangs"), worker("a"))
    assert broker.wait(60) == 134
    log = broker.stderr.read()
    assert "worker.hangs was silent for" in log
    assert "exit code 134: the first to fail was worker.hangs" in log
    assert replays(tmp_path)


def test_last_words_come_before_the_end(run):
    broker = run(worker("ends"))
    assert broker.wait(60) == 5
    log = broker.stderr.read()
    assert log.index("worker.ends is stopping by itself") < log.index("(rc=5)")


def test_a_child_s_beats_prove_nothing(run):
    """SYSTEMD.md 85: as under NotifyAccess=main."""
    broker = run({"name": "parent", "command": [sys.executable, "-c", CHILD], "watchdog": "1s"})
    assert broker.wait(60) == 134
    assert "worker.parent was silent for" in broker.stderr.read()


def test_nobody_but_workers_is_heard_though_the_address_is_no_secret(run, tmp_path):
    """Any process may read an abstract socket's name (unix(7)); an action that speaks there is no worker by that."""
    tell = "import os, sys, time\nfrom brokerctl.heartbeat import Heartbeat\n"
    tell += "open(sys.argv[1], 'w').write(os.environ['NOTIFY_SOCKET'])\nHeartbeat().ready()\ntime.sleep(60)\n"
    speak = "import os, sys\nfrom brokerctl.heartbeat import Heartbeat\n"
    speak += "os.environ['NOTIFY_SOCKET'] = open(sys.argv[1]).read()\nheart = Heartbeat()\nheart.ready()\n"
    speak += "heart.status('an action')\nsys.exit(heart.failed or 0)\n"
    address = str(tmp_path / "address")
    broker = run(
        {"name": "a", "command": [sys.executable, "-c", tell, address]}, cleanup=[sys.executable, "-c", speak, address]
    )
    until(lambda: [one["state"] for one in status(tmp_path)] == ["ready"])
    broker.send_signal(signal.SIGTERM)
    assert broker.wait(60) == 0, broker.stderr.read()
    assert replays(tmp_path)


def test_the_environment_says_where_to_speak_and_nothing_of_the_broker_s_own_manager(run, tmp_path, monkeypatch):
    monkeypatch.setenv("BROKERCTL_HEARTBEAT_FILE", "/outer")
    monkeypatch.setenv("WATCHDOG_PID", "1")
    script = f"env >{tmp_path}/env; exec sleep 60"
    run({"name": "a", "command": script, "watchdog": "7s"})
    until(lambda: (tmp_path / "env").exists() and "WATCHDOG_USEC" in (tmp_path / "env").read_text())
    env = dict(line.partition("=")[::2] for line in (tmp_path / "env").read_text().splitlines())
    assert env["WATCHDOG_USEC"] == "7000000"
    assert env["NOTIFY_SOCKET"].startswith("@")
    assert "WATCHDOG_PID" not in env
    assert "BROKERCTL_HEARTBEAT_FILE" not in env


# ---- configuration


def resolve(tmp_path, text):
    (tmp_path / "c.toml").write_text(text)
    return config.resolve("hardened", tmp_path / "c.toml").workers


def test_a_worker_has_limits_unless_it_says_otherwise(tmp_path):
    made = resolve(tmp_path, '[[worker]]\nname = "a"\ncommand = "run a"\n')[0]
    assert (made.name, made.command.argv[1:], made.command.notifies) == ("a", ("-c", "run a"), True)
    assert (made.ready_timeout_ns, made.watchdog_ns, made.memory) == (60 * S, None, None)
    assert (made.stop_timeout_ns, made.required) == (10 * S, True)


def test_a_worker_is_what_its_table_says(tmp_path):
    made = resolve(
        tmp_path,
        '[[worker]]\nname = "a"\ncommand = ["a", "b"]\nready-timeout = "5s"\nwatchdog = "1.5s"\nmemory = "512M"\n'
        'stop-timeout = "1m"\nrequired = false\n',
    )[0]
    assert (made.command.argv, made.command.watchdog_ns) == (("a", "b"), 1500000000)
    assert (made.ready_timeout_ns, made.watchdog_ns, made.memory) == (5 * S, 1500000000, 512 << 20)
    assert (made.stop_timeout_ns, made.required) == (60 * S, False)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ('name = "a b"', "worker[0].name: 'a b' is no name"),
        ('name = ""', "worker[0].name: '' is no name"),
        ('name = "a"\nready-timeout = "none"', "worker[0].ready-timeout: 'none' is not possible here"),
        ('name = "a"\nstop-timeout = "soon"', "worker[0].stop-timeout: 'soon' is no duration"),
        ('name = "a"\nwatchdog = "0"', "worker[0].watchdog: expected at least 1ms"),
        ('name = "a"\nwatchdog = "1s"\nnotify = false', "worker[0].watchdog: expected at least 1ms, of a worker that"),
        ('name = "a"\nmemory = "lots"', "worker[0].memory: 'lots' is no size"),
        ('name = "a"\nmemory = 0', "worker[0].memory: '0' is no size"),
        ('name = "a"\nwatchdgo = "1s"', "worker[0]: object contains unknown field 'watchdgo'"),
        ('name = "a"\n[[worker]]\nname = "a"\ncommand = "true"', "worker[1].name: 'a' is the name of another one"),
    ],
)
def test_a_mistake_is_told_with_its_place(tmp_path, keys, message):
    with pytest.raises(ConfigError) as told:
        resolve(tmp_path, f'[[worker]]\ncommand = "true"\n{keys}\n')
    text = str(told.value)
    assert message in text or message.replace("worker[0]", "worker") in text, text
    assert "\n" not in text


def test_more_workers_than_can_be_stopped_are_refused(tmp_path):
    tables = "".join(f'[[worker]]\nname = "w{n}"\ncommand = "true"\n' for n in range(101))
    with pytest.raises(ConfigError, match="101 workers; expected at most 100"):
        resolve(tmp_path, tables)
