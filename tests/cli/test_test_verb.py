"""`brokerctl test`: what it finds, runs, reports, and with which exit code."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from brokerctl import cli
from brokerctl.cli.test import matcher
from brokerctl.errors import UsageError
from brokerctl.scenario.collect import collect, is_scenario

ROOT = Path(__file__).parents[2]
SCENARIOS = ROOT / "scenarios"
GOOD = 'about = "x"\n[[step]]\nat = "run"\ndo = "sigterm"\n[expect]\nexit = 0\n'
BAD = GOOD.replace("exit = 0", "exit = 3")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "good.toml").write_text(GOOD)
    (tmp_path / "sub" / "other-good.toml").write_text("# a comment\n\n" + GOOD)
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    (tmp_path / "run.toml").write_text("[[cleanup]]\ncommand = 'true'\n")
    (tmp_path / "broken.txt").write_text(GOOD)
    return tmp_path


def test_a_directory_gives_its_scenarios_and_nothing_else(folder):
    assert [path.name for path in collect([folder])] == ["good.toml", "other-good.toml"]
    assert len(collect([folder, folder / "good.toml"])) == 2
    assert not is_scenario(ROOT / "pyproject.toml")
    assert all(is_scenario(path) for path in SCENARIOS.glob("*.toml"))


def test_all_pass_is_0_and_the_default_world_is_virtual(folder, capsys):
    assert cli.main(["test", str(folder)]) == 0
    assert capsys.readouterr().out == "ok       sim   good\nok       sim   other-good\n\n2 passed\n"


def test_a_failure_is_1_with_its_story_and_how_to_run_it_again(folder, capsys):
    (folder / "bad.toml").write_text(BAD)
    assert cli.main(["test", str(folder), "-S", "broker.quorum-warn=9s"]) == 1
    out = capsys.readouterr().out
    assert "FAILED   sim   bad\n" in out
    assert "broker.info[0]: signal 15\n" in out
    assert "expect.exit: expected exit code 3, got 0\n" in out
    assert f"run it again: brokerctl simulate {folder}/bad.toml -S broker.quorum-warn=9s\n" in out
    assert out.endswith("2 passed, 1 failed\n")


def test_a_moment_that_never_came_is_a_failure_and_no_hang(folder, capsys):
    (folder / "late.toml").write_text(GOOD + '[[step]]\nat = "cleanup.7 start"\ndo = "sigterm"\n')
    assert cli.main(["test", str(folder / "late.toml")]) == 1
    assert "step: step at 'cleanup.7 start' never came\n" in capsys.readouterr().out


def test_worlds_that_cannot_run_a_scenario_skip_it_and_are_counted(folder, capsys):
    (folder / "good.toml").write_text('worlds = ["sim"]\n'.join(GOOD.split("\n", 1)).replace('"x"w', '"x"\nw'))
    assert cli.main(["test", str(folder / "good.toml"), "--world", "sim,live"]) == 0
    out = capsys.readouterr().out
    assert "skipped  live  good: the scenario is for sim\n" in out
    assert out.endswith("1 passed, 1 skipped\n")


def test_reports_go_to_a_file(folder, capsys):
    out = folder / "report.xml"
    assert cli.main(["test", str(folder), "--format", "junit", "-o", str(out)]) == 0
    assert ET.parse(out).getroot().get("tests") == "2"  # noqa: S314 - our own output
    assert cli.main(["test", str(folder), "--format", "tap"]) == 0
    assert capsys.readouterr().out.startswith("TAP version 14\n1..2\nok 1 - good (sim, flux)\n")


def test_several_at_a_time_give_the_same_report_in_the_same_order():
    words = [sys.executable, "-m", "brokerctl", "test", str(SCENARIOS), "-k", "signal"]
    alone, several = (
        subprocess.run([*words, *more], cwd=ROOT, capture_output=True, timeout=120, check=True).stdout
        for more in ([], ["-j", "3"])
    )
    assert several == alone
    assert several.count(b"ok ") > 5


def test_the_schema_is_json_and_needs_no_path(capsys):
    assert cli.main(["test", "--schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert schema["$ref"] == "#/$defs/ScenarioFile"
    assert "expect" in schema["$defs"]["ScenarioFile"]["properties"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "no PATH; expected scenario files or directories"),
        (["."], ".: no scenario in this directory"),
        (
            ["good.toml", "--world", "moon"],
            "argument --world: unknown world 'moon'; expected one of sim, live, systemd, flux",
        ),
        (["good.toml", "-j", "0"], "argument -j: '0' is no number of jobs; expected 1 to 256"),
        (["good.toml", "-k", "nothing"], "-k nothing: no scenario has such a name"),
        (["good.toml", "-k", "( a"], "-k ( a: a parenthesis is open"),
        (["good.toml", "-o", "/no/such/report"], "-o /no/such/report: cannot write: No such file or directory"),
        (["good.toml", "-o", "/dev/full"], "-o /dev/full: cannot write: No space left on device"),
        (["good.toml", "bad.toml"], "bad.toml: expect.exit: expected 'int' <= 255"),
    ],
)
def test_what_cannot_be_used_is_one_line_and_2(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    if words != ["."]:
        Path("good.toml").write_text(GOOD)
        Path("bad.toml").write_text(GOOD.replace("exit = 0", "exit = 999"))
    assert cli.main(["test", *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("brokerctl test: ")
    assert message in captured.err
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ("", ["ab", "ac", "bc"]),
        ("a", ["ab", "ac"]),
        ("a and b", ["ab"]),
        ("not a", ["bc"]),
        ("ab or bc", ["ab", "bc"]),
        ("c and not (a or x)", ["bc"]),
        ("not not a and not c", ["ab"]),
    ],
)
def test_words_choose_names(expression, names):
    assert [name for name in ("ab", "ac", "bc") if matcher(expression)(name)] == names


@pytest.mark.parametrize("expression", ["a and", "or a", "(a", "a)", "a b", "not", "()"])
def test_words_that_make_no_sense_are_told(expression):
    with pytest.raises(UsageError, match=r"^-k "):
        matcher(expression)


def test_progress_is_shown_on_a_terminal_only(folder):
    """The report is on stdout; what has been done so far is on the terminal."""
    leader, follower = pty.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "brokerctl", "test", str(folder)],
            cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=follower, timeout=60, check=False,
        )  # fmt: skip
        shown = os.read(leader, 65536).decode()
    finally:
        os.close(leader)
        os.close(follower)
    assert done.returncode == 0
    assert "[1/2]" in shown
    assert "[2/2]" in shown
    assert done.stdout.decode() == "ok       sim   good\nok       sim   other-good\n\n2 passed\n"


def test_a_reader_that_goes_away_is_no_bug(folder):
    first, second = os.pipe()
    os.close(first)
    with os.fdopen(second, "wb") as closed:
        done = subprocess.run(
            [sys.executable, "-m", "brokerctl", "test", str(folder)],
            cwd=ROOT, stdout=closed, stderr=subprocess.PIPE, timeout=60, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == b""
