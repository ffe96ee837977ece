import json
import os
import pty
import select
import signal
import subprocess
import sys
import time

import pytest

from brokerctl.cli import main
from brokerctl.heartbeat import Heartbeat, S
from brokerctl.monitors.beatfile import read

BEATS = """\
import sys, time
from brokerctl.heartbeat import Heartbeat, S
heart = Heartbeat()
heart.ready()
heart.status("at work")
for turn in range(20):
    heart.beat()
    time.sleep(0.02)
if sys.argv[1:]:
    with heart.working(int(sys.argv[1])):
        time.sleep(60)
time.sleep(60)
"""


@pytest.fixture
def worker(tmp_path):
    heart = Heartbeat(tmp_path / "w", limit_ns=60 * S)
    yield heart
    heart.close()


@pytest.mark.parametrize(
    ("say", "options", "code", "line"),
    [
        (lambda _h: None, [], 0, "alive: starting"),
        (lambda _h: None, ["--ready"], 1, "alive, but not ready: starting"),
        (lambda h: h.ready(), ["--ready"], 0, "alive: ready"),
        (lambda h: h.ready(), ["--ready", "--max-age", "1ns"], 1, "late: its last beat was"),
        (lambda h: h.stopping("x"), [], 0, "stopping: Stopping: x"),
        (lambda h: h.stopping("x"), ["--ready"], 1, "stopping, but not ready: Stopping: x"),
    ],
)
def test_the_exit_code_is_what_a_probe_needs(worker, tmp_path, capsys, say, options, code, line):
    say(worker)
    assert main(["heartbeat", "check", *options, f"{tmp_path}/w"]) == code
    assert capsys.readouterr().out.startswith(line)


def test_no_file_is_a_failed_probe_and_no_usage_error(tmp_path, capsys):
    assert main(["heartbeat", "check", f"{tmp_path}/w"]) == 1
    assert capsys.readouterr().out == "missing: No such file or directory\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "nothing; expected one of check, list, exec"),
        (["chekc"], "unknown 'chekc'; expected one of check, list, exec"),
        (["check", "--max-age", "0", "f"], "--max-age: '0' is no time to wait"),
        (["check", "--max-age", "soon", "f"], "--max-age: 'soon' is no duration"),
        (["exec", "--interval", "1s"], "no command; expected it after --"),
        (["exec", "--"], "no command; expected it after --"),
        (["list", "/nonexistent"], "/nonexistent: cannot read: No such file or directory"),
    ],
)
def test_a_mistake_is_one_line_and_2(capsys, words, message):
    assert main(["heartbeat", *words]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"brokerctl heartbeat: {message}")
    assert error.count("\n") == 1


def test_a_list_has_a_row_for_each_file(worker, tmp_path, capsys):
    worker.ready()
    (tmp_path / "other").write_text("nothing")
    (tmp_path / ".w.draft").write_text("half")
    assert main(["heartbeat", "list", str(tmp_path)]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["WORKER", "VERDICT", "STATE", "PID", "BEAT"]
    assert [row.split()[:2] for row in rows] == [["other", "garbage"], ["w", "alive"]]
    assert main(["heartbeat", "list", "--json", str(tmp_path)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(entry["verdict"], entry["ready"]) for entry in found] == [("garbage", False), ("alive", True)]
    assert found[1]["pid"] == os.getpid()


# ---- exec


@pytest.fixture
def execute(tmp_path):
    running = []

    def start(*command, interval="0.1s", **env):
        argv = [sys.executable, "-m", "brokerctl", "heartbeat", "exec", "--interval", interval]
        argv += ["--file", str(tmp_path / "w"), "--", *command]
        running.append(subprocess.Popen(argv, stderr=subprocess.PIPE, text=True, env={**os.environ, **env}))
        return running[-1]

    yield start
    for process in running:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        process.wait(30)
        process.stderr.close()


def until(there, limit_s=20.0):
    end = time.monotonic() + limit_s
    while not there():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["sh", "-c", "exit 3"], 3),
        (["sh", "-c", "kill -KILL $$"], 137),
        (["/nonexistent"], 127),
        (["/etc/passwd"], 126),
        (["true"], 0),
    ],
)
def test_exec_gives_back_the_exit_code(execute, command, code):
    assert execute(*command).wait(30) == code


def test_what_says_nothing_is_told_to_run_and_not_to_work(execute, tmp_path):
    process = execute("sleep", "60")
    until(lambda: read(tmp_path / "w").ready)
    assert "this proves that it runs, not that it works" in read(tmp_path / "w").text
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 143
    assert "this proves that it runs, not that it works" in process.stderr.read()
    assert "status=Stopping: SIGTERM" in (tmp_path / "w").read_text()


def test_what_is_stopped_is_not_alive_though_it_exists(execute, tmp_path):
    process = execute("sh", "-c", "kill -STOP $$", WATCHDOG_USEC="1000000")
    until(lambda: read(tmp_path / "w").beat is not None and read(tmp_path / "w", max_age_ns=S).verdict == "late")
    process.send_signal(signal.SIGCONT)
    assert process.wait(30) == 0


def test_from_its_first_own_beat_on_only_its_own_count(execute, tmp_path):
    process = execute(sys.executable, "-c", BEATS, WATCHDOG_USEC="1000000")
    until(lambda: read(tmp_path / "w").verdict == "late")
    assert process.poll() is None, "it is there, and hangs"
    process.terminate()
    assert "it beats: from now on only its own beats count" in process.stderr.read()


def test_a_hang_of_what_says_nothing_is_not_found(execute, tmp_path):
    execute("sleep", "60", WATCHDOG_USEC="1000000")
    until(lambda: read(tmp_path / "w").ready)
    end = time.monotonic() + 2
    while time.monotonic() < end:
        assert read(tmp_path / "w").verdict == "alive"
        time.sleep(0.02)


def test_long_work_of_the_command_widens_the_limit(execute, tmp_path):
    execute(sys.executable, "-c", BEATS, str(600 * S))
    until(lambda: (beat := read(tmp_path / "w").beat) is not None and beat.state == "working")
    assert read(tmp_path / "w").beat.limit_ns == 600 * S


def test_a_stranger_can_t_speak_for_the_command(execute, tmp_path):
    """The socket is open to all; only the command's own group is heard."""
    process = execute(
        "sh", "-c", "echo $NOTIFY_SOCKET >" + str(tmp_path / "address") + "; exec sleep 60", interval="60s"
    )
    until(lambda: (tmp_path / "address").exists() and (tmp_path / "address").read_text())
    env = {**os.environ, "NOTIFY_SOCKET": (tmp_path / "address").read_text().strip()}
    code = "from brokerctl.heartbeat import Heartbeat; heart = Heartbeat(); heart.ready(); print(heart.failed)"
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "\n", "it could be sent"
    time.sleep(0.5)
    assert read(tmp_path / "w").beat.state == "starting"
    assert process.poll() is None


def test_a_stop_key_stops_nothing_as_nobody_could_continue_it(tmp_path):
    argv = [sys.executable, "-m", "brokerctl", "heartbeat", "exec", "--file", str(tmp_path / "w"), "--"]
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(argv[0], [*argv, "sh", "-c", "echo ready; exec sed -u s/^/got:/"])  # noqa: S606 - in pty.fork's child
    seen = b""

    def has(word):
        nonlocal seen
        if select.select([terminal], [], [], 0)[0]:
            seen += os.read(terminal, 4096)
        return word in seen

    try:
        until(lambda: has(b"ready"))
        os.write(terminal, b"\x1awords\n")
        until(lambda: has(b"got:words"))
    finally:
        os.kill(pid, signal.SIGTERM)
        os.close(terminal)
        os.waitpid(pid, 0)


def test_exec_under_systemd_passes_the_hang_on(private_systemd, tmp_path):
    """The command beats, then hangs: systemd ends it, through the wrapper, which was its main process."""
    (tmp_path / "hang.py").write_text(BEATS)
    command = (
        f"{sys.executable} -Im brokerctl heartbeat exec --file {tmp_path}/w -- {sys.executable} {tmp_path}/hang.py"
    )
    unit = f"[Service]\nType=notify\nWatchdogSec=1s\nTimeoutAbortSec=5s\nExecStart={command}\n"
    private_systemd.unit("hang.service", unit)
    private_systemd.systemctl("start", "hang.service")
    until(lambda: private_systemd.show("hang.service", "ActiveState")["ActiveState"] == "failed")
    assert private_systemd.show("hang.service", "Result")["Result"] == "watchdog"
    assert "Stopping" in (tmp_path / "w").read_text()
