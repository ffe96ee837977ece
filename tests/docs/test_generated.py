"""The documentation says what the program does: generated parts are fresh, and limits are those of the policies."""

from __future__ import annotations

import re

import pytest

from brokerctl.cli.states import render
from brokerctl.config import ATTRIBUTES, FLUX, HARDENED
from brokerctl.durations import MINUTE, S
from brokerctl.model.bounds import ladder_ns
from brokerctl.model.lifecycle import State
from tests import generated

LIFECYCLE = generated.ROOT / "docs" / "lifecycle.md"


def test_no_generated_part_of_the_documentation_is_stale(capsys):
    assert generated.main(["--check"]) == 0
    assert capsys.readouterr().err == ""


def test_a_stale_diagram_is_found_and_renewed(tmp_path, capsys):
    page = tmp_path / "docs" / "lifecycle.md"
    page.parent.mkdir()
    good = LIFECYCLE.read_text()
    stale = good.replace("    goodbye --> unload_builtins: goodbye\n", "")
    page.write_text(stale)
    assert generated.main(["--check"], tmp_path) == 1
    assert capsys.readouterr().err == "docs/lifecycle.md: stale; make docs renews it\n"
    assert page.read_text() == stale
    assert generated.main([], tmp_path) == 0
    assert page.read_text() == good
    assert generated.main(["--check"], tmp_path) == 0


def test_a_wrong_word_is_refused_and_nothing_is_written(tmp_path, capsys):
    assert generated.main(["--chek"], tmp_path) == 2
    assert "usage" in capsys.readouterr().err


def test_the_diagram_is_the_one_that_the_command_prints():
    assert f"```mermaid\n{render('mermaid')}```\n" in LIFECYCLE.read_text()


def rows(heading):
    section = LIFECYCLE.read_text().split(f"## {heading}\n")[1].split("\n## ")[0]
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in re.findall(r"^\|.*\|$", section, re.MULTILINE)
    ]


def test_every_state_is_explained():
    assert [row[0] for row in rows("What each state does")][2:14] == [str(state) for state in State]


@pytest.mark.parametrize(
    ("state", "column", "limit_ns", "text"),
    [
        ("config-sync", 2, HARDENED.config_sync_timeout_ns, "60 s"),
        ("quorum", 1, FLUX.quorum_warn_ns, "60 s"),
        ("quorum", 2, HARDENED.quorum_warn_ns, "60 s"),
        ("cleanup, after a signal", 1, FLUX.cleanup_timeout_ns, "(none;"),
        ("cleanup, after a signal", 2, HARDENED.cleanup_timeout_ns, "45 s"),
        ("shutdown", 1, FLUX.shutdown_timeout_ns, "(none;"),
        ("shutdown", 2, HARDENED.shutdown_slack_ns, "10 s"),
        ("finalize, after a signal", 1, FLUX.finalize_timeout_ns, "no limit"),
        ("finalize, after a signal", 2, HARDENED.finalize_timeout_ns, "5 m"),
        ("goodbye", 1, FLUX.goodbye_timeout_ns, "60 s"),
        ("goodbye", 2, HARDENED.goodbye_timeout_ns, "60 s"),
        ("unload-builtins", 1, FLUX.unload_timeout_ns, "60 s"),
        ("unload-builtins", 2, HARDENED.unload_timeout_ns, "60 s"),
    ],
)
def test_a_limit_in_the_table_is_that_of_the_policy(state, column, limit_ns, text):
    row = next(row for row in rows("How long each state may last") if row[0] == state)
    assert text in row[column]
    number = re.search(r"(\d+) (s|m)$", text)
    assert limit_ns == (int(number[1]) * {"s": S, "m": MINUTE}[number[2]] if number else None)


def test_the_ladder_in_the_text_is_that_of_the_policies():
    text = LIFECYCLE.read_text().replace("\n", " ")
    rungs = ", ".join(f"{name}, {rung.wait_ns // S} s" for name, rung in zip(
        ("SIGHUP", "SIGTERM", "SIGKILL"), HARDENED.ladder, strict=True
    ))  # fmt: skip
    assert rungs in text
    assert f"The ladder takes at most {ladder_ns(HARDENED) // S} s" in text
    assert [(rung.signum, rung.wait_ns) for rung in FLUX.ladder] == [(1, None)]


def test_every_attribute_that_is_named_exists():
    assert set(re.findall(r"`(broker\.[a-z-]+)`", LIFECYCLE.read_text())) <= set(ATTRIBUTES)
