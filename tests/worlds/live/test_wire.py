"""What neighbours write to each other: what is nonsense is told apart before the model sees it."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerctl.records import (
    Abort,
    AnyMessage,
    Command,
    ConfigGet,
    ConfigIs,
    Disconnect,
    EventThere,
    EventWanted,
    Exec,
    Forward,
    Goodbye,
    GoodbyeOk,
    Hello,
    Offline,
    Online,
    Results,
    Said,
    Shed,
    ShellFailed,
    StateIs,
)
from brokerctl.worlds.live import wire
from brokerctl.worlds.live.wire import NonsenseError, Splitter

FROM_CHILD = [
    Hello(), ConfigGet(), Online((3, 4)), Offline((3,), "lost"), Goodbye(),
    Results("cleanup.0", ((17408, 68, "No route", (3,)),)), Said("job.x.epilog", 3, "err", "text"),
    ShellFailed("job.x.task", 4), EventWanted(3, 1, "x", "dws_environment"),
]  # fmt: skip
FROM_PARENT = [
    StateIs("quorum"), ConfigIs(), Disconnect(), Shed(3), Exec("cleanup.0", Command("a", ("a",)), (3,)),
    Exec("cleanup.1", Command("a", ("a",)), ()), Abort("cleanup.0", hurry=True), GoodbyeOk(), EventThere(3, 1),
    Forward("job.x.task", 10),
]  # fmt: skip
SUBTREE = frozenset({1, 3, 4})


@pytest.mark.parametrize("message", FROM_CHILD + FROM_PARENT, ids=lambda message: type(message).__name__)
def test_every_message_comes_back_as_it_was_in_one_line(message):
    data = wire.line(message)
    assert data.endswith(b"\n")
    assert data.count(b"\n") == 1
    assert wire.parse(data[:-1]) == message


def test_no_message_is_forgotten():
    assert {type(message) for message in FROM_CHILD + FROM_PARENT} == set(AnyMessage.__args__)


@pytest.mark.parametrize("message", FROM_CHILD, ids=lambda message: type(message).__name__)
def test_only_a_child_says_what_a_child_says(message):
    wire.check_child(message, SUBTREE)
    with pytest.raises(NonsenseError, match="from the parent"):
        wire.check_parent(message, SUBTREE)


@pytest.mark.parametrize("message", FROM_PARENT, ids=lambda message: type(message).__name__)
def test_only_a_parent_says_what_a_parent_says(message):
    wire.check_parent(message, SUBTREE)
    with pytest.raises(NonsenseError, match="from a child"):
        wire.check_child(message, SUBTREE)


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (wire.check_child, Online((3, 5))),
        (wire.check_child, Offline((0,), "left")),
        (wire.check_child, Results("a", ((0, 0, "Exited", (2,)),))),
        (wire.check_child, Results("a", ((0, 256, "Exited", (3,)),))),
        (wire.check_child, Results("a", ((0, -1, "Exited", (3,)),))),
        (wire.check_child, Results("a", ((1 << 16, 0, "Exited", (3,)),))),
        (wire.check_child, Said("job.x.epilog", 2, "out", "text")),
        (wire.check_child, ShellFailed("job.x.task", 0)),
        (wire.check_child, EventWanted(5, 1, "x", "y")),
        (wire.check_parent, EventThere(9, 1)),
        (wire.check_parent, StateIs("nowhere")),
        (wire.check_parent, Exec("a", Command("a", ("a",)), (7,))),
        (wire.check_parent, Exec("a", Command("a"), ())),
        (wire.check_parent, Shed(9)),
    ],
)
def test_nobody_speaks_for_ranks_that_are_not_below_or_of_what_does_not_exist(check, message):
    with pytest.raises(NonsenseError):
        check(message, SUBTREE)


def test_the_first_line_names_version_and_rank():
    assert wire.first_line(3) == b'{"brokerctl-tbon":1,"rank":3}\n'
    assert wire.parse_first(wire.first_line(3)[:-1]) == 3


@pytest.mark.parametrize(
    "data",
    [
        b"", b"{}", b'{"brokerctl-tbon":2,"rank":3}', b'{"brokerctl-tbon":1}', b'{"brokerctl-tbon":1,"rank":"3"}',
        b'{"brokerctl-tbon":1,"rank":3,"more":1}', b"\xff", b"[" * 200, b'{"brokerctl-tbon":1,"rank":1e999}',
    ],
)  # fmt: skip
def test_another_first_line_is_nonsense(data):
    with pytest.raises(NonsenseError):
        wire.parse_first(data)


@given(st.binary(max_size=300) | st.text(max_size=100).map(str.encode))
def test_whatever_comes_is_a_message_or_nonsense(data):
    for parse in (wire.parse, wire.parse_first):
        with contextlib.suppress(NonsenseError):
            parse(data)


@given(st.lists(st.binary(max_size=40).filter(lambda line: b"\n" not in line)), st.lists(st.integers(1, 50)))
def test_lines_are_found_however_they_are_cut(lines, sizes):
    data = b"".join(line + b"\n" for line in lines)
    splitter, found = Splitter(), []
    for size in [*sizes, len(data) + 1]:
        piece, data = data[:size], data[size:]
        found += splitter.feed(piece)
    assert found == lines


def test_a_line_without_an_end_is_nonsense_beyond_its_limit():
    splitter = Splitter()
    splitter.feed(b"x" * wire.FIRST_LINE_MAX)
    with pytest.raises(NonsenseError, match="too long"):
        splitter.feed(b"x")


def test_a_first_line_that_ends_too_late_is_nonsense_too():
    with pytest.raises(NonsenseError, match="too long"):
        Splitter().feed(b"x" * (wire.FIRST_LINE_MAX + 1) + b"\n")
