"""The rundir: which one is meant, who may use it, and what is left of it."""

import os
import socket
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import brokerctl
from brokerctl.errors import UsageError
from brokerctl.worlds.live.rundir import Rundir, choose

EVERYTHING = {"BROKERCTL_RUNDIR": "/b", "RUNTIME_DIRECTORY": "/r:/other", "XDG_RUNTIME_DIR": "/x"}


def test_the_option_wins_then_the_environment_in_its_order():
    assert choose("/o", EVERYTHING) == Path("/o")
    assert choose(None, EVERYTHING) == Path("/b")
    del (env := dict(EVERYTHING))["BROKERCTL_RUNDIR"]
    assert choose(None, env) == Path("/r")
    del env["RUNTIME_DIRECTORY"]
    assert choose(None, env) == Path("/x/brokerctl")
    assert choose(None, {}, uid=0) == Path("/run/brokerctl")
    assert choose(None, {}, uid=1000) == Path("/tmp/brokerctl-1000")  # noqa: S108


def test_empty_variables_count_as_absent_and_an_empty_option_is_refused():
    assert choose(None, {"BROKERCTL_RUNDIR": "", "RUNTIME_DIRECTORY": "", "XDG_RUNTIME_DIR": ""}, uid=0) == Path(
        "/run/brokerctl"
    )
    with pytest.raises(UsageError, match="--rundir: is empty"):
        choose("", {})


def test_it_is_made_private_and_removed_with_everything_in_it(tmp_path):
    before = os.umask(0)
    try:
        rundir = Rundir(tmp_path / "run")
    finally:
        os.umask(before)
    assert stat.S_IMODE(rundir.path.stat().st_mode) == 0o700
    assert stat.S_IMODE((rundir.path / "lock").stat().st_mode) == 0o600
    assert (rundir.path / "lock").read_text() == f"{os.getpid()}\n"
    (rundir.path / "control").touch()
    rundir.close()
    assert not rundir.path.exists()


def test_a_directory_that_was_there_stays_and_so_do_files_of_others(tmp_path):
    (tmp_path / "run").mkdir(mode=0o755)
    (tmp_path / "run" / "state").touch()
    Rundir(tmp_path / "run").close()
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["state"]


def test_only_one_broker_at_a_time_and_the_other_is_named(tmp_path):
    rundir = Rundir(tmp_path / "run")
    try:
        with pytest.raises(UsageError, match=rf"run is in use by pid {os.getpid()}$"):
            Rundir(tmp_path / "run")
        assert (tmp_path / "run" / "lock").exists()
    finally:
        rundir.close()
    Rundir(tmp_path / "run").close()


def test_a_lock_whose_holder_was_killed_is_free(tmp_path):
    script = textwrap.dedent(f"""
        import os, signal
        from pathlib import Path
        from brokerctl.worlds.live.rundir import Rundir
        kept = Rundir(Path({str(tmp_path / "run")!r}))
        os.kill(os.getpid(), signal.SIGKILL)
    """)
    env = {**os.environ, "PYTHONPATH": str(Path(brokerctl.__file__).parents[1])}
    assert subprocess.run([sys.executable, "-c", script], check=False, env=env).returncode == -9
    assert (tmp_path / "run" / "lock").exists()
    Rundir(tmp_path / "run").close()


def test_a_stale_socket_is_removed_but_another_file_by_that_name_is_not(tmp_path):
    (tmp_path / "run").mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(tmp_path / "run" / "control"))
    rundir = Rundir(tmp_path / "run")
    assert not (tmp_path / "run" / "control").exists()
    rundir.close()
    (tmp_path / "run" / "control").write_text("precious")
    with pytest.raises(UsageError, match="control is no socket"):
        Rundir(tmp_path / "run")
    assert (tmp_path / "run" / "control").read_text() == "precious"


def _file(path):
    path.touch()


def _link(path):
    (path.parent / "real").mkdir(mode=0o700)
    path.symlink_to("real")


def _dangling(path):
    path.symlink_to("nowhere")


def _open_to_all(path):
    path.mkdir()
    path.chmod(0o777)


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (_file, "is no directory"),
        (_link, "is no directory .links are not followed"),
        (_dangling, "is no directory .links are not followed"),
        (_open_to_all, "has mode 0777; expected it to be uid [0-9]+'s alone, with mode 0700"),
    ],
)
def test_what_cannot_be_trusted_is_refused_and_left_as_it_is(tmp_path, make, what):
    make(tmp_path / "run")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UsageError, match=what):
        Rundir(tmp_path / "run")
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_somebody_elses_directory_is_refused(tmp_path):
    (tmp_path / "run").mkdir(mode=0o700)
    os.chown(tmp_path / "run", 12345, 12345)
    with pytest.raises(UsageError, match=r"belongs to uid 12345; expected it to be uid [0-9]+'s alone"):
        Rundir(tmp_path / "run")


def test_a_place_where_nothing_can_be_made_is_one_clear_line(tmp_path):
    with pytest.raises(UsageError, match=r"run: cannot create: No such file or directory$"):
        Rundir(tmp_path / "missing" / "run")
    with pytest.raises(UsageError, match=r"cannot create: (Permission denied|No such file or directory)$"):
        Rundir(Path("/proc/brokerctl"))
    with pytest.raises(UsageError, match="too long; expected at most 107 bytes"):
        Rundir(tmp_path / ("x" * 108))
    assert list(tmp_path.iterdir()) == []


def test_no_descriptor_is_left_open(tmp_path):
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        rundir = Rundir(tmp_path / "run")
        with pytest.raises(UsageError):
            Rundir(tmp_path / "run")
        rundir.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
