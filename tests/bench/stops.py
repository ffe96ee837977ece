"""`brokerctl stop` as a whole process: nothing to stop, and a main that ends at once; beside Python, sh, supervisorctl.

All take turns, so that whatever else the machine does falls on all of them alike. `sh` is the shortest wrapper that
waits: a signal, then looking every 10 ms whether the process is still there.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Self

from tests.bench.measure import Options, Row, progress
from tests.bench.startup import peer

ITEM = "stop"
GOAL = 6.0
NOTHING, ENDS = "`brokerctl stop`, nothing to stop", "`brokerctl stop`, a main that ends at once"
PYTHON, SHELL, SUPERVISOR = (
    "`python3 -c pass`",
    "a `sh` wrapper, the same main",
    "`supervisorctl stop`, the same program",
)
_SH = "kill -TERM $1; while kill -0 $1 2>/dev/null; do sleep 0.01; done"
_TIMEOUT_S = 60.0
_SUPERVISORD = """\
[unix_http_server]
file={place}/socket
[rpcinterface:supervisor]
supervisor.rpcinterface_factory=supervisor.rpcinterface:make_main_rpcinterface
[supervisorctl]
serverurl=unix://{place}/socket
[supervisord]
nodaemon=true
logfile=/dev/null
logfile_maxbytes=0
pidfile={place}/pid
[program:main]
command=sleep 600
startsecs=0
stdout_logfile=NONE
stderr_logfile=NONE
"""


def measure(options: Options) -> list[Row]:
    """Medians, and how many times `python3 -c pass` ours are."""
    with (
        tempfile.TemporaryDirectory(prefix="brokerctl-bench-") as directory,
        _Supervisor(Path(directory)) as supervisor,
    ):
        measured: dict[str, Callable[[], float]] = {
            PYTHON: lambda: _wall([sys.executable, "-c", "pass"]),
            NOTHING: lambda: _wall([sys.executable, "-I", "-m", "brokerctl", "stop", "--pid"]),
            ENDS: lambda: _stop([sys.executable, "-I", "-m", "brokerctl", "stop", "--pid"]),
            SHELL: lambda: _stop(["sh", "-c", _SH, "sh"]),
            SUPERVISOR: supervisor.stop,
        }
        seconds: dict[str, list[float]] = {name: [] for name in measured}
        for nth in range(options.runs):
            for name, once in measured.items():
                progress(f"stop {nth + 1}/{options.runs}: {name}")
                seconds[name].append(once())
    progress("")
    walls = {name: median(values) for name, values in seconds.items()}
    rows = []
    for name, wall in walls.items():
        rows.append(Row(ITEM, name, "", wall * 1e3, "ms"))
        if name in {NOTHING, ENDS}:
            rows.append(Row(ITEM, name, "of python3 -c pass", wall / walls[PYTHON], "×", GOAL))
    return rows


def _wall(command: list[str]) -> float:
    began = time.perf_counter()
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TIMEOUT_S, check=False)
    seconds = time.perf_counter() - began
    if done.returncode:
        raise SystemExit(f"bench: {' '.join(command)} exits with {done.returncode}: {done.stderr.decode()[-500:]}")
    return seconds


def _stop(wrapper: list[str]) -> float:
    """A wrapper around a main in a session of its own, reaped at once as systemd does."""
    with subprocess.Popen(["sh", "-c", "sleep 600 & echo $!; wait"], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        return _wall([*wrapper, parent.stdout.readline().strip()])


class _Supervisor:
    """A supervisord with one program; each stop is preceded by a start that is not measured."""

    def __init__(self, place: Path) -> None:
        self._config = place / "supervisord.conf"
        self._config.write_text(_SUPERVISORD.format(place=place))
        self._socket = place / "socket"

    def __enter__(self) -> Self:
        self._process = subprocess.Popen([peer("supervisord"), "-c", str(self._config)], stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + _TIMEOUT_S
        while not self._socket.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.terminate()
        self._process.wait(_TIMEOUT_S)

    def stop(self) -> float:
        """One stop, from the client's start to its end."""
        control = [peer("supervisorctl"), "-c", str(self._config)]
        subprocess.run([*control, "start", "main"], capture_output=True, timeout=_TIMEOUT_S, check=False)
        return _wall([*control, "stop", "main"])
