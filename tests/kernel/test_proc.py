import os
import signal
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerctl.kernel import proc
from tests.kernel.conftest import status_of, wait_for

COOKIE = "broker-1:cleanup.0"


def environment(cookie=COOKIE, **more):
    return {**os.environ, proc.COOKIE: cookie, **more}


def is_asleep(pid):
    found = proc.stat(pid)
    return found is not None and found.comm == "sleep"


def test_a_process_and_its_descendants_carry_the_cookie(start):
    child = start(["sh", "-c", "setsid sleep 1000 & exec sleep 1000"], env=environment())
    wait_for(lambda: len(proc.carriers(COOKIE.encode())) == 2, "two carriers")
    found = proc.carriers(COOKIE.encode())
    assert child.pid in found
    assert proc.carriers(b"broker-1") == found
    assert not proc.carriers(b"broker-1:cleanup")
    assert not proc.carriers(b"broker")
    for pid in found:
        os.kill(pid, signal.SIGKILL)


def test_a_zombie_carries_nothing(start):
    child = start(["true"], env=environment())
    wait_for(lambda: proc.stat(child.pid).state == "Z", "zombie")
    assert not proc.carries(child.pid, COOKIE.encode())
    status_of(child)
    assert not proc.carries(child.pid, COOKIE.encode())
    assert proc.stat(child.pid) is None
    assert proc.command(child.pid) == "[gone]"


def test_a_cookie_is_found_in_an_environment_of_any_size(start):
    many = {f"LONG_{n}": "x" * 100_000 for n in range(5)}
    child = start(["sleep", "1000"], env={**many, **environment()})
    wait_for(lambda: is_asleep(child.pid), "sleep")
    assert proc.carries(child.pid, COOKIE.encode())


@pytest.mark.parametrize(
    ("environ", "found"),
    [
        (b"BROKERCTL_RUN=b:cleanup.0\0PATH=/bin\0", True),
        (b"PATH=/bin\0BROKERCTL_RUN=a:rc1.0,b:cleanup.0\0", True),
        (b"BROKERCTL_RUN=b:cleanup.0,c:rc2.0\0", True),
        (b"BROKERCTL_RUN=b:cleanup.01\0", False),
        (b"BROKERCTL_RUN=bb:cleanup.0\0", False),
        (b"OTHER=BROKERCTL_RUN=b:cleanup.0\0", False),
        (b"XBROKERCTL_RUN=b:cleanup.0\0", False),
        (b"", False),
    ],
)
def test_only_the_cookie_itself_counts(environ, found):
    assert proc.has_cookie(environ, b"b:cleanup.0") is found


@given(st.binary())
def test_no_environment_breaks_the_reader(environ):
    assert proc.has_cookie(environ, b"no-such-cookie") is False


@given(st.binary(max_size=40).filter(lambda comm: b"\0" not in comm))
def test_a_command_may_be_called_anything(comm):
    tail = b" S 17 18 19 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4242 0 0"
    found = proc.parse_stat(b"4711 (" + comm + b")" + tail)
    assert found is not None
    assert (found.state, found.ppid, found.pgrp, found.session, found.start_ticks) == ("S", 17, 18, 19, 4242)
    assert found.comm == comm.decode(errors="backslashreplace")


@pytest.mark.parametrize("data", [b"", b"1 (x", b"1 (x) S 1", b")"])
def test_what_is_no_stat_is_none(data):
    assert proc.parse_stat(data) is None


def test_stat_tells_the_truth_about_a_process(start):
    child = start(["sleep", "1000"])
    wait_for(lambda: is_asleep(child.pid), "sleep")
    found = proc.stat(child.pid)
    assert (found.ppid, found.pgrp, found.session) == (os.getpid(), child.pid, os.getsid(0))
    assert 0 <= proc.age_ns(found) < 60_000_000_000
    assert proc.command(child.pid) == "sleep 1000"
    assert child.pid in proc.children()


def test_children_are_found_however_many_there_are(start):
    """The kernel tells them a page at a time."""
    program = "import os, signal\nfor _ in range(1000):\n    if not os.fork(): signal.pause()\nsignal.pause()"
    child = start([sys.executable, "-ISc", program])
    wait_for(lambda: len(proc.children_of(child.pid)) == 1000, "a thousand children")


def test_a_command_is_shown_on_one_line_and_shortened(start):
    child = start(["sh", "-c", "read x", "a\nb\x1b[31m", "y" * 1000], stdin=(pipe := os.pipe())[0])
    wait_for(lambda: proc.command(child.pid).startswith("sh"), "command")
    shown = proc.command(child.pid)
    os.close(pipe[0])
    os.close(pipe[1])
    assert shown.isprintable()
    assert len(shown) == 200
    assert shown.endswith("y…")
    status_of(child)


def test_who_holds_a_pipe_is_found(start, monkeypatch):
    reader, writer = os.pipe()
    inode = os.fstat(reader).st_ino
    try:
        child = start(["sleep", "1000"], stdout=writer)
        os.close(writer)
        wait_for(lambda: is_asleep(child.pid), "sleep")
        assert proc.holder(inode, [child.pid]) == child.pid
        with monkeypatch.context() as patient:  # a busy machine with thousands of processes takes its time
            patient.setattr(proc, "_HOLDER_PATIENCE_NS", 20_000_000_000)
            assert proc.holder(inode, []) == child.pid
        os.kill(child.pid, signal.SIGKILL)
        status_of(child)
        began = time.monotonic()
        assert proc.holder(inode, []) is None
        assert time.monotonic() - began < 10
    finally:
        os.close(reader)
