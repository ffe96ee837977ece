"""Each rule finds its bad unit, and nothing else does; what mends it is clean."""

import re
import subprocess
from pathlib import Path

import pytest

from brokerctl.lint import engine
from brokerctl.lint.rule import rules
from brokerctl.lint.subject import Subject
from brokerctl.unit import load
from tests.lint.conftest import FIXTURES, of_directory

SYSTEMD = Path("/lib/systemd/systemd")
IDS = sorted(rules())


@pytest.mark.parametrize("rule", IDS)
def test_the_bad_unit_of_a_rule_raises_that_rule_and_no_other(rule):
    found = [finding for unit in of_directory(FIXTURES / rule / "bad") for finding in engine.judge(unit)]
    assert {finding.rule for finding in found} == {rule}, [(finding.rule, finding.text) for finding in found]
    assert all(finding.line for finding in found)


@pytest.mark.parametrize("rule", IDS)
def test_the_good_unit_of_a_rule_raises_nothing(rule):
    units = of_directory(FIXTURES / rule / "good")
    assert units
    found = [finding for unit in units for finding in engine.judge(unit)]
    assert not found, [(finding.rule, finding.text) for finding in found]


def test_every_fixture_belongs_to_a_rule():
    assert sorted(path.name for path in FIXTURES.iterdir()) == IDS


def test_there_are_enough_rules():
    assert len(IDS) >= 25


@pytest.mark.parametrize("rule", IDS)
def test_a_rule_says_why_in_one_sentence_and_where_that_is_known_from(rule):
    found = rules()[rule]
    for text in (found.why, found.mend):
        assert text, rule
        assert not text.endswith("."), text
        assert "\n" not in text, text
    assert re.search(r"\(\d\)|SYSTEMD\.md|FLUX\.md|docs/|#\d+", found.source), found.source


@pytest.mark.skipif(not SYSTEMD.exists(), reason="no systemd is installed that could tell its settings")
def test_no_setting_that_systemd_knows_is_taken_for_a_misspelt_one(judge):
    command = [SYSTEMD, "--dump-configuration-items"]
    dump = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout
    section, lines = "", []
    for line in dump.splitlines():
        if line.startswith("["):
            section = line
            lines.append(line)
        elif section in {"[Unit]", "[Service]"} and "=" in line:
            lines.append(line.partition("=")[0] + "=")
    assert len(lines) > 200
    assert "ignored-key" not in judge("\n".join(lines))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("TimeoutStopSecs=5", "TimeoutStopSec= is"),
        ("RestartPreventExitStatuses=42", "RestartPreventExitStatus= is"),
        ("KilMode=mixed", "KillMode= is"),
        ("CollectMode=inactive", "it belongs into [Unit]"),
        ("[Unit]\nTimeoutStopSec=5", "it belongs into [Service]"),
    ],
)
def test_a_misspelt_or_misplaced_setting_is_told_with_the_right_one(tmp_path, line, said):
    path = tmp_path / "x.service"
    path.write_text(f"[Service]\nExecStart=/bin/true\n{line}\n")
    [finding] = engine.judge(Subject(load(path)))
    assert finding.rule == "ignored-key"
    assert said in finding.text
