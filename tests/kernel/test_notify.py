import gc
import os
import socket
import warnings
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerctl.heartbeat import MESSAGE_MAX, encode
from brokerctl.kernel import notify
from brokerctl.kernel.notify import Notifier, Receiver, action_environment, watchdog_interval_ns


@pytest.fixture(params=["path", "abstract"])
def manager(request, tmp_path, monkeypatch):
    """A socket such as a service manager has."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.settimeout(20)
        name = f"{tmp_path}/notify"
        if request.param == "abstract":
            receiver.bind(f"\0{name}")
            monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}")
        else:
            receiver.bind(name)
            monkeypatch.setenv("NOTIFY_SOCKET", name)
        yield receiver


@pytest.fixture
def notifier():
    made = Notifier()
    yield made
    made.close()


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("READY=1", b"READY=1"),
        ("STATUS=epilog of ƒ39firM4HrF", b"STATUS=epilog of \xc6\x9239firM4HrF"),
        ("STATUS=two\nlines", b"STATUS=two lines"),
        ("MAINPID=1\nREADY=1", b"MAINPID=1\nREADY=1"),
    ],
)
def test_the_bytes_that_arrive_are_those_that_were_meant(manager, notifier, text, data):
    assert notifier(text) == ""
    assert manager.recv(8192) == data


def test_each_message_is_one_datagram(manager, notifier):
    for text in ("EXTEND_TIMEOUT_USEC=1", "STATUS=x"):
        notifier(text)
    assert [manager.recv(8192), manager.recv(8192)] == [b"EXTEND_TIMEOUT_USEC=1", b"STATUS=x"]


def test_a_long_status_is_cut_between_characters(manager, notifier):
    assert notifier("STATUS=" + "ƒ" * 5000) == ""
    data = manager.recv(8192)
    assert 4094 <= len(data) <= 4096
    assert data.decode() == "STATUS=" + "ƒ" * ((len(data) - 7) // 2)


@given(st.text(st.characters(), max_size=6000))
def test_every_text_becomes_one_valid_datagram(text):
    data = encode(f"STATUS={text}")
    assert len(data) <= MESSAGE_MAX
    assert data.decode().startswith("STATUS=")
    assert b"\n" not in data


def test_without_a_manager_nothing_happens(monkeypatch):
    for value in (None, ""):
        monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
        if value is not None:
            monkeypatch.setenv("NOTIFY_SOCKET", value)
        assert Notifier()("READY=1") == ""


def test_a_manager_that_was_never_there_is_no_error(monkeypatch, tmp_path):
    monkeypatch.setenv("NOTIFY_SOCKET", f"{tmp_path}/none")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # sdnotify's own socket
        assert Notifier()("READY=1") == ""
        gc.collect()


def test_a_manager_that_went_is_told_as_an_error(manager, notifier):
    manager.close()
    assert notifier("READY=1") == "Connection refused"


def test_a_manager_that_does_not_read_costs_a_moment_and_a_message(manager, notifier):
    assert "timed out" in (notifier(f"STATUS={n}") for n in range(4000))
    manager.recv(8192)


def test_what_is_the_brokers_alone_is_taken_from_actions():
    env = {
        "PATH": "/bin", "NOTIFY_SOCKET": "/run/x", "WATCHDOG_USEC": "1", "WATCHDOG_PID": "1", "LISTEN_FDS": "1",
        "LISTEN_PID": "1", "FLUX_JOB_ID": "ƒ1", "FLUX_TASK_RANK": "0", "PMI_RANK": "0", "FLUX_URI": "local:///x",
    }  # fmt: skip
    assert action_environment(env) == {"PATH": "/bin", "FLUX_URI": "local:///x"}


@pytest.mark.parametrize(
    ("env", "interval_ns"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": ""}, None),
        ({"WATCHDOG_USEC": "-3"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "30000000"}, 10_000_000_000),
        ({"WATCHDOG_USEC": "1"}, 1_000_000),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "17"}, 1_000_000_000),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "18"}, None),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "x"}, None),
    ],
)
def test_the_watchdog_is_fed_three_times_in_its_interval_if_it_is_ours(env, interval_ns):
    assert watchdog_interval_ns(env, 17) == interval_ns


# ---- the manager's side


@pytest.fixture
def receiver(monkeypatch):
    made = Receiver()
    monkeypatch.setenv("NOTIFY_SOCKET", made.address)
    yield made
    made.close()


def test_a_receiver_hears_what_is_said_and_who_said_it(receiver, notifier):
    notifier("READY=1\nSTATUS=ƒ")
    notifier("WATCHDOG=1")
    assert list(receiver.receive()) == [(os.getpid(), "READY=1\nSTATUS=ƒ"), (os.getpid(), "WATCHDOG=1")]
    assert list(receiver.receive()) == []


def test_a_receiver_knows_a_child_from_its_parent(receiver, notifier):
    pid = os.fork()
    if pid == 0:
        notifier("WATCHDOG=1")
        os._exit(0)
    os.waitpid(pid, 0)
    assert list(receiver.receive()) == [(pid, "WATCHDOG=1")]


def test_a_flood_is_taken_in_by_bounded_portions(receiver, notifier, monkeypatch):
    monkeypatch.setattr(notify, "RECEIVED_MAX", 3)
    for _ in range(5):
        assert notifier("WATCHDOG=1") == ""
    assert [len(list(receiver.receive())) for _ in range(3)] == [3, 2, 0]


def test_descriptors_that_are_sent_along_are_closed_and_so_a_barrier_is_answered(receiver):
    reader, writer = os.pipe()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.connect(f"\0{receiver.address[1:]}")
        socket.send_fds(sender, [b"BARRIER=1"], [writer])
        os.close(writer)
        before = len(list(Path("/proc/self/fd").iterdir()))
        assert list(receiver.receive()) == [(os.getpid(), "BARRIER=1")]
        assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert os.read(reader, 1) == b"", "nobody has the other end any more"
    os.close(reader)


def test_what_is_too_long_or_no_utf_8_is_no_harm(receiver):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.connect(f"\0{receiver.address[1:]}")
        sender.send(b"x" * (MESSAGE_MAX + 1))
        sender.send(b"STATUS=\xff")
        assert list(receiver.receive()) == [(os.getpid(), "STATUS=\ufffd")]
