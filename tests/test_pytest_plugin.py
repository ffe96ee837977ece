"""The pytest plugin, as a user of it sees it: in a pytest of its own."""

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
GOOD = 'about = "x"\n[[step]]\nat = "run"\ndo = "sigterm"\n[expect]\nexit = 0\n'


@pytest.fixture
def outer(tmp_path):
    """Runs pytest on a directory; the plugin is registered by the installed package, or named from a checkout."""
    installed = any(point.value == "brokerctl.pytest_plugin" for point in entry_points(group="pytest11"))
    named = [] if installed else ["-p", "brokerctl.pytest_plugin"]

    def run(*words):
        env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", "/dev/null", "-W", "error",
             "--rootdir", str(tmp_path), *named, *words],
            cwd=tmp_path, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip

    return run


def test_there_is_an_item_for_each_scenario_and_world(tmp_path, outer):
    (tmp_path / "one.toml").write_text(GOOD)
    (tmp_path / "two.toml").write_text('about = "x"\nworlds = ["sim"]\n' + GOOD.split("\n", 1)[1])
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    (tmp_path / "config.toml").write_text("[[cleanup]]\ncommand = 'true'\n")
    done = outer("--collect-only", "-q", ".")
    assert done.stdout.splitlines()[:3] == ["one.toml::sim", "one.toml::live", "two.toml::sim"]
    assert "3 tests collected" in done.stdout


def test_scenarios_pass_and_worlds_can_be_chosen(tmp_path, outer):
    (tmp_path / "one.toml").write_text(GOOD)
    done = outer("--scenario-world", "sim", "-v", ".")
    assert done.returncode == 0, done.stdout
    assert "one.toml::sim PASSED" in done.stdout
    assert "1 passed" in done.stdout


def test_real_processes_are_run_too(tmp_path, outer):
    (tmp_path / "one.toml").write_text(GOOD)
    done = outer("--scenario-world", "live", "-v", ".")
    assert done.returncode == 0, done.stdout
    assert "one.toml::live PASSED" in done.stdout


def test_what_fails_is_told_in_our_words_and_not_as_a_traceback(tmp_path, outer):
    (tmp_path / "one.toml").write_text(GOOD.replace("exit = 0", "exit = 3"))
    done = outer("--scenario-world", "sim", ".")
    assert done.returncode == 1
    assert "one (sim, flux): FAILED" in done.stdout
    assert "expect.exit: expected exit code 3, got 0" in done.stdout
    assert "run it again: brokerctl simulate" in done.stdout
    assert "Traceback" not in done.stdout
    assert "runner.py" not in done.stdout


def test_a_scenario_that_cannot_be_read_is_an_error_in_one_line(tmp_path, outer):
    (tmp_path / "one.toml").write_text(GOOD + "colour = 1\n")
    done = outer(".")
    assert done.returncode == 2
    assert "one.toml: expect: object contains unknown field 'colour'" in done.stdout
    assert "Traceback" not in done.stdout


def test_a_pytest_without_scenarios_loads_nothing_of_weight():
    code = (
        "import sys, pytest\nbefore = set(sys.modules)\nimport brokerctl.pytest_plugin\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == ["brokerctl", "brokerctl.pytest_plugin"]
