"""`--status-file`: the certain channel."""

import json
import os

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
