"""A verb that is told to end stops and reaps what it has started."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import MARK, marked_processes

SCENARIO = """
about = "a frozen leaf holds the stop for ever"
[instance]
size = 2
[[fault]]
at = "run"
do = "freeze"
ranks = "1"
[[step]]
at = "run + 0.2s"
do = "sigterm"
"""


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_test_run_that_is_told_to_end_leaves_no_broker_behind_not_even_a_frozen_one(tmp_path, signum):
    path = tmp_path / "frozen.toml"
    path.write_text(SCENARIO)
    command = [sys.executable, "-m", "brokerctl", "test", path, "--world", "live"]
    with subprocess.Popen(
        command, cwd=Path(__file__).parents[2], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as run:
        deadline = time.monotonic() + 20
        while not _frozen() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert _frozen(), "the leaf was frozen"
        run.send_signal(signum)
        assert run.wait(20) == 128 + signum
    assert marked_processes(os.environ[MARK]) == []


def _frozen():
    """Whether a process of this test is stopped."""
    pids = [line.partition(":")[0] for line in marked_processes(os.environ[MARK])]
    return any(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T" for pid in pids)
