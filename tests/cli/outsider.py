"""A broker as an outsider has it: a process, its exit code, its files, its socket. Every trace must replay."""

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import brokerctl
from brokerctl import trace
from brokerctl.check.replay import first_difference
from brokerctl.kernel import proc
from brokerctl.records import Moved, Start

PATIENCE_S = 20
COMMAND = [sys.executable, "-P", "-m", "brokerctl"]
ENV = {
    **{name: value for name, value in os.environ.items() if not name.startswith(("BROKERCTL", "NOTIFY", "WATCHDOG"))},
    "PYTHONPATH": str(Path(brokerctl.__file__).parents[1]),
    "SHELL": "/bin/bash",
}


def brokerctl_(*words, env=None, timeout=PATIENCE_S, **options):
    """Run a verb to its end."""
    options = {"capture_output": True, "text": True, **options}
    return subprocess.run(
        [*COMMAND, *map(str, words)], check=False, timeout=timeout, env={**ENV, **(env or {})}, **options
    )


class Broker:
    """A `brokerctl run` that a test has started."""

    def __init__(self, folder, *words, config="", env=None, **options):
        folder.mkdir()
        self.folder = folder
        self.rundir = folder / "run"
        self.trace = folder / "trace"
        self.stderr = folder / "stderr"
        self.status_file = folder / "status.json"
        self.cookie = secrets.token_hex(8)
        (folder / "config.toml").write_text(config)
        self.argv = [
            *COMMAND, "run", "--config", str(folder / "config.toml"), "--rundir", str(self.rundir),
            "--trace", str(self.trace), "--status-file", str(self.status_file), *words,
        ]  # fmt: skip
        environment = {**ENV, proc.COOKIE: f"{self.cookie}:test", **(env or {})}
        self.started = time.monotonic()
        with self.stderr.open("wb") as stderr, (folder / "stdout").open("wb") as stdout:
            options = {"stdin": subprocess.DEVNULL, "stdout": stdout, "stderr": stderr, **options}
            self.process = subprocess.Popen(self.argv, env=environment, start_new_session=True, **options)

    def lines(self):
        """What the trace holds by now; a last line that is still being written is left out."""
        if not self.trace.exists():
            return []
        rows = self.trace.read_bytes().split(b"\n")[1:-1]
        return [trace.decode_line(row, str(self.trace), number) for number, row in enumerate(rows, 2)]

    def facts(self, kind):
        return [line.what for line in self.lines() if isinstance(line.what, kind)]

    def log(self):
        return self.stderr.read_text()

    def wait_until(self, condition, what):
        end = time.monotonic() + PATIENCE_S
        while not condition():
            assert self.process.poll() is None, f"ended with {self.process.returncode} before {what}: {self.log()}"
            assert time.monotonic() < end, f"no {what}: {self.log()}"
            time.sleep(0.01)

    def wait_for_state(self, state):
        self.wait_until(lambda: any(fact.new == state for fact in self.facts(Moved)), f"state {state}")
        return self

    def wait_for_start(self, run):
        self.wait_until(lambda: any(fact.run == run for fact in self.facts(Start)), f"start of {run}")
        return self

    def wait_for_log(self, text):
        self.wait_until(lambda: text in self.log(), f"log of {text!r}")
        return self

    def signal(self, signum=signal.SIGTERM):
        self.process.send_signal(signum)
        return self

    def wait(self, timeout=PATIENCE_S):
        return self.process.wait(timeout)

    def status(self):
        return json.loads(self.status_file.read_text())

    def verb(self, name, *words, **options):
        return brokerctl_(name, "--rundir", self.rundir, *words, **options)

    def connect(self):
        peer = socket.socket(socket.AF_UNIX)
        peer.settimeout(PATIENCE_S)
        peer.connect(str(self.rundir / "control"))
        return peer

    def left(self):
        """Processes that descend from this broker, the broker itself included."""
        return [pid for pid in proc.pids() if proc.carries(pid, self.cookie.encode())]

    def kill_left(self):
        end = time.monotonic() + PATIENCE_S
        while left := self.left():
            assert time.monotonic() < end, f"cannot kill {left}"
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)


def replays(path):
    head, lines = trace.read(path)
    difference = first_difference(head, lines)
    assert difference is None, difference
    return True
