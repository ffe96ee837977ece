"""`brokerctl states` draws the table, all of it, and nothing else."""

from __future__ import annotations

import re

import pytest

from brokerctl import cli
from brokerctl.cli.states import FORMATS, render
from brokerctl.model.lifecycle import TRANSITIONS, State

TABLE = {(str(old), str(event), str(new)) for old, row in TRANSITIONS.items() for event, new in row.items()}


def mermaid_rows(text):
    names = dict(re.findall(r'state "([\w-]+)" as (\w+)', text))
    names = {alias: name for name, alias in names.items()}
    for old, new, events in re.findall(r"^    (\w+) --> (\w+): (.*)$", text, re.MULTILINE):
        for event in events.split(", "):
            yield names.get(old, old), event, names.get(new, new)


def dot_rows(text):
    for old, new, events in re.findall(r'"([\w-]+)" -> "([\w-]+)" \[label="(.*)"\];', text):
        for event in events.split(r"\n"):
            yield old, event, new


def text_rows(text):
    state = ""
    for line in text.splitlines():
        if not line.startswith(" "):
            state = line
        elif " -> " in line:
            events, new = line.split(" -> ")
            for event in events.split(","):
                yield state, event.strip(), new


@pytest.mark.parametrize(("form", "rows"), [("text", text_rows), ("mermaid", mermaid_rows), ("dot", dot_rows)])
def test_every_format_has_every_row_of_the_table_once(form, rows):
    found = list(rows(render(form)))
    assert set(found) == TABLE
    assert len(found) == len(TABLE)


def test_parallel_events_share_an_arrow():
    assert "    join --> config_sync: parent-ready, parent-none\n" in render("mermaid")


def test_the_diagram_begins_where_a_broker_begins_and_ends_at_exit():
    text = render("mermaid")
    assert text.startswith("stateDiagram-v2\n")
    assert "    [*] --> load_builtins\n" in text
    assert text.endswith("    exit --> [*]\n")


@pytest.mark.parametrize("form", FORMATS)
def test_the_command_prints_what_is_rendered(form, capsys):
    assert cli.main(["states", "--format", form]) == 0
    assert capsys.readouterr().out == render(form)


def test_text_is_the_default_and_names_the_final_state(capsys):
    assert cli.main(["states"]) == 0
    assert capsys.readouterr().out.endswith(f"{State.EXIT}\n    (final)\n")


def test_an_unknown_format_is_refused_in_one_line(capsys):
    assert cli.main(["states", "--format", "png"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "text" in error
    assert "mermaid" in error
