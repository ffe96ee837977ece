"""A broker of `brokerctl run` as the helper asks it."""

import os
import subprocess
import sys
import time

import pytest

from brokerctl.model.lifecycle import State
from brokerctl.stop import target
from brokerctl.stop.supervised import Supervised, where
from tests.stop.recordings import drive

CONFIG = '[attrs]\n"broker.cleanup-timeout" = "7s"\n'


@pytest.fixture
def broker(tmp_path):
    """A broker whose program has words that a broker of its own could have."""
    (tmp_path / "run.toml").write_text(CONFIG)
    argv = [
        sys.executable, "-I", "-m", "brokerctl", "run", "--policy", "flux", "--config", tmp_path / "run.toml",
        "--rundir", tmp_path / "it", "--", "/bin/sh", "-c", "sleep 60", "start", "--rundir", "/no/such/place",
    ]  # fmt: skip
    process = subprocess.Popen(argv, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 20
    while not (tmp_path / "it" / "control").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    yield process
    process.terminate()
    process.wait(timeout=20)


def test_a_broker_is_found_and_asked_whatever_words_its_program_has(broker, tmp_path):
    fd, aim = target.take(broker.pid)
    os.close(fd)
    assert (aim.kind, where(aim)) == ("brokerctl", tmp_path / "it")
    found, _ = drive(Supervised(aim).look(), lambda _argv: "")
    assert found.state in set(State)
    assert found.limits.cleanup_timeout_ns == 7_000_000_000
