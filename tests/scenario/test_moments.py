"""The grammar of moments, and finding them in lines."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerctl.durations import LIMIT_NS, MS, S
from brokerctl.model.lifecycle import State
from brokerctl.records import Command, Ended, Line, Log, Moved, Start, Waiting
from brokerctl.scenario import moments
from brokerctl.scenario.moments import Moment, Watcher

ACTIONS = st.builds(
    "{}.{}".format, st.sampled_from(["rc1", "rc2", "cleanup", "rc3", "rexec.cleanup"]), st.integers(0, 99_999)
)
RANKS = st.integers(0, 999)
NTHS = st.integers(1, 999)
OFFSETS = st.integers(-LIMIT_NS, LIMIT_NS)
MOMENTS = st.one_of(
    st.builds(Moment, st.just("time"), offset_ns=st.integers(0, LIMIT_NS)),
    st.builds(Moment, st.just("state"), st.sampled_from([str(s) for s in State]), RANKS, NTHS, OFFSETS),
    st.builds(Moment, st.sampled_from(["start", "end"]), ACTIONS, RANKS, NTHS, OFFSETS),
)


@given(MOMENTS)
def test_every_moment_is_read_back_from_its_text(moment):
    assert moments.parse(str(moment), 1000) == moment


@given(st.one_of(st.text(), st.text("cleanup.0123 rankthseod+-", max_size=30)))
def test_any_text_is_a_moment_or_a_value_error_in_one_line(text):
    try:
        moments.parse(text, 4)
    except ValueError as error:
        told = str(error)
    else:
        told = ""
    assert "\n" not in told


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("1.5s", Moment("time", offset_ns=1500 * MS)),
        (".5", Moment("time", offset_ns=500 * MS)),
        ("cleanup", Moment("state", "cleanup")),
        ("load-builtins", Moment("state", "load-builtins")),
        ("rank 2 finalize", Moment("state", "finalize", 2)),
        ("cleanup.3 start", Moment("start", "cleanup.3")),
        ("rc3.0 end nth 2", Moment("end", "rc3.0", 0, 2)),
        ("rank 2 rexec.cleanup.0 end", Moment("end", "rexec.cleanup.0", 2)),
        ("rank 1 rc1.0 start nth 2 + 30s", Moment("start", "rc1.0", 1, 2, 30 * S)),
        ("shutdown - 1.5s", Moment("state", "shutdown", offset_ns=-1500 * MS)),
        ("run +2s", Moment("state", "run", offset_ns=2 * S)),
    ],
)
def test_what_a_moment_means(text, moment):
    assert moments.parse(text, 3) == moment


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is empty"),
        ("cleanup.3", "is no moment"),
        ("cleanup.3 begin", "expected start or end"),
        ("cleanup.03 start", "is no action and no job"),
        ("stuck epilog-start", "'stuck' is no action and no job"),
        ("walk", "is no moment"),
        ("rank 3 run", "rank 3 is out of range; expected less than 3"),
        ("rank run", "rank needs a number"),
        ("run nth 0", "nth counts from 1"),
        ("run nth", "is no action and no job"),
        ("run + soon", "'soon' is no duration"),
        ("run + none", "never comes"),
        ("inf", "is no moment"),
        ("+ 1s", "is no moment"),
        ("3 parsecs", "is no duration"),
    ],
)
def test_what_is_no_moment_is_told_in_words(text, why):
    with pytest.raises(ValueError, match=r".") as caught:
        moments.parse(text, 3)
    assert why in str(caught.value)


def line(n, what, t_ns=0, rank=0):
    return Line(t_ns, rank, n, ">", what)


def moved(new):
    return Moved("some-event", "old", new, 0)


LINES = [
    line(0, Log("broker", 6, "run"), 1 * S),
    line(1, moved("run"), 2 * S),
    line(2, Start("cleanup.0", Command("x")), 3 * S),
    line(3, moved("run"), 4 * S, rank=1),
    line(4, Start("cleanup.1", Command("x")), 4 * S),
    line(5, Ended("cleanup.0", "x", 0, "Exited", 0), 5 * S),
    line(6, moved("run"), 6 * S),
]


@pytest.mark.parametrize(
    ("text", "at_ns"),
    [
        ("1s", 2 * S),  # from the first line
        ("run", 2 * S),
        ("run nth 2", 6 * S),
        ("run nth 3", None),
        ("rank 1 run", 4 * S),
        ("cleanup.0 start + 1s", 4 * S),
        ("cleanup.0 end - 1s", 4 * S),
        ("cleanup.1 end", None),
        ("rank 1 cleanup.0 start", None),
    ],
)
def test_a_watcher_finds_the_moment_in_the_lines(text, at_ns):
    watcher = Watcher(moments.parse(text, 2))
    for index, one in enumerate(LINES):
        watcher.see(index, one)
    assert watcher.at_ns == at_ns


def test_a_trigger_of_a_time_is_due_from_the_beginning():
    trigger = moments.parse("2s", 1).trigger()
    assert trigger.begin() == 2 * S
    assert [trigger.see(one) for one in LINES] == [None] * len(LINES)


def test_a_trigger_answers_at_its_line_and_only_once():
    trigger = moments.parse("run nth 2 + 3s", 1).trigger()
    assert trigger.begin() is None
    assert [trigger.see(one) for one in LINES] == [None] * 6 + [3 * S]


def test_an_action_on_many_ranks_starts_when_it_is_sent_out():
    moment = moments.parse("cleanup.0 start", 3)
    sent = Line(0, 0, 0, ">", Waiting("cleanup.0", "ranks all"))
    assert moment.matches(sent)
    assert not moment.matches(Line(0, 0, 1, ">", Start("rexec.cleanup.0", Command("it"))))
    assert {Waiting, Start} <= moment.wants


@given(MOMENTS)
def test_a_moment_wants_the_kinds_of_the_lines_that_it_matches(moment):
    for what in (
        Moved("event", "old", moment.subject, 0),
        Start(moment.subject, Command("it")),
        Ended(moment.subject, "it", 0, "Exited", 0),
        Waiting(moment.subject, "ranks all"),
        Log("broker", 6, moment.subject),
    ):
        if moment.matches(Line(0, moment.rank, 0, ">", what)):
            assert type(what) in moment.wants
