"""Children and signals of the helper, each in a process of its own: a signal that is held stays so."""

import subprocess
import sys

import pytest

HEAD = """
import os, signal, time
from brokerctl.perilog import processes
processes.hold_signals()
in_ms = lambda ms: time.monotonic_ns() + ms * 1_000_000
"""


def said(code):
    done = subprocess.run(
        [sys.executable, "-I", "-c", HEAD + code], capture_output=True, text=True, timeout=30, check=True
    )
    return done.stdout.split()


def test_a_signal_that_comes_while_a_tool_runs_is_not_lost():
    assert said(
        """
print(processes.run(["sh", "-c", f"kill -TERM {os.getpid()}; echo done"], 5_000_000_000))
try:
    processes.pause(5_000_000_000, None)
except processes.Told as told:
    print(told.signum)
"""
    ) == ["(0,", "'done')", "15"]


def test_a_signal_that_came_before_anything_was_waited_for_is_not_lost():
    assert said(
        """
os.kill(os.getpid(), signal.SIGINT)
pid = processes.start(["sleep", "60"], processes.TOOL_ENVIRONMENT)
try:
    processes.wait(pid, None)
except processes.Told as told:
    processes.kill(pid)
    print(told.signum, os.path.exists(f"/proc/{pid}"))
"""
    ) == ["2", "False"]


def test_a_tool_that_does_not_end_is_killed_with_all_of_its_group_and_reaped():
    assert said(
        """
print(processes.run(["sh", "-c", "echo half; sleep 60 & exec sleep 60"], 300_000_000))
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    print("reaped")
"""
    ) == ["(None,", "'half')", "reaped"]


@pytest.mark.parametrize(
    ("argv", "code"), [(["/nowhere"], 127), (["nowhere"], 127), (["/etc/passwd"], 126), (["/"], 126)]
)
def test_a_tool_that_cannot_be_started_has_the_code_that_a_shell_would_give(argv, code):
    assert said(f"print(processes.run({argv!r}, 5_000_000_000)[0])") == [str(code)]


def test_a_child_starts_with_no_signal_blocked_or_ignored():
    words = said("print(processes.run(['grep', '-E', 'SigBlk|SigIgn', '/proc/self/status'], 5_000_000_000)[1])")
    of_libc = 0b11 << 31  # 32 and 33 are its own (nptl(7))
    assert words[::2] == ["SigBlk:", "SigIgn:"]
    assert int(words[1], 16) == int(words[3], 16) & ~of_libc == 0


def test_a_deadline_ends_a_wait_and_a_pause():
    assert said(
        """
pid = processes.start(["sleep", "60"], processes.TOOL_ENVIRONMENT)
for wait in (lambda: processes.wait(pid, in_ms(50)), lambda: processes.pause(9_000_000_000, in_ms(50))):
    try:
        wait()
    except processes.Late:
        print("late")
processes.kill(pid)
processes.pause(1_000_000, None)
"""
    ) == ["late", "late"]
