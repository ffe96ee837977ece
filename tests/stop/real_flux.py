"""A real Flux system instance as units of a private systemd, with or without `brokerctl stop` in front of its stop."""

import itertools
import os
import shutil
import sys
import time
from pathlib import Path

USER = "daemon"  # any user that is not root and everybody has
PATIENCE_S = 30
_numbers = itertools.count()

WRAPPER = f"""\
[Service]
NotifyAccess=exec
ExecStop=+{sys.executable} -I -m brokerctl stop@OPTIONS@
ExecStopPost=+{sys.executable} -I -m brokerctl stop --post
"""


def wait_for(condition, what, patience_s=PATIENCE_S):
    """Poll until it is true: an upper bound, never a measure."""
    end = time.monotonic() + patience_s
    while not (value := condition()):
        assert time.monotonic() < end, f"no {what}"
        time.sleep(0.05)
    return value


class Instance:
    """Some brokers on one host, each a unit, all of one user that is not root; rank N is the host piclN."""

    def __init__(self, systemd, size=1, *, parents=(), config="", rc3="", timeout_stop=90, attrs=(), keep=()):
        self.systemd, self.size = systemd, size
        self.flux_path = shutil.which("flux")
        # Sockets of brokers are abstract ones of the host's network: other test processes have theirs there, too.
        self.name = f"flux{os.getpid()}-{next(_numbers)}"
        self.folder = f"/etc/{self.name}"
        self._attrs = {
            "broker.rc2_none": None, "broker.quorum": size, "broker.quorum-warn": "none", "broker.cleanup-timeout": 45,
            "broker.shutdown-timeout": "5m", "broker.exit-norestart": 42, "broker.sd-notify": 1,
            "broker.sd-stop-timeout": 90, "broker.module-nopanic": 1, "content.dump": "auto",
            "content.restore": "auto", **dict(attrs),
        }  # fmt: skip
        self.write("config/system.toml", self._bootstrap(dict(parents)) + config)
        if rc3:
            self._attrs["broker.rc3_path"] = f"{self.folder}/rc3"
            self.write("rc3", f"#!/bin/sh\n{rc3}\nexec {self.flux_path} modprobe rc3\n", 0o755)
        systemd.run([self.flux_path, "keygen", f"{self.folder}/curve.cert"])
        systemd.run(["chown", "-R", USER, self.folder])
        for rank in range(size):
            systemd.unit(self.unit(rank), self._unit(rank, timeout_stop, keep))

    def _bootstrap(self, parents):
        hosts = "".join(
            f'[[bootstrap.hosts]]\nhost = "picl{rank}"\nbind = "ipc://@{self.name}-{rank}"\n'
            f'connect = "ipc://@{self.name}-{rank}"\n'
            + (f'parent = "picl{parents[rank]}"\n' if rank in parents else "")
            for rank in range(self.size)
        )
        return f'[bootstrap]\ncurve_cert = "{self.folder}/curve.cert"\n{hosts}'

    def _unit(self, rank, timeout_stop, keep):
        run = f"{self.name}-{rank}"
        attrs = {
            "hostname": f"picl{rank}", "rundir": f"/run/{run}", "statedir": f"/var/lib/{run}",
            "local-uri": f"local:///run/{run}/local", "log-stderr-level": 6, "log-forward-level": -1,
            "log-stderr-mode": "local", **self._attrs,
        }  # fmt: skip
        words = " ".join(f"-S{name}" if value is None else f"-S{name}={value}" for name, value in attrs.items())
        return (
            f"[Service]\nType=notify\nNotifyAccess=main\nTimeoutStopSec={timeout_stop}\nKillMode=mixed\n"
            f"ExecStart={self.flux_path} broker --config-path={self.folder}/config {words}\n"
            "SyslogIdentifier=flux\nRestart=always\nRestartSec=30s\nRestartPreventExitStatus=42\n"
            f"SuccessExitStatus=42\nUser={USER}\nGroup={USER}\nRuntimeDirectory={run}\nRuntimeDirectoryMode=0755\n"
            f"StateDirectory={run}\nPermissionsStartOnly=true\n" + "".join(f"{line}\n" for line in keep)
        )

    def write(self, name, text, mode=0o644, folder=""):
        """A file of the instance's own directory, or another; returns its path inside."""
        inside = f"{folder or self.folder}/{name}"
        path = self.systemd.path(inside)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
        return inside

    def wrap(self, options="", config="", *, ranks=(0,), drop_in=WRAPPER, more=""):
        """Put `brokerctl stop` in front of the stop; `config` is its stop.toml, `more` further lines of the drop-in."""
        if config:
            options += f" --config {self.write('stop.toml', config, folder=f'{self.folder}-stop')}"  # root's
        for rank in ranks:
            self.systemd.unit(f"{self.unit(rank)}.d/brokerctl.conf", drop_in.replace("@OPTIONS@", options) + more)

    def unit(self, rank=0):
        """The unit's name."""
        return f"{self.name}-{rank}.service"

    def start(self):
        """Start all, and wait until all are in RUN."""
        for rank in range(self.size):
            self.systemd.systemctl("start", "--no-block", self.unit(rank))
        wait_for(lambda: " run " in self.flux("uptime", check=False), "instance in RUN")
        wait_for(lambda: "full" in self.flux("overlay", "status", "--summary", check=False), "full instance")

    def flux(self, *words, rank=0, check=True):
        """Run a command of Flux as its owner; its stdout."""
        argv = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", self.flux_path, *words]
        env = {"FLUX_URI": f"local:///run/{self.name}-{rank}/local", "PATH": "/usr/bin:/bin", "HOME": "/"}
        return self.systemd.run(argv, env=env, check=check).stdout

    def main(self, rank=0):
        """The broker's pid, inside; 0 where it has none."""
        return int(self.systemd.show(self.unit(rank), "MainPID")["MainPID"])

    def control(self, rank=0):
        """The pid of the unit's ExecStop process, inside; 0 where there is none."""
        return int(self.systemd.show(self.unit(rank), "ControlPID")["ControlPID"])

    def signal(self, signum, pid):
        """Signal a process inside."""
        self.systemd.run(["kill", f"-{signum}", str(pid)])

    def stopping(self):
        """Begin to stop the leader; the systemctl that waits for it."""
        return self.systemd.popen(["systemctl", "stop", self.unit(0)])

    def stop(self):
        """Stop the leader; how long that took, in seconds."""
        began = time.monotonic()
        self.systemd.systemctl("stop", self.unit(0))
        return time.monotonic() - began

    def in_state(self, state):
        """Wait until the leader is in a state."""
        wait_for(lambda: f" {state} " in self.flux("uptime", check=False), state)

    def journal(self, rank=0):
        """All that was logged, by the broker, the wrapper and the manager."""
        return self.systemd.journal(self.unit(rank))

    def dump(self, rank=0):
        """The dump that the next start will restore, "" where there is none."""
        folder = f"/var/lib/{self.name}-{rank}/dump"
        found = self.systemd.run(["readlink", "-e", f"{folder}/RESTORE"], check=False).stdout.strip()
        if found:
            self.systemd.run(["tar", "-tzf", found])  # it can be read to its end
        return Path(found).name

    def result(self, rank=0):
        """How the last life ended, for systemd."""
        return self.systemd.show(self.unit(rank), "Result")["Result"]

    def end(self):
        """Whatever is left is killed."""
        for rank in range(self.size):
            self.systemd.run(["systemctl", "kill", "-s", "KILL", self.unit(rank)], check=False)
            self.systemd.run(["systemctl", "stop", self.unit(rank)], check=False)
