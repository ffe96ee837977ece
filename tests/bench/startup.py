"""From nothing to the end: `brokerctl run -- true` beside Python itself, dumb-init and supervisord, as whole processes.

The four take turns, so that whatever else the machine does falls on all of them alike. Memory is the peak (VmHWM) up to
the moment when the child runs, which reads it; `python3 -c pass` reads its own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from tests.bench.measure import Options, Row, progress

ITEM = "startup"
OURS = "brokerctl run -- true"
_TIMEOUT_S = 60.0
# The child asks its supervisor to end: nothing is polled, and the shutdown is a clean one.
_SUPERVISORD = """\
[supervisord]
nodaemon=true
logfile=/dev/null
logfile_maxbytes=0
pidfile={place}/pid
{user}
[program:true]
command={command}
autorestart=false
startsecs=0
stdout_logfile=NONE
stderr_logfile=NONE
"""


def measure(options: Options) -> list[Row]:
    """Time and memory of each, and how many times that is ours."""
    with tempfile.TemporaryDirectory(prefix="brokerctl-bench-") as directory:
        place = Path(directory)
        commands = _commands(place, ("true",), "sh -c 'kill -TERM $PPID'")
        seconds: dict[str, list[float]] = {name: [] for name in commands}
        for nth in range(options.runs):
            for name, command in commands.items():
                progress(f"start-up {nth + 1}/{options.runs}: {name}")
                seconds[name].append(_wall(command))
        walls = {name: median(values) for name, values in seconds.items()}
        memory = _memories(place)
    progress("")
    rows = []
    for name in commands:
        rows.append(Row(ITEM, f"`{name}`, whole process", "", walls[name] * 1e3, "ms"))
        if name != OURS:
            rows.append(Row(ITEM, rows[-1].what, "ours takes", walls[OURS] / walls[name], "×"))
        rows.append(Row(ITEM, rows[-1].what, "memory", memory[name], "MB"))
        if name != OURS:
            rows.append(Row(ITEM, rows[-1].what, "ours takes", memory[OURS] / memory[name], "×"))
    return rows


def _commands(place: Path, child: tuple[str, ...], supervised: str) -> dict[str, list[str]]:
    """The four by name; `child` runs below two of them, `supervised` below supervisord."""
    config = place / "supervisord.conf"
    user = "" if os.geteuid() else "user=root"
    config.write_text(_SUPERVISORD.format(place=place, command=supervised, user=user))
    return {
        OURS: [sys.executable, "-m", "brokerctl", "run", "--rundir", str(place / "rundir"), "--", *child],
        "python3 -c pass": [sys.executable, "-c", "pass"],
        "dumb-init true": [peer("dumb-init"), *child],
        "supervisord": [peer("supervisord"), "-c", str(config)],
    }


def peer(name: str) -> str:
    """A program of the dev group, beside our interpreter or on PATH."""
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if found is None:
        raise SystemExit(f"bench: {name} is not installed; it is in the dev group of pyproject.toml")
    return found


def _wall(command: list[str]) -> float:
    began = time.perf_counter()
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=_TIMEOUT_S,
        check=False,
    )  # fmt: skip
    seconds = time.perf_counter() - began
    if done.returncode:
        raise SystemExit(f"bench: {' '.join(command)} exits with {done.returncode}: {done.stderr.decode()[-500:]}")
    return seconds


def _memories(place: Path) -> dict[str, float]:
    """Megabytes of each: one run is enough, they hardly differ."""
    told = place / "memory"
    look = f"grep VmHWM /proc/$PPID/status >{told}"
    commands = _commands(place, ("sh", "-c", look), f'sh -c "{look}; kill -TERM $PPID"')
    own = "import re, sys; open(sys.argv[1], 'w').write(re.search('VmHWM.*', open('/proc/self/status').read())[0])"
    commands["python3 -c pass"] = [sys.executable, "-c", own, str(told)]
    found = {}
    for name, command in commands.items():
        _wall(command)
        found[name] = int(told.read_text().split()[1]) / 1024
    return found
