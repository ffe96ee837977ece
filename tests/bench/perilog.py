"""A whole run of an epilog around `true`, in a private systemd: by `systemctl start` alone, our helper, a usual one.

All take turns on the same unit; what they cost beside the unit itself is compared with a Python that does nothing.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from brokerctl.cli import units
from brokerctl.worlds.systemd.private import PrivateSystemd, unsupported
from tests.bench.measure import Options, Row, progress

ITEM = "perilog"
JOB = "f39firM4HrF"
UNIT = f"flux-epilog@{JOB}.service"
HELPER = "/usr/local/libexec/brokerctl/flux-run-epilog"
PEER = "/usr/local/libexec/brokerctl/peer"
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "FLUX_JOB_ID": JOB, "FLUX_JOB_USERID": "1000", "HOME": "/root"}
RUNS_PER_RUN = 3  # one takes a twentieth of a second, and scatters
# The environment is handed over as it is, the unit is started in the background, so that a signal can stop it.
USUAL = f"""\
#!/bin/sh
trap 'systemctl stop {UNIT}; exit 1' INT TERM
printenv >/run/flux-epilog@$FLUX_JOB_ID.env
systemctl start --quiet {UNIT} &
wait $!
"""


def measure(options: Options) -> list[Row]:
    """The times, and how many bare Pythons our helper costs over `systemctl start`."""
    reason = unsupported()
    if reason:
        print(f"bench: {ITEM} is left out: no private systemd: {reason}", file=sys.stderr)
        return []
    with tempfile.TemporaryDirectory(prefix="brokerctl-bench-") as place, PrivateSystemd([place]) as systemd:
        _install(systemd)
        commands = {
            "systemctl start": ["systemctl", "start", "--", UNIT],
            "flux-run-epilog": [HELPER],
            "sh helper": [PEER],
            "python3 -I -c pass": [sys.executable, "-I", "-c", "pass"],
            "true": ["true"],
        }
        seconds: dict[str, list[float]] = {name: [] for name in commands}
        for nth in range(options.runs * RUNS_PER_RUN):
            for name, command in commands.items():
                progress(f"perilog {nth + 1}/{options.runs * RUNS_PER_RUN}: {name}")
                systemd.path(f"/run/flux-epilog@{JOB}.env").write_text(f"FLUX_JOB_ID={JOB}\n")
                seconds[name].append(_wall(systemd.argv(command)))
    progress("")
    ms = {name: median(values) * 1e3 for name, values in seconds.items()}
    python = ms["python3 -I -c pass"] - ms["true"]  # `true` is what it costs to get in there
    rows = [
        Row(ITEM, f"an epilog around `true`, {name}", "", ms[name] - ms["true"], "ms")
        for name in ("systemctl start", "flux-run-epilog", "sh helper")
    ]
    over = (ms["flux-run-epilog"] - ms["systemctl start"]) / python
    rows.insert(2, Row(ITEM, rows[1].what, "over systemctl start, in bare Pythons", over, "×", goal=2.0))
    return rows


def _install(systemd: PrivateSystemd) -> None:
    systemd.unit("flux-epilog@.service", units.render(units.files()["flux-epilog@.service"], sys.executable))
    script = "#!/bin/sh\nexec true\n"
    helper = units.render(units.files()["flux-run-epilog"], sys.executable)
    for inside, text in ((HELPER, helper), (PEER, USUAL), ("/etc/flux/system/epilog.d/true", script)):
        path: Path = systemd.path(inside)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)


def _wall(argv: list[str]) -> float:
    began = time.perf_counter()
    done = subprocess.run(argv, env=ENVIRONMENT, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)
    seconds = time.perf_counter() - began
    if done.returncode:
        raise SystemExit(f"bench: {' '.join(argv)} exits with {done.returncode}: {done.stderr.decode()[-500:]}")
    return seconds
