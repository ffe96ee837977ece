"""The core with a real main, without systemd: it stays until main has gone, whatever fails, and says what it did."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from brokerctl import trace
from brokerctl.check.replay import first_difference

HERE = Path(__file__).parent


@pytest.fixture
def main(tmp_path):
    """A main in a session of its own; its state is in a file."""
    state = tmp_path / "state"
    process = subprocess.Popen([sys.executable, HERE / "phased.py", state], start_new_session=True)
    wait_for(state.exists)
    yield process
    process.kill()
    process.wait()


def wait_for(there, within_s: float = 10) -> None:
    deadline = time.monotonic() + within_s
    while not there():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def begin(main, tmp_path, how="", *words, env=None):
    """The wrapper, asking a helper that reads main's state file; `how` breaks it (core_stop.py)."""
    argv = [sys.executable, "-I", HERE / "core_stop.py", tmp_path / "state", how, "--pid", str(main.pid), *words]
    environment = {**os.environ, **(env or {})}
    environment.pop("NOTIFY_SOCKET", None) if not env else None
    return subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def end(wrapper, within_s: float = 20) -> tuple[int, str]:
    _, said = wrapper.communicate(timeout=within_s)
    return wrapper.returncode, said


def test_a_stop_ends_when_main_has_ended_and_not_before(main, tmp_path):
    code, _ = end(begin(main, tmp_path))
    assert code == 0
    assert main.wait(timeout=0.5) == 0
    assert (tmp_path / "state").read_text() == "saved after 1"


@pytest.mark.parametrize("how", ["raise:run", "raise:cleanup", "raise:finalize", "raise:start", "raise:continued"])
def test_an_exception_of_its_own_is_told_and_main_still_waited_for_with_one_sigterm(main, tmp_path, how):
    code, said = end(begin(main, tmp_path, how))
    assert code == 70
    assert "this is a bug: RuntimeError: broken for a test" in said
    assert "Traceback" not in said
    main.wait(timeout=0.5)
    assert (tmp_path / "state").read_text() == "saved after 1"


def test_an_exception_in_a_stop_that_is_under_way_sends_nothing(main, tmp_path):
    main.send_signal(signal.SIGTERM)
    wait_for(lambda: (tmp_path / "state").read_text() == "cleanup")
    code, _ = end(begin(main, tmp_path, "raise:cleanup"))
    assert code == 70
    assert (tmp_path / "state").read_text() == "saved after 1"


@pytest.mark.parametrize("how", ["", "raise:cleanup", "raise:told"])
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_told_to_end_it_ends_at_once_with_75_also_in_its_last_resort(main, tmp_path, how, signum):
    wrapper = begin(main, tmp_path, how)
    wait_for(lambda: (tmp_path / "state").read_text() == "cleanup")
    time.sleep(0.1)
    began = time.monotonic()
    wrapper.send_signal(signum)
    code, _ = end(wrapper)
    assert code == 75
    assert time.monotonic() - began < 1.5
    assert main.poll() is None


@pytest.mark.parametrize("how", ["helper:dies", "helper:hangs", "helper:babbles"])
def test_without_any_answer_main_is_stopped_all_the_same(main, tmp_path, how):
    code, said = end(begin(main, tmp_path, how))
    assert code == 1
    assert "can't be asked what it does" in said
    assert (tmp_path / "state").read_text() == "saved after 1"


def test_with_all_its_streams_closed_it_stops_main(main, tmp_path):
    argv = [sys.executable, "-I", HERE / "core_stop.py", tmp_path / "state", "", "--pid", str(main.pid)]
    done = subprocess.run(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *argv], timeout=20, check=False)
    assert done.returncode == 0
    assert (tmp_path / "state").read_text() == "saved after 1"


def test_a_reader_that_does_not_read_does_not_hold_it(main, tmp_path):
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    while True:
        try:
            os.write(writer, b"x" * 65536)
        except BlockingIOError:
            break
    os.set_blocking(writer, True)
    argv = [sys.executable, "-I", HERE / "core_stop.py", tmp_path / "state", "talks", "--pid", str(main.pid)]
    done = subprocess.run(argv, stderr=writer, stdin=subprocess.DEVNULL, timeout=20, check=False)
    os.close(reader)
    os.close(writer)
    assert done.returncode == 0


def test_the_manager_is_told_in_datagrams_that_it_takes(main, tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(0)
        code, _ = end(begin(main, tmp_path, env={"NOTIFY_SOCKET": str(tmp_path / "notify")}))
        told = []
        while True:
            try:
                told.append(manager.recv(8192))
            except BlockingIOError:
                break
    assert code == 0
    assert any(message.startswith(b"STATUS=brokerctl stop: ") for message in told)
    assert all(len(message) <= 4096 and b"\n" not in message for message in told)


def test_a_manager_that_does_not_read_does_not_hold_it(main, tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
            other.setblocking(False)
            other.connect(str(tmp_path / "notify"))
            try:
                while True:
                    other.send(b"x")
            except BlockingIOError:
                pass
        code, _ = end(begin(main, tmp_path, env={"NOTIFY_SOCKET": str(tmp_path / "notify")}))
    assert code == 0


def test_its_trace_replays(main, tmp_path):
    code, _ = end(begin(main, tmp_path, "", "--trace", str(tmp_path / "trace")))
    assert code == 0
    head, lines = trace.read(tmp_path / "trace")
    lines = list(lines)
    assert len(lines) > 10
    assert first_difference(head, lines) is None
    assert first_difference(head, lines[:-1]) is not None


def test_nothing_to_stop_is_exit_0_at_once():
    argv = [sys.executable, "-I", "-m", "brokerctl", "stop", "--pid"]
    environment = {"PATH": os.environ["PATH"]}
    done = subprocess.run(argv, env=environment, capture_output=True, timeout=20, check=False)
    assert (done.returncode, done.stdout) == (0, b"")


@pytest.mark.parametrize("words", [["--pid", "abc"], ["--pid", "1"], ["--post", "--disable"], ["--nonsense"]])
def test_a_mistake_is_one_line_and_exit_2(words):
    argv = [sys.executable, "-I", "-m", "brokerctl", "stop", *words]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("brokerctl stop: ")
    assert done.stderr.count("\n") == 1
