"""`brokerctl test --story`: each run as it happens, then its verdict."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time

import pytest

from brokerctl import cli
from tests.console import ROOT

STUCK = str(ROOT / "scenarios" / "stuck-cleanup.toml")
KILLED = str(ROOT / "scenarios" / "death-by-signal.toml")
PATIENCE_S = 30


def test_the_story_of_each_run_and_its_verdict_in_order(capsys):
    assert cli.main(["test", "--story", STUCK, KILLED]) == 0
    out = capsys.readouterr().out
    first, second = out.split("\n\n    0.000 ")
    assert first.startswith("    0.000 broker.info[0]: builtins-success: load-builtins->join")
    assert "\n\nstuck-cleanup (sim, flux): ok\n  exit code 129" in first
    assert "\n\ndeath-by-signal (sim, " in second


def test_a_failure_is_told_with_what_was_expected_and_the_code_is_1(tmp_path, capsys):
    path = tmp_path / "wrong.toml"
    path.write_text('about = "it ends with 0"\n[[step]]\nat = "run"\ndo = "sigterm"\n[expect]\nexit = 7\n')
    assert cli.main(["test", "--story", str(path), KILLED]) == 1
    out = capsys.readouterr().out
    assert "wrong (sim, flux): FAILED" in out
    assert "expect.exit: expected exit code 7, got 0" in out


@pytest.mark.parametrize("more", [["-j", "2"], ["-o", "report"], ["--format", "tap"]])
def test_what_needs_the_end_of_all_runs_is_refused_beside_it(more, capsys):
    assert cli.main(["test", "--story", STUCK, *more]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_live_story_is_told_while_it_happens():
    """The first half of it is on the terminal before the second has happened."""
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "brokerctl", "test", "--story", "--world", "live", STUCK]
    command += ["-S", "broker.cleanup-timeout=60s"]
    told = subprocess.Popen(command, cwd=ROOT, stdin=slave, stdout=slave, stderr=slave, start_new_session=True)
    os.close(slave)
    try:
        text, end = "", time.monotonic() + PATIENCE_S
        while "cleanup.2: flux cancel" not in text:
            assert time.monotonic() < end, text
            text += os.read(master, 4096).decode()
        assert told.poll() is None
        assert "cleanup.3" not in text
    finally:
        told.send_signal(signal.SIGINT)
        try:
            told.wait(PATIENCE_S)
        finally:
            told.kill()
            told.wait()
            os.close(master)
