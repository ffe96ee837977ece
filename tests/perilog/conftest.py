"""The perilog units, installed in a private systemd as a site would have them."""

import json
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from brokerctl.cli import units
from brokerctl.perilog.names import KINDS

INSIDE = Path(__file__).with_name("inside.py")
LIBEXEC = "/usr/local/libexec/brokerctl"
SETTINGS = "/etc/brokerctl/perilog.toml"
JOB = "f39firM4HrF"
# Nothing to drain with in a test: a failure's one line is the helper's.
QUIET = "[housekeeping]\non-failure = []\n"


class Site:
    """A node with the units: scripts and settings are written, helpers called."""

    def __init__(self, systemd):
        self.systemd = systemd
        self.clear()
        for kind in KINDS:
            for name in (f"/usr/libexec/flux/{kind}.d", f"/etc/flux/system/{kind}.d"):
                systemd.path(name).mkdir(parents=True)
            systemd.unit(f"flux-{kind}@.service", self.rendered(f"flux-{kind}@.service"))
            self.write(f"{LIBEXEC}/flux-run-{kind}", self.rendered(f"flux-run-{kind}"), 0o755)
        self.settings(QUIET)

    def clear(self):
        """Other tests share the manager, and find nothing of this one."""
        for folder in ("/etc/flux", "/usr/libexec/flux", "/etc/brokerctl", LIBEXEC, "/run/flux-perilog"):
            shutil.rmtree(self.systemd.path(folder), ignore_errors=True)
        for left in self.systemd.path("/run").glob("*flux-*@*"):
            left.unlink()

    @staticmethod
    def rendered(name):
        return units.render(units.files()[name], sys.executable)

    def write(self, inside, text, mode=0o644):
        path = self.systemd.path(inside)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
        return path

    def settings(self, text):
        self.write(SETTINGS, text)

    def script(self, kind, text, name="10-test", *, package=False, mode=0o755):
        folder = "/usr/libexec/flux" if package else "/etc/flux/system"
        self.write(f"{folder}/{kind}.d/{name}", f"#!/bin/sh\n{text}\n", mode)

    @staticmethod
    def environment(job=JOB, **more):
        return {"PATH": "/usr/bin:/bin", "FLUX_JOB_ID": job, "FLUX_JOB_USERID": "1000", **more}

    def call(self, kind, job=JOB, **more):
        """The helper's exit code and what it says, without the host's name."""
        done = self.systemd.run([f"{LIBEXEC}/flux-run-{kind}"], env=self.environment(job, **more), check=False)
        assert done.stdout == ""
        lines = [line.partition(": ")[2] for line in done.stderr.splitlines()]
        return SimpleNamespace(code=done.returncode, lines=lines)

    def inside(self, function, **arguments):
        """Call a function of inside.py, in there."""
        argv = [sys.executable, "-I", str(INSIDE), function, json.dumps(arguments)]
        return json.loads(self.systemd.run(argv, env=self.environment(), limit_s=1500).stdout)

    def files(self):
        """What is left of runs below /run."""
        return [path.name for folder in ("/run", "/run/flux-perilog") for path in self.systemd.path(folder).glob("*@*")]

    def state(self, kind="epilog", job=JOB):
        return self.systemd.show(f"flux-{kind}@{job}.service", "ActiveState")["ActiveState"]


@pytest.fixture
def site(private_systemd):
    """A node with the perilog units."""
    made = Site(private_systemd)
    yield made
    made.clear()
