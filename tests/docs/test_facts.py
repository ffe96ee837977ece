"""The table of what systemd does: each fact is held or says why not, and what holds it names facts that are there."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tests import facts
from tests.facts import Holder, Holders


def test_every_fact_is_held_or_says_why_not_and_every_marker_names_one():
    assert facts.problems(facts.holders(), facts.NOT_HELD) == []


def test_the_facts_are_numbered_without_a_gap_and_nine_of_ten_are_held():
    assert list(facts.FACTS) == list(range(1, len(facts.FACTS) + 1))
    assert len(facts.NOT_HELD) * 10 <= len(facts.FACTS)


ALL = Holders({number: [Holder("tests/test_x.py", "test_x")] for number in facts.FACTS})


@pytest.mark.parametrize(
    ("found", "reasons", "problem"),
    [
        ({1: []}, {}, "fact 1 is held by nothing, and has no reason"),
        ({}, {1: "no scenario can have it"}, "fact 1 is held, and has a reason why it is not"),
        ({999: [Holder("tests/test_y.py", "test_y")]}, {}, "tests/test_y.py: test_y: there is no fact 999"),
    ],
)
def test_what_is_wrong_with_the_table_is_told(found, reasons, problem):
    merged = Holders({number: held_by for number, held_by in {**ALL, **found}.items() if held_by})
    assert facts.problems(ALL, {}) == []
    assert facts.problems(merged, reasons) == [problem]


def test_a_fact_with_a_reason_needs_no_test():
    without = Holders({number: held_by for number, held_by in ALL.items() if number != 7})
    assert facts.problems(without, {7: "no scenario can have it"}) == []


@pytest.mark.parametrize(
    ("key", "numbers"),
    [
        ("SYSTEMD.md 57, 82", [57, 82]),
        ("SYSTEMD.md 1, 55, P1, FLUX.md 100", [1, 55]),
        ("FLUX.md 106, letter p", []),
        ("", []),
    ],
)
def test_a_key_of_a_scenario_names_facts_of_systemd_and_others(key, numbers):
    assert list(facts.numbers(key)) == numbers


def test_a_marker_is_read_as_pytest_does(pytestconfig):
    source = "@pytest.mark.fact(1, 2)\n@pytest.mark.parametrize('x', [])\n@pytest.mark.fact(3)\ndef test_x(x): ...\n"
    assert list(facts.marked(source + "def test_y(): ...\n")) == [("test_x", (1, 2, 3))]
    markers = tomllib.loads((pytestconfig.rootpath / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert any(marker.startswith("fact(") for marker in markers["markers"])


def test_the_page_links_to_what_is_there():
    for holder in {holder for held_by in facts.holders().values() for holder in held_by}:
        assert (facts.ROOT / holder.path).is_file(), holder
        assert holder.name in Path(facts.ROOT, holder.path).read_text() or holder.path.endswith(".toml")
