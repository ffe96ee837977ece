"""What a command line runs in the end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerctl.unit.execline import commands
from brokerctl.unit.invocations import invocations
from brokerctl.unit.syntax import parse


def runs(value):
    [setting] = parse(f"[Service]\nExecStart={value}\n".encode(), "x").settings
    return [each for command in commands(setting) for each in invocations(command)]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("/bin/a b", [("/bin/a", "b")]),
        ("/bin/sh -c 'a b; c && d || e | f'", [("a", "b"), ("c",), ("d",), ("e",), ("f",)]),
        ("/bin/bash -ec 'A=1 B=2 exec a b'", [("a", "b")]),
        ("/usr/bin/env -i A=b /bin/a", [("/bin/a",)]),
        ("/usr/bin/timeout --foreground 10 a b", [("a", "b")]),
        ("/bin/sh -c \"bash -c 'a b'\"", [("a", "b")]),
        ("/bin/sh -c 'if test -e x; then a; fi'", [("test", "-e", "x"), ("a",), ("fi",)]),
        ("/bin/sh script a", [("/bin/sh", "script", "a")]),
        ("/bin/sh -c", [("/bin/sh", "-c")]),
        ('/bin/sh -c "it\'s open"', [("it's", "open")]),
        ("nohup setsid /bin/a", [("/bin/a",)]),
    ],
)
def test_shells_and_carriers_are_seen_through(value, expected):
    assert [each.words for each in runs(value)] == expected


def test_what_a_shell_leaves_behind_is_told():
    behind, stays = runs("/bin/sh -c 'a & b'")
    assert (behind.background, stays.background) == (True, False)


@pytest.mark.parametrize(
    ("value", "replaced"),
    [
        ("/bin/a", [True]), ("/bin/sh -c a", [True]), ("/bin/sh -c 'A=1 a'", [True]),
        ("/bin/sh -c 'a; b'", [False, False]),
        ("/bin/sh -c 'a; exec b'", [False, True]),
    ],
)  # fmt: skip
def test_a_shell_with_one_command_becomes_it(value, replaced):
    assert [each.replaces for each in runs(value)] == replaced


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("/usr/bin/brokerctl stop --post", ("stop", "--post")),
        ("/usr/bin/python3 -I -m brokerctl stop", ("stop",)),
        ("/usr/bin/python3.11 -Im brokerctl run", ("run",)),
        ("/usr/bin/python3 script -m brokerctl", None),
        ("/usr/bin/flux broker", None),
    ],
)
def test_brokerctl_is_known_by_its_name_and_as_a_module(value, words):
    assert runs(value)[0].brokerctl() == words


@given(st.text(alphabet="ab'\"\\;&|()$ \n-c{}=", max_size=40))
def test_any_text_of_a_shell_is_taken_apart(text):
    quoted = text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
    runs(f'/bin/sh -c "{quoted}"')
