"""Which units are meant: files, drop-ins, directories, names."""

import os
import sys

import pytest

from brokerctl.errors import UsageError
from brokerctl.lint import targets
from brokerctl.unit import UnitError
from tests.console import ROOT

UNIT = "[Service]\nExecStart=/usr/bin/program\n"


@pytest.fixture
def place(tmp_path):
    (tmp_path / "a.service").write_text(UNIT)
    (tmp_path / "b.timer").write_text("[Timer]\nOnBootSec=5\n")
    (tmp_path / "notes.txt").write_text("no unit")
    (tmp_path / "alias.service").symlink_to("a.service")
    (tmp_path / "masked.service").symlink_to("/dev/null")
    (tmp_path / "empty.service").write_text("")
    (tmp_path / "a.service.d").mkdir()
    (tmp_path / "a.service.d" / "x.conf").write_text("[Service]\nTimeoutStopSec=7\n")
    return tmp_path


def names(*words):
    return [unit.name for unit in targets.units([str(word) for word in words], [])]


def test_a_directory_stands_for_its_unit_files_without_aliases_and_masked_ones(place):
    assert names(place) == ["a.service", "b.timer"]


def test_a_unit_that_is_named_twice_is_judged_once(place):
    assert names(place / "a.service", place, place / "alias.service") == ["a.service", "b.timer"]


def test_a_drop_in_stands_for_its_unit_and_alone_for_itself(place):
    [unit] = targets.units([str(place / "a.service.d" / "x.conf")], [])
    assert [file.path for file in unit.files] == [str(place / "a.service"), str(place / "a.service.d" / "x.conf")]
    (place / "a.service").unlink()
    [unit] = targets.units([str(place / "a.service.d" / "x.conf")], [])
    assert (unit.name, len(unit.files)) == ("a.service", 1)


def test_what_can_t_be_read_in_a_directory_does_not_keep_the_others_from_being_judged(place):
    (place / "binary.service").write_bytes(b"\x7fELF\0")
    refused = []
    assert [unit.name for unit in targets.units([str(place)], refused)] == ["a.service", "b.timer"]
    [error] = refused
    assert str(error).endswith("binary.service:1: has a NUL byte: a binary, no unit file")


def test_a_directory_without_units_is_a_mistake(tmp_path):
    with pytest.raises(UsageError, match="has no unit files"):
        names(tmp_path)


def test_a_file_of_another_kind_is_a_mistake(place):
    with pytest.raises(UnitError, match="is no unit"):
        names(place / "notes.txt")


def fake_systemctl(tmp_path, monkeypatch, script):
    program = tmp_path / "bin" / "systemctl"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")


def test_a_name_is_looked_up_and_its_files_are_read_where_they_are(place, monkeypatch):
    unit, drop_in = place / "a.service", place / "a.service.d" / "x.conf"
    fake_systemctl(place, monkeypatch, f'echo "# {unit}"; cat {unit}; echo; echo "# {drop_in}"; cat {drop_in}')
    [found] = targets.units(["a"], [])
    assert [file.path for file in found.files] == [str(unit), str(drop_in)]


def test_a_comment_that_looks_like_the_head_of_a_file_is_none(place):
    tricky = place / "t.service"
    tricky.write_text(f"# {place}/a.service\n{UNIT}")
    shown = f"# {tricky}\n".encode() + tricky.read_bytes()
    assert targets.shown_files(shown) == [tricky]


def test_a_name_that_nobody_knows_is_told_with_what_systemctl_says(place, monkeypatch):
    fake_systemctl(place, monkeypatch, "echo 'No files found for nope.service.' >&2; exit 1")
    with pytest.raises(UsageError, match=r"nope: is no file, and no unit: No files found for nope\.service"):
        names("nope")


def test_a_masked_unit_is_told_to_be_masked(place, monkeypatch):
    fake_systemctl(place, monkeypatch, "echo '# Unit gone.service is masked.'")
    with pytest.raises(UsageError, match=r"gone: is no file, and no unit: Unit gone\.service is masked\."):
        names("gone")


def test_without_systemctl_a_name_is_told_to_be_no_file(place, monkeypatch):
    monkeypatch.setenv("PATH", str(place))
    with pytest.raises(UsageError, match="there is no systemctl"):
        names("nope")


def test_the_service_manager_itself_is_asked_for_a_name(private_systemd):
    private_systemd.unit("held.service", UNIT + "SendSIGKILL=no\n")
    private_systemd.unit("held.service.d/10.conf", "[Service]\nTimeoutStopSec=0\n")
    done = private_systemd.run(
        [sys.executable, "-m", "brokerctl", "lint", "--strict", "held"],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "/etc/systemd/system/held.service:3:13: warning: SendSIGKILL=no" in done.stdout
    assert "/etc/systemd/system/held.service.d/10.conf:2:16: warning: TimeoutStopSec=0" in done.stdout
