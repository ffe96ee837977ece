"""What the pages name exists, and what exists is named: tests and scenarios, keys of the format, the grammar."""

from __future__ import annotations

import re

import msgspec
import pytest

from brokerctl.config import ATTRIBUTES, HARDENED
from brokerctl.durations import MINUTE, S
from brokerctl.model.bounds import SLACK_NS, ladder_ns
from brokerctl.scenario import format as scenario_format
from brokerctl.scenario import resolve
from tests import generated
from tests.console import ROOT

PAGES = {path.name: path.read_text() for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))}


def test_every_test_and_scenario_that_is_named_exists():
    for name, text in PAGES.items():
        for path in re.findall(r"(?<!/)\b((?:tests|scenarios|brokerctl|docs)/[\w./-]+\.\w+)", text):
            assert (ROOT / path).is_file(), f"{name}: {path}"


def test_every_attribute_that_is_named_exists():
    for name, text in PAGES.items():
        named = set(re.findall(r"\b((?:broker\.[a-z]+-[a-z-]+)|heartbeat\.(?!md\b)[a-z]+|tbon\.[a-z_]+)", text))
        assert named <= set(ATTRIBUTES), name


def test_every_key_of_a_scenario_is_explained():
    text = PAGES["scenarios.md"]
    for table in (
        scenario_format.ScenarioFile,
        scenario_format.Instance,
        scenario_format.PuppetEntry,
        scenario_format.ActionEntry,
        scenario_format.StepEntry,
        scenario_format.FaultEntry,
        scenario_format.SpanEntry,
        scenario_format.Expect,
    ):
        for field in msgspec.structs.fields(table):
            key = field.encode_name
            assert re.search(rf"`(?:\[+(?:expect\.)?)?{key}(?:\.NAME)?\]*`", text), f"{table.__name__}: {key}"


def test_the_grammar_of_moments_is_the_one_that_is_read():
    assert "moment   = duration | event" in PAGES["scenarios.md"]
    assert generated.grammar() in PAGES["scenarios.md"]


def test_each_letter_has_a_row():
    rows = re.findall(r"^\| ([a-z]) \|", PAGES["stop.md"], re.MULTILINE)
    assert rows == list("abcdefghijklmnopq")


@pytest.mark.parametrize(
    ("text", "limit_ns"),
    [
        ("`broker.cleanup-timeout` 45 s", HARDENED.cleanup_timeout_ns),
        ("`broker.essential-timeout` 10 s", HARDENED.essential_timeout_ns),
        ("the ladder, and 10 s", HARDENED.shutdown_slack_ns),
        ("`broker.finalize-timeout` 5 min", HARDENED.finalize_timeout_ns),
        ("`broker.goodbye-timeout` 60 s", HARDENED.goodbye_timeout_ns),
        ("| unload | 60 s", HARDENED.unload_timeout_ns),
        ("the kill ladder, 12 s", ladder_ns(HARDENED)),
        ("a second in each phase", SLACK_NS),
    ],
)
def test_a_limit_on_the_page_for_the_night_is_that_of_the_policy(text, limit_ns):
    assert text in PAGES["stop.md"].replace("\n", " ")
    number = re.search(r"(\d+) (s|min)", text)
    assert limit_ns == (int(number[1]) * {"s": S, "min": MINUTE}[number[2]] if number else S)


def test_every_deed_of_a_step_is_explained():
    for deed in re.split(", | or ", resolve._DEEDS):
        assert f"`{deed}`" in PAGES["scenarios.md"]
