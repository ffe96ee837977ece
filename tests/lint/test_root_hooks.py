"""Programs that root runs, and whom they belong to on this machine."""

import os

import pytest

from brokerctl.lint.rules import root_hook_untrusted

UNIT = "[Service]\nUser=flux\nExecStart=/usr/bin/program\nExecStartPre={}{}\n"


@pytest.fixture
def program(tmp_path_factory):
    """A program in a directory of root's, as far as the file system of the tests allows."""
    if os.geteuid():
        pytest.skip("needs root, who alone may give files away")
    path = tmp_path_factory.mktemp("bin") / "program"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def reason(monkeypatch, program):
    monkeypatch.setattr(root_hook_untrusted, "_OPEN", ())
    return root_hook_untrusted._reason(str(program))


def test_a_program_that_only_root_can_write_is_trusted(monkeypatch, program):
    assert reason(monkeypatch, program) == ""


def test_a_program_of_another_user_is_not(monkeypatch, program):
    os.chown(program, 4321, 0)
    assert reason(monkeypatch, program) == f"{program} belongs to user 4321"


def test_a_directory_that_everybody_may_write_is_not(monkeypatch, program):
    program.parent.chmod(0o777)
    assert reason(monkeypatch, program) == f"everybody may write {program.parent}"


def test_only_hooks_that_run_as_root_are_judged(judge):
    assert judge(UNIT.format("", "/home/a/hook")) == []
    assert judge(UNIT.format("+", "/home/a/hook")) == ["root-hook-untrusted"]
    assert judge(UNIT.format("", "/home/a/hook") + "PermissionsStartOnly=yes\n") == ["root-hook-untrusted"]
