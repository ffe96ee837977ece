import os
import resource
import signal
import stat
import subprocess
import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerctl import heartbeat
from brokerctl.heartbeat import FILE_VARIABLE, MESSAGE_MAX, MS, Heartbeat, S, watchdog_limit_ns


@pytest.fixture
def watched(monkeypatch):
    monkeypatch.setenv("WATCHDOG_USEC", "4000000")
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))


def fields(path):
    head, *lines = path.read_text().splitlines()
    return {"head": head, **dict(line.partition("=")[::2] for line in lines)}


# ---- what is said


def test_a_worker_says_that_it_is_up_once(manager):
    with Heartbeat() as heart:
        heart.ready()
        heart.ready()
        assert manager() == ["READY=1"]


@pytest.mark.usefixtures("watched")
def test_however_often_it_beats_a_quarter_of_the_limit_lies_between_two_messages(manager, clock):
    with Heartbeat() as heart:
        heart.ready()
        manager()
        for _ in range(8000):
            clock.move(1 * MS)
            heart.beat()
        assert manager() == ["WATCHDOG=1"] * 8


def test_without_a_watchdog_no_ping_is_sent(manager, clock):
    with Heartbeat() as heart:
        heart.beat()
        clock.move(3600 * S)
        heart.beat()
        assert manager() == []


@pytest.mark.usefixtures("watched")
def test_long_work_widens_the_watchdog_and_restores_it(manager, clock):
    with Heartbeat() as heart:
        heart.ready()
        manager()
        with heart.working(300 * S):
            clock.move(70 * S)
            heart.beat()
        assert manager() == [
            "WATCHDOG_USEC=300000000\nWATCHDOG=1",
            "WATCHDOG_USEC=4000000\nWATCHDOG=1",
        ]
        clock.move(1 * S)
        heart.beat()
        assert manager() == ["WATCHDOG=1"]


@pytest.mark.usefixtures("watched")
def test_the_watchdog_is_restored_when_the_work_fails(manager):
    with Heartbeat() as heart:
        with pytest.raises(ZeroDivisionError), heart.working(300 * S):
            raise ZeroDivisionError
        assert manager()[-1] == "WATCHDOG_USEC=4000000\nWATCHDOG=1"


@pytest.mark.usefixtures("watched")
def test_work_within_work_never_narrows_the_watchdog(manager):
    with Heartbeat() as heart, heart.working(300 * S), heart.working(1 * S), heart.working(20 * S):
        limits = [message.split("\n")[0] for message in manager()]
        assert limits == ["WATCHDOG_USEC=300000000"] * 3


def test_without_a_watchdog_long_work_does_not_start_one(manager):
    """SYSTEMD.md 84: WATCHDOG_USEC= enables the watchdog of a unit that has none."""
    with Heartbeat() as heart, heart.working(300 * S):
        pass
    assert not any("WATCHDOG" in message for message in manager())


def test_a_stop_is_said_once_and_with_its_reason(manager):
    with Heartbeat() as heart:
        heart.stopping("the queue\nwas closed")
        heart.stopping("again")
    assert manager() == ["STOPPING=1\nSTATUS=Stopping: the queue was closed"]


@pytest.mark.usefixtures("watched")
def test_from_its_stop_on_no_watchdog_waits_and_nothing_wakes_it(manager, clock):
    with Heartbeat() as heart:
        heart.ready()
        manager()
        heart.stopping("enough")
        clock.move(60 * S)
        heart.beat()
        with heart.working(300 * S):
            heart.beat()
        heart.status("saving")
        assert manager() == ["STOPPING=1\nWATCHDOG_USEC=0\nSTATUS=Stopping: enough", "STATUS=saving"]


def test_an_exception_is_the_reason_of_a_stop(manager):
    with pytest.raises(KeyError), Heartbeat():
        raise KeyError
    assert manager() == ["STOPPING=1\nSTATUS=Stopping: KeyError"]


@pytest.mark.usefixtures("watched")
def test_of_many_statuses_the_last_goes_with_the_next_beat(manager, clock):
    with Heartbeat() as heart:
        heart.beat()
        manager()
        for number in range(100):
            heart.status(f"message {number}")
        assert manager() == ["STATUS=message 0"]
        clock.move(1 * S)
        heart.beat()
        assert manager() == ["WATCHDOG=1\nSTATUS=message 99"]


def test_more_time_is_asked_for_in_plain_microseconds(manager):
    """SYSTEMD.md 41: 0, fractions and units are not understood."""
    with Heartbeat() as heart:
        heart.extend(90 * S)
        heart.extend(1)
        assert manager() == ["EXTEND_TIMEOUT_USEC=90000000", "EXTEND_TIMEOUT_USEC=1"]


@pytest.mark.parametrize("ask", [lambda h: h.extend(0), lambda h: h.working(0), lambda h: h.working(-1)])
def test_no_time_is_refused(ask):
    with Heartbeat() as heart, pytest.raises(ValueError, match="expected more than 0"):
        ask(heart)


def test_a_manager_that_has_gone_does_not_stop_the_work(tmp_path, monkeypatch):
    monkeypatch.setenv("NOTIFY_SOCKET", f"{tmp_path}/nobody")
    with Heartbeat() as heart:
        heart.ready()
        assert heart.failed == "cannot notify: No such file or directory"


@given(st.text())
def test_every_status_becomes_one_valid_datagram(text):
    data = heartbeat.encode(f"STATUS={text}")
    assert len(data) <= MESSAGE_MAX
    assert b"\n" not in data
    data.decode()


# ---- who is watched


@pytest.mark.parametrize(
    ("env", "limit_ns"),
    [
        ({"WATCHDOG_USEC": "4000000", "WATCHDOG_PID": "7"}, 4 * S),
        ({"WATCHDOG_USEC": "4000000"}, 4 * S),
        ({"WATCHDOG_USEC": "1"}, 1000),
        ({"WATCHDOG_USEC": "1500000"}, 1500 * MS),
        ({"WATCHDOG_USEC": "4000000", "WATCHDOG_PID": "8"}, None),
        ({"WATCHDOG_USEC": "0", "WATCHDOG_PID": "7"}, None),
        ({"WATCHDOG_USEC": "-1"}, None),
        ({"WATCHDOG_USEC": "4s"}, None),
        ({"WATCHDOG_USEC": "1e6"}, None),
        ({"WATCHDOG_USEC": "4000000", "WATCHDOG_PID": "x"}, None),
        ({}, None),
    ],
)
def test_the_watchdog_is_read_without_integer_traps(env, limit_ns):
    assert watchdog_limit_ns(env, 7) == limit_ns


def test_another_process_s_watchdog_is_not_pinged(manager, monkeypatch, clock):
    monkeypatch.setenv("WATCHDOG_USEC", "4000000")
    monkeypatch.setenv("WATCHDOG_PID", "1")
    with Heartbeat() as heart:
        clock.move(60 * S)
        heart.beat()
        assert manager() == []


# ---- the file


def test_the_file_says_who_lives_since_when_and_how_long_it_may_be_silent(tmp_path):
    path = tmp_path / "worker"
    with Heartbeat(path, limit_ns=7 * S, guid="worker-42") as heart:
        found = fields(path)
        assert found["head"] == "brokerctl-heartbeat 1"
        assert found["pid"] == str(os.getpid())
        assert found["guid"] == "worker-42"
        assert found["limit_ns"] == str(7 * S)
        assert found["state"] == "starting"
        heart.ready()
        assert fields(path)["state"] == "ready"
        with heart.working(60 * S):
            assert (fields(path)["state"], fields(path)["limit_ns"]) == ("working", str(60 * S))
        assert (fields(path)["state"], fields(path)["limit_ns"]) == ("ready", str(7 * S))
    assert fields(path)["state"] == "stopping"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert list(tmp_path.iterdir()) == [path], "no draft is left"


def test_the_file_is_readable_for_others_whatever_the_umask(tmp_path):
    before = os.umask(0o077)
    try:
        Heartbeat(tmp_path / "worker").close()
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "worker").stat().st_mode) == 0o644


def test_no_link_is_followed(tmp_path):
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "worker").symlink_to(tmp_path / "precious")
    (tmp_path / f".worker.{os.getpid()}.0").symlink_to(tmp_path / "precious")
    Heartbeat(tmp_path / "worker").close()
    assert (tmp_path / "precious").read_text() == "mine"
    assert not (tmp_path / "worker").is_symlink()


def test_the_variable_names_the_file_and_no_child_takes_it_for_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv(FILE_VARIABLE, f"{tmp_path}/worker")
    Heartbeat().close()
    assert fields(tmp_path / "worker")["state"] == "starting"
    assert FILE_VARIABLE not in os.environ
    monkeypatch.setenv(FILE_VARIABLE, f"{tmp_path}/other")
    Heartbeat(tmp_path / "worker").close()
    assert FILE_VARIABLE not in os.environ, "nor where an argument counted more"


def test_a_file_that_can_t_be_written_is_told_at_once(tmp_path):
    with pytest.raises(FileNotFoundError):
        Heartbeat(tmp_path / "nowhere" / "worker")


def test_a_file_that_can_t_be_written_later_does_not_stop_the_work(tmp_path):
    folder = tmp_path / "here"
    folder.mkdir()
    heart = Heartbeat(folder / "worker")
    (folder / "worker").unlink()
    folder.rmdir()
    heart.ready()
    assert heart.failed.startswith(f"cannot write {folder}/worker: No such file")
    heart.close()


@pytest.mark.parametrize("room", [0, 20])
def test_a_full_disk_costs_neither_the_old_file_nor_room_for_drafts(tmp_path, room):
    """No byte fits, or only the first few; here because files may not be longer (setrlimit(2))."""
    heart = Heartbeat(tmp_path / "worker")
    before = (tmp_path / "worker").read_text()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
    try:
        heart.ready()
        heart.status("busy")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert heart.failed == f"cannot write {tmp_path}/worker: File too large"
    assert (tmp_path / "worker").read_text() == before
    assert list(tmp_path.iterdir()) == [tmp_path / "worker"]
    heart.close()


def test_it_stays_where_it_is_when_the_worker_goes_elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    heart = Heartbeat("worker")
    monkeypatch.chdir("/")
    heart.ready()
    heart.close()
    assert fields(tmp_path / "worker")["state"] == "ready"


# ---- threads, forks, signals


@pytest.mark.usefixtures("watched")
def test_many_threads_that_beat_at_once_send_one_message(manager, clock):
    with Heartbeat() as heart:
        clock.move(1 * S)
        barrier = threading.Barrier(8)

        def beat():
            barrier.wait()
            for _ in range(200):
                heart.beat()

        threads = [threading.Thread(target=beat) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert manager() == ["WATCHDOG=1"]


def forked(do):
    """Run it in a forked child; its exit code."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            do()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.usefixtures("watched")
def test_a_forked_child_never_speaks_for_its_parent(manager, tmp_path):
    with Heartbeat(tmp_path / "worker") as heart:
        heart.ready()
        manager()
        before = (tmp_path / "worker").read_text()

        def speak():
            signal.alarm(10)  # a lock that another thread held at the fork would never come free
            heart.beat()
            heart.status("child")
            heart.extend(1 * S)
            with heart.working(60 * S):
                heart.beat()
            heart.stopping("child")

        assert heart._lock.acquire()
        try:
            assert forked(speak) == 0
        finally:
            heart._lock.release()
        assert manager() == []
        assert (tmp_path / "worker").read_text() == before


def test_a_signal_handler_may_say_that_it_stops_in_the_middle_of_a_beat(tmp_path, monkeypatch):
    """What the handler said must be what stays in the file, though the beat that it broke into ends later."""
    heart = Heartbeat(tmp_path / "worker")
    heart.ready()
    replace, calls = os.replace, []

    def interrupted(draft, path):
        if not calls:
            calls.append(path)
            heart.stopping("SIGTERM")
        replace(draft, path)

    monkeypatch.setattr(os, "replace", interrupted)
    heart.status("busy")
    assert calls
    assert fields(tmp_path / "worker")["state"] == "stopping"
    heart.close()


# ---- cost


def test_it_imports_next_to_nothing():
    code = "import sys; old = set(sys.modules); import brokerctl.heartbeat; print(*sorted(set(sys.modules) - old))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= {"brokerctl", "brokerctl.heartbeat", "__future__", "_thread"}
