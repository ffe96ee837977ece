import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import brokerctl
from brokerctl.kernel import pidfd, reap
from tests.kernel.conftest import status_of, wait_for

ROOT = str(Path(brokerctl.__file__).parents[1])


def test_a_pidfd_tells_the_wait_status_once_it_is_there(start):
    child = start(["sleep", "1000"])
    assert pidfd.wait(child.pidfd) is None
    assert pidfd.send(child.pidfd, signal.SIGTERM) == 0
    assert status_of(child) == signal.SIGTERM


def test_a_core_dump_is_a_bit_of_the_status():
    assert pidfd.wait_status(signal.SIGQUIT, os.CLD_DUMPED) == signal.SIGQUIT | 0x80
    assert pidfd.wait_status(signal.SIGQUIT, os.CLD_KILLED) == signal.SIGQUIT


def test_a_signal_to_one_that_has_gone_is_esrch_and_reaches_nobody_else(start):
    child = start(["true"])
    other = os.dup(child.pidfd)
    status_of(child)
    try:
        assert pidfd.send(other, signal.SIGKILL) == 3  # ESRCH
    finally:
        os.close(other)
    assert pidfd.open_pid(child.pid) is None


def test_peeking_takes_no_status_away(start):
    child = start(["sh", "-c", "exit 7"])
    assert wait_for(reap.peek, "dead child") == child.pid
    assert reap.peek() == child.pid
    assert status_of(child) == 7 << 8
    assert reap.peek() is None


CHILDLESS = """
import os
from brokerctl.kernel import reap
assert reap.childless()
child = os.fork()
if not child:
    os._exit(0)
assert not reap.childless()
os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
assert not reap.childless()  # a zombie is a child
os.waitpid(child, 0)
assert reap.childless()
"""


def test_childless_is_exact():
    subprocess.run([sys.executable, "-c", CHILDLESS], check=True)


TAKEN_IN = """
import os
from brokerctl.kernel import reap
reap.REAP_MAX = 3
children = [os.fork() or os._exit(0) for _ in range(5)]
for child in children:
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
awaited = []
def is_mine(pid):
    if pid == children[0]:
        awaited.append(os.waitpid(pid, 0)[0])
    return pid == children[0]
assert not reap.take_in(is_mine)
assert reap.take_in(is_mine)
assert awaited == children[:1]
assert reap.childless()
"""


def test_the_dead_are_taken_in_by_bounded_portions_and_one_that_is_awaited_by_whoever_awaits_it():
    subprocess.run([sys.executable, "-c", TAKEN_IN], check=True)


@pytest.mark.parametrize("adopts", [True, False])
def test_a_subreaper_and_nobody_else_adopts_orphans(adopts):
    """The inverted half shows that the test sees the difference."""
    program = textwrap.dedent(
        f"""
        import os, time
        from brokerctl.kernel.prctl import become_subreaper
        from brokerctl.kernel import reap
        if {adopts}:
            assert become_subreaper()
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            if os.fork() == 0:
                os.read(reader, 1)
                os._exit(0)
            os._exit(0)
        os.waitpid(pid, 0)
        adopted = not reap.childless()
        os.write(writer, b"x")
        end = time.monotonic() + 20
        while not reap.childless() and time.monotonic() < end:
            dead = reap.peek()
            if dead:
                reap.collect(dead)
        assert reap.childless()
        print(adopted)
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": ROOT}, capture_output=True, text=True,
        timeout=30, check=False,
    )  # fmt: skip
    assert done.stdout.strip() == str(adopts), done.stderr
