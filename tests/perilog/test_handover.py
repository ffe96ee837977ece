"""What a script sees of the helper's environment, and the file through which it gets it, with a real systemd."""

import os
import random
import sys

import pytest

from brokerctl.perilog.environment import ALLOWED
from tests.perilog.conftest import JOB, SETTINGS

UNIT = f"flux-epilog@{JOB}.service"


def environ_of(path):
    return dict(entry.split(b"=", 1) for entry in path.read_bytes().split(b"\0") if entry)


def systemds_own(site, tmp_path):
    """The names that systemd and the shell add."""
    site.script("epilog", f"cat /proc/$$/environ >{tmp_path}/plain")
    site.systemd.run(["/usr/local/libexec/brokerctl/flux-run-epilog"], env={"FLUX_JOB_ID": JOB})
    return set(environ_of(tmp_path / "plain")) - {b"FLUX_JOB_ID"}


def test_the_script_sees_exactly_what_is_allowed(site, tmp_path):
    own = systemds_own(site, tmp_path)
    site.settings('[epilog]\nenvironment = ["SITE_CLUSTER"]\n')
    site.script("epilog", f"cat /proc/$$/environ >{tmp_path}/env")
    given = dict.fromkeys(ALLOWED, "x") | {"FLUX_JOB_ID": JOB, "SITE_CLUSTER": "c"}
    others = {
        "FLUX_EXEC_PATH_PREPEND": "/evil", "FLUX_MODULE_PATH": "/evil", "FLUX_RC_EXTRA": "/evil", "FOO": "1",
        "BASH_FUNC_ls%%": "() { touch /evil; }", "PYTHONPATH": "/evil", "BASH_ENV": "/evil",
        "HOSTNAME": "x", "NOTIFY_SOCKET": "/evil", "FLUX_OTHER": "1", "SERVICE_RESULT": "success",
    }  # fmt: skip
    done = site.systemd.run(["/usr/local/libexec/brokerctl/flux-run-epilog"], env={**given, **others})
    assert done.stderr == ""
    found = environ_of(tmp_path / "env")
    added = {name: value for name, value in found.items() if name not in own or name in {b"HOME", b"USER"}}
    assert added == {name.encode(): value.encode() for name, value in given.items()}


PIECES = [
    b"x", b" ", b"\n", b"\t", b"\r", b"\\", b'"', b"'", b"$", b"`", b"#", b"=", b"%", b"*", b"\x1b", b"\xc3\xa9",
    b"\xff", b"\xed\xa0\x80", b"\xef\xbf\xbe", b"\nLD_PRELOAD=/tmp/x", b"$HOME", b"`id`", b"\\\n",
    b"${X}", b"%n", b"x" * 70_000,
]  # fmt: skip


@pytest.mark.fact(110)
def test_values_of_all_kinds_arrive_as_they_are_and_none_adds_a_variable(site, tmp_path):
    """A hundred random values in one run of the real systemd; the model of its reader has two thousand environments."""
    draw = random.Random(7)
    values = {f"V{nth:03}": b"".join(draw.choices(PIECES, k=draw.randrange(6))) for nth in range(100)}
    quoted = ", ".join(f'"{name}"' for name in values)
    site.settings(f"[epilog]\nenvironment = [{quoted}]\n")
    site.script("epilog", f"cat /proc/$$/environ >{tmp_path}/env")
    own = systemds_own(site, tmp_path)
    site.script("epilog", f"cat /proc/$$/environ >{tmp_path}/env")
    # Through a file: an argument of nsenter would do as well, but for what is no text.
    (tmp_path / "call.py").write_text(
        "import os, sys\n"
        f"values = {values!r}\n"
        "env = {b'FLUX_JOB_ID': b'f1', **{name.encode(): value for name, value in values.items()}}\n"
        "os.execve('/usr/local/libexec/brokerctl/flux-run-epilog', ['flux-run-epilog'], env)\n"
    )
    done = site.systemd.run(["/usr/bin/env", "-i", sys.executable, "-I", str(tmp_path / "call.py")])
    dropped = {line.split(": ")[2].split()[0] for line in done.stderr.splitlines()}
    expected = {name.encode(): value for name, value in values.items() if name not in dropped}
    found = environ_of(tmp_path / "env")
    assert {name: value for name, value in found.items() if name not in own} == {b"FLUX_JOB_ID": b"f1", **expected}
    unfit = (b"\xff", b"\xed\xa0\x80", b"\xef\xbf\xbe")
    assert dropped == {
        name for name, value in values.items() if any(bad in value for bad in unfit) or len(value) + 5 > 131_071
    }  # fmt: skip


def test_what_cannot_be_handed_over_is_left_out_alone_and_said(site, tmp_path):
    site.script("epilog", f"cat /proc/$$/environ >{tmp_path}/env")
    answer = site.call("epilog", HOME="\udcff", USER="me")
    assert (answer.code, answer.lines) == (0, [f"{UNIT}: HOME is not handed over: it is not UTF-8"])
    assert environ_of(tmp_path / "env")[b"USER"] == b"me"


def test_the_file_is_roots_alone_while_the_script_runs(site, tmp_path):
    site.script("epilog", f"stat -c '%u %a' /run/flux-epilog@{JOB}.env /run/flux-perilog >{tmp_path}/stat")
    site.call("epilog")
    assert (tmp_path / "stat").read_text().split("\n")[:2] == ["0 600", "0 700"]


@pytest.mark.parametrize("plant", ["symlink", "fifo"])
def test_what_stands_at_the_files_place_is_replaced_and_systemd_is_not_held_up(site, tmp_path, plant):
    place = site.systemd.path(f"/run/flux-epilog@{JOB}.env")
    victim = tmp_path / "victim"
    victim.write_text("precious")
    if plant == "symlink":
        place.symlink_to(victim)
    else:
        os.mkfifo(place)
    site.script("epilog", f'echo "$FLUX_JOB_USERID" >{tmp_path}/uid')
    assert site.call("epilog").code == 0
    assert (tmp_path / "uid").read_text() == "1000\n"
    assert victim.read_text() == "precious"
    assert site.files() == []


HOSTILE = ("a-b", "../x", "..", "*", "f*", '";id;"', 'x";echo PWNED;"', "x.target", "", "$(id)", "f39\n")


@pytest.mark.parametrize("job", HOSTILE)
def test_a_hostile_job_id_starts_nothing(site, tmp_path, job):
    site.script("epilog", f"touch {tmp_path}/ran")
    answer = site.call("epilog", job)
    assert answer.code == 125
    assert "is no job id" in answer.lines[0]
    assert len(answer.lines) == 1
    assert not (tmp_path / "ran").exists()


@pytest.mark.fact(102)
@pytest.mark.parametrize("job", [JOB, "ƒ39firM4HrF", "1281494220800", "0x12a5f05e800"])
def test_all_spellings_of_a_job_are_one_unit(site, job):
    number = {JOB, "ƒ39firM4HrF"}
    site.script("epilog", "exit 3")
    answer = site.call("epilog", job)
    assert answer.code == 3
    assert (UNIT in answer.lines[0]) == (job in number)


def test_an_unusable_settings_file_runs_nothing(site, tmp_path):
    site.settings("[epilog]\nnonsense = true\n")
    site.script("epilog", f"touch {tmp_path}/ran")
    answer = site.call("epilog")
    assert answer.code == 125
    assert f"could not start: {SETTINGS}: epilog.nonsense: unknown" in answer.lines[0]
    assert not (tmp_path / "ran").exists()
