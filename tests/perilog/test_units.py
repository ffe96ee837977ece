"""The unit files and executables: what they must say, and that systemd reads them so."""

import subprocess
import sys

import pytest

from brokerctl.cli import units
from brokerctl.perilog.names import KINDS
from tests.perilog.conftest import JOB

LEAN = (
    "asyncio",
    "collections.abc",
    "contextlib",
    "dataclasses",
    "decimal",
    "logging",
    "re",
    "subprocess",
    "tomllib",
    "typing",
)


@pytest.mark.parametrize("kind", KINDS)
def test_systemd_has_nothing_to_say_about_the_units(site, kind):
    done = site.systemd.run(["systemd-analyze", "verify", f"/etc/systemd/system/flux-{kind}@.service"])
    assert done.stderr == ""


@pytest.mark.parametrize("kind", KINDS)
def test_limits_nest_and_the_environment_is_required(site, kind):
    unit = f"flux-{kind}@{JOB}.service"
    found = site.systemd.show(
        unit, "TimeoutStartUSec", "TimeoutStopUSec", "KillMode", "CollectMode", "EnvironmentFiles", "Type"
    )  # fmt: skip
    assert found == {
        "Type": "oneshot",
        "TimeoutStartUSec": "28min" if kind == "prolog" else "infinity",
        "TimeoutStopUSec": "20s",
        "KillMode": "control-group",
        "CollectMode": "inactive-or-failed",
        "EnvironmentFiles": f"/run/flux-{kind}@{JOB}.env (ignore_errors=no)",
    }


@pytest.mark.fact(108)
@pytest.mark.parametrize("kind", KINDS)
def test_no_part_of_an_instances_name_is_ever_code(site, kind):
    """`x";id;"` as an instance: %I inside `sh -c` would run it as root (SYSTEMD.md 108)."""
    text = units.files()[f"flux-{kind}@.service"]
    assert "%I" not in text
    # Such a name has no environment file (SYSTEMD.md 107); without that barrier all lines of the unit run.
    site.systemd.unit(
        f"flux-{kind}@.service.d/site.conf", "[Service]\nEnvironmentFile=\nEnvironment=FLUX_JOB_ID=x\n"
    )  # fmt: skip
    site.systemd.run(["mkdir", "-m", "700", "/run/flux-perilog"])
    site.script(kind, "exit 1")
    hostile = 'x";touch ${HOME}pwned;"$(touch pwned)`touch pwned`$HOME%n'
    unit = site.systemd.run(["systemd-escape", f"--template=flux-{kind}@.service", hostile]).stdout.strip()
    assert site.systemd.systemctl("start", "--", unit, check=False).returncode == 1
    words = site.systemd.journal(unit)
    assert any("exited with 1 after" in word for word in words)
    assert not any("rror" in word or "not found" in word for word in words), words
    assert not list(site.systemd.path("/").glob("*pwned*"))
    assert site.files() == []


def test_what_the_units_record_is_for_a_helper_only(site):
    """Flux's own helper gets its environment file removed, and nothing else is left."""
    site.write(f"/run/flux-epilog@{JOB}.env", f"FLUX_JOB_ID={JOB}\n")
    site.systemd.run(["mkdir", "-m", "700", "/run/flux-perilog"])
    site.systemd.systemctl("start", f"flux-epilog@{JOB}.service")
    assert site.files() == []


def test_a_status_shows_the_script_that_runs_and_its_processes(site, tmp_path):
    site.script("epilog", f"touch {tmp_path}/began; exec sleep 61")
    command = ["sh", "-c", f"systemctl status 'flux-epilog@*' >{tmp_path}/status; systemctl stop 'flux-epilog@*'"]
    site.inside("after_start", kind="epilog", job=JOB, wait_for=f"{tmp_path}/began", command=command)
    status = (tmp_path / "status").read_text()
    assert f"flux-epilog@{JOB}.service" in status
    assert "sleep 61" in status


def test_the_helper_imports_nothing_heavy():
    code = "import sys; import brokerctl.perilog.helper; print(*sorted(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    plain = subprocess.run(
        [sys.executable, "-I", "-c", "import sys; print(*sys.modules)"], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not set(LEAN) & (set(loaded) - set(plain))
