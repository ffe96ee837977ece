"""`--status-file`: the certain channel."""

import json
import os
import resource

import pytest

from brokerctl.cli.status_file import StatusFile
from brokerctl.errors import UsageError
from brokerctl.records import Ended, Line, Moved


def see(status, *whats):
    for number, what in enumerate(whats):
        status(Line(0, 0, number, ">", what))


def test_the_culprit_is_the_first_action_that_failed(tmp_path):
    status = StatusFile(tmp_path / "s")
    status.running()
    assert json.loads((tmp_path / "s").read_text()) == {"kind": "running", "pid": os.getpid()}
    see(
        status,
        Moved("shutdown", "run", "cleanup", 5),
        Ended("cleanup.0", "true", 0, "Exited", 1),
        Ended("cleanup.1", "flux queue idle", 129, "Hangup", 1),
        Ended("rc3.0", "false", 1, "Exited", 1),
    )
    status.exited(129)
    assert json.loads((tmp_path / "s").read_text()) == {
        "kind": "exited",
        "code": 129,
        "culprit": {"run": "cleanup.1", "command": "flux queue idle", "how": "Hangup", "rc": 129},
        "states": [{"state": "run", "held_ns": 5}],
    }
    assert [path.name for path in tmp_path.iterdir()] == ["s"]
    assert (tmp_path / "s").stat().st_mode & 0o777 == 0o644


def test_it_is_replaced_as_a_whole_so_a_reader_never_sees_half_of_it(tmp_path):
    (tmp_path / "s").write_text("old")
    with (tmp_path / "s").open() as reader:
        StatusFile(tmp_path / "s").exited(0)
        assert reader.read() == "old"
    assert json.loads((tmp_path / "s").read_text())["culprit"] is None


def test_a_file_that_cannot_be_written_is_refused_at_the_start_but_only_told_at_the_end(tmp_path, capsys):
    status = StatusFile(tmp_path / "missing" / "s")
    with pytest.raises(UsageError, match=r"--status-file .*: cannot write: No such file or directory$"):
        status.running()
    status.exited(0)
    assert "cannot write: No such file or directory" in capsys.readouterr().err


def test_a_refused_run_leaves_the_file_of_a_living_one_alone(tmp_path):
    path = tmp_path / "status"
    path.write_text(json.dumps({"kind": "running", "pid": os.getppid()}))
    StatusFile(path).refused(2, "rundir in use")
    assert json.loads(path.read_text())["kind"] == "running"
    path.write_text('{"kind": "running", "pid": 4194304}')
    StatusFile(path).refused(2, "rundir in use")
    assert json.loads(path.read_text())["kind"] == "refused"


def test_what_a_killed_broker_of_the_same_pid_left_half_written_is_no_hindrance(tmp_path):
    """In a container a broker has the same pid in each of its lives."""
    (tmp_path / f".s.{os.getpid()}").write_text('{"kind": "exi')
    StatusFile(tmp_path / "s").running()
    assert json.loads((tmp_path / "s").read_text())["kind"] == "running"
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


def test_a_disk_that_is_nearly_full_leaves_the_old_file_whole(tmp_path, capsys):
    """Here files may not be longer than that (setrlimit(2))."""
    status = StatusFile(tmp_path / "s")
    status.running()
    see(status, *[Moved("x", "run", "cleanup", 5)] * 1000)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        status.exited(0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "cannot write: File too large" in capsys.readouterr().err
    assert json.loads((tmp_path / "s").read_text())["kind"] == "running"
    assert [path.name for path in tmp_path.iterdir()] == ["s"]
