"""A service with a phased stop under a private systemd: brokers of policy `flux`, whose rc3 saves a file.

Under that policy a second SIGTERM aborts CLEANUP and rc3, as Flux's own does. SHUTDOWN waits for the follower's rc3,
where there is one.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

LASTS_S = 1.5
PHASES = ("cleanup", "shutdown", "finalize")
PYTHON = f"{sys.executable} -I"
STOP = f"{PYTHON} -m brokerctl stop --pid $MAINPID"
UNIT = """\
[Service]
Type=exec
NotifyAccess={access}
RuntimeDirectory={name}
ExecStart={python} -m brokerctl {verb} --policy flux --config {place}/run.toml --rundir /run/{name}
{stop}
TimeoutStopSec={timeout}
KillMode=mixed
SuccessExitStatus=42
"""
RUN = """\
[attrs]
"broker.cleanup-timeout" = "{cleanup_timeout}"

[[cleanup]]
command = "{cleanup}"
text = "tidy up"

[[rc3]]
command = "echo begun > {place}/rc3.$BROKERCTL_RANK; {save}; echo saved > {place}/saved.$BROKERCTL_RANK"
text = "save"
"""
# The wrapper's own times, in tenths of what they are in earnest.
QUICK = """\
shed-after = "1s"
holders-after = "0.5s"
kill-ladder = "HUP:0.4s,TERM:0.4s,KILL:1s"
"""


class Service:
    """One unit of `size` brokers: `stop` is its ExecStop line, "" for none, `timeout` its TimeoutStopSec in seconds.

    `lasts` is how long each phase does; `config` is the wrapper's.
    """

    def __init__(
        self, manager, place: Path, name: str, *, size: int = 1, stop: str = STOP, timeout: float = 60,
        access: str = "exec", lasts: tuple[float | str, ...] = (LASTS_S,) * 3, cleanup: str = "",
        cleanup_timeout: str = "20s", config: str = "",
    ) -> None:  # fmt: skip
        self.manager = manager
        self.place = place / name
        self.place.mkdir()
        self.name = name
        self.unit = f"{name}.service"
        save = f"sleep $([ $BROKERCTL_RANK = 0 ] && echo {lasts[2]} || echo {lasts[1]})"
        cleanup = cleanup or f"sleep {lasts[0]}"
        (self.place / "run.toml").write_text(
            RUN.format(place=self.place, save=save, cleanup=cleanup, cleanup_timeout=cleanup_timeout)
        )
        if config:
            (self.place / "stop.toml").write_text(config)
            (self.place / "stop.toml").chmod(0o644)
            stop += f" --config {self.place}/stop.toml"
        verb = f"start --size {size} --exit-timeout 1s" if size > 1 else "run"
        self.leader = f"/run/{name}/0" if size > 1 else f"/run/{name}"
        stop = f"ExecStop={stop}" if stop else ""
        text = UNIT.format(
            name=name, place=self.place, python=PYTHON, verb=verb, stop=stop, timeout=timeout, access=access
        )
        manager.unit(self.unit, text)

    # ---- what tests do

    def start(self) -> None:
        self.manager.systemctl("start", self.unit)

    def await_run(self) -> None:
        self.wait(lambda: self.state() == "run", "run")

    def begin_stop(self) -> None:
        self.manager.systemctl("stop", "--no-block", self.unit)

    def shutdown(self) -> None:
        """`flux shutdown`, as brokerctl has it."""
        words = [*PYTHON.split(), "-m", "brokerctl", "shutdown", "--rundir", self.leader]
        self.manager.run(["sh", "-c", '"$@" >/dev/null 2>&1 &', "sh", *words])

    def kill_control(self, signum: str) -> None:
        self.manager.systemctl("kill", "--kill-whom=control", f"--signal={signum}", self.unit)

    def kill_helper(self, signum: str) -> None:
        """Signal the core's one child."""
        core = self.show("ControlPID")
        children = self.manager.run(["cat", f"/proc/{core}/task/{core}/children"]).stdout.split()
        assert children, "the core has no helper"
        self.manager.run(["kill", f"-{signum}", *children])

    def kill_rank(self, rank: int, signum: str) -> None:
        words = [*PYTHON.split(), "-m", "brokerctl", "status", "--json", "--rundir", f"/run/{self.name}/{rank}"]
        pid = self.manager.run(words).stdout.partition('"pid":')[2].partition(",")[0]
        self.manager.run(["kill", f"-{signum}", pid])

    # ---- what they look at

    def state(self) -> str:
        """The leader's state; "" where it doesn't answer."""
        words = [*PYTHON.split(), "-m", "brokerctl", "status", "--rundir", self.leader, "--json"]
        done = self.manager.run(words, check=False)
        return done.stdout.partition('"state":"')[2].partition('"')[0] if done.returncode == 0 else ""

    def in_phase(self) -> str:
        """The phase by what has been written: cheap enough to ask often."""
        if (self.place / "rc3.0").exists():
            return "finalize"
        return "shutdown" if (self.place / "rc3.1").exists() else "cleanup"

    def await_phase(self, phase: str) -> None:
        self.wait(lambda: self.in_phase() == phase, phase)

    def await_end(self, within_s: float = 40) -> None:
        self.wait(lambda: self.show("ActiveState") in {"inactive", "failed"}, "its end", within_s)

    def wait(self, there, what: str, within_s: float = 30) -> None:
        deadline = time.monotonic() + within_s
        while not there():
            assert time.monotonic() < deadline, f"{self.name}: no {what} within {within_s} s: {self.journal()}"
            time.sleep(0.05)

    def show(self, name: str) -> str:
        return self.manager.show(self.unit, name)[name]

    def saved(self) -> bool:
        return (self.place / "saved.0").exists()

    def journal(self) -> list[str]:
        return self.manager.journal(self.unit)

    def told(self, words: str) -> bool:
        return any(words in line for line in self.journal())
