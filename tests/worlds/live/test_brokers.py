"""The brokers of a tree, from within the process that keeps them; `tests/cli/test_start.py` has it from outside."""

import os
import signal
import time
from contextlib import suppress

import pytest

from brokerctl.durations import MS
from brokerctl.kernel import pidfd, proc
from brokerctl.worlds.live import brokers
from brokerctl.worlds.live.brokers import Brokers

# Python 3.12 warns of forks beside threads; the test runner may have some.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")


def test_a_broker_that_survives_even_sigkill_is_named_and_not_waited_for(tmp_path):
    """As one in uninterruptible sleep; here it never gets the signal. In a process of its own, which adopts."""
    pid = os.fork()
    if pid == 0:
        try:
            (tmp_path / "told").write_text("\n".join(_keep()))
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    lines = (tmp_path / "told").read_text().splitlines()
    try:
        assert [line.rpartition(")")[2] for line in lines[:3]] == [
            " is still there 50ms after the leader's end", " does not end on SIGTERM; it gets SIGKILL",
            " survives SIGKILL; it is left behind",
        ]  # fmt: skip
        assert lines[-1] == "ended with 5"
    finally:
        for left in proc.pids():
            if proc.words(left) == ["sleep", str(pid)]:
                with suppress(ProcessLookupError):
                    os.kill(left, signal.SIGKILL)


def _keep():
    """What is told by who keeps a leader that ends, and a follower whom no signal reaches."""
    told = []
    brokers.TERM_GRACE_NS = brokers.KILL_LIMIT_NS = brokers.ORPHANS_LIMIT_NS = 50 * MS
    pidfd.send = lambda _fd, _signum: 0
    arguments = (["sh", "-c", "exit 5"], ["sleep", str(os.getpid())])
    kept = Brokers(
        2, lambda rank: arguments[rank], tell=lambda entry: told.append(entry.text), pass_on=lambda *_: None,
        exit_timeout_ns=50 * MS,
    )  # fmt: skip
    began = time.monotonic()
    code = kept.run()
    assert time.monotonic() - began < 10
    return [*told, f"ended with {code}"]
