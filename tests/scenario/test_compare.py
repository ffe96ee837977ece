"""Equality of traces: the same story per rank and component; times, races and means are not compared."""

import pytest

from brokerctl.durations import MS, S
from brokerctl.records import (
    Answer,
    Arm,
    Asked,
    Booted,
    Cancel,
    Command,
    Ended,
    Event,
    Exited,
    Fired,
    Kill,
    Line,
    Log,
    Moved,
    Notify,
    Output,
    OutputEnded,
    Start,
)
from brokerctl.scenario.compare import first_difference


def lines(*whats, every_ns=S, rank=0):
    return [Line(n * every_ns, rank, n, "<" if isinstance(w, Event) else ">", w) for n, w in enumerate(whats)]


STORY = (
    Booted(),
    Moved("shutdown", "run", "cleanup", 5 * S),
    Start("cleanup.0", Command("it", ("/bin/it", "--now"))),
    Output("cleanup.0", "out", "hello"),
    OutputEnded("cleanup.0"),
    Exited("cleanup.0", 0),
    Ended("cleanup.0", "it", 0, "Exited", 2 * S),
)


def test_times_and_interleaving_are_not_compared():
    slower = list(STORY)
    slower[3:6] = [slower[5], slower[3], slower[4]]  # the output of a process and its end race
    slower[1] = Moved("shutdown", "run", "cleanup", 6 * S)
    slower[6] = Ended("cleanup.0", "it", 0, "Exited", 3 * S)
    assert first_difference(lines(*STORY), lines(*slower, every_ns=7 * MS)) is None


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (Start("a", Command("x", ("x",))), Start("a", Command("x", ("y", "z"), puppet="p"))),
        (OutputEnded("a", 5, "sleep (pid 12)"), OutputEnded("a")),
        (Asked("shutdown", 1), Asked("shutdown", 9)),
        (Asked("cleanup-push", 1, ("echo hi",), "echo hi", "p"), Asked("cleanup-push", 2, ("echo hi",))),
        (Answer(1, {"since": 3}), Answer(2, {"since": 4})),
        (Notify("EXTEND_TIMEOUT_USEC=52000000"), Notify("EXTEND_TIMEOUT_USEC=51999870")),
        (Notify("STATUS=cleanup.0, 44s left"), Notify("STATUS=cleanup.0, 1m40s left")),
        (Log("broker", 6, "a: at most 1.5s more"), Log("broker", 6, "a: at most 900ms more")),
        (
            Log("broker", 4, "a: its output was still held by p"),
            Log("broker", 4, "a: its output was still held by python3 (pid 7)"),
        ),
    ],
)
def test_what_only_one_world_can_know_is_not_compared(one, two):
    assert first_difference(lines(Booted(), one), lines(Booted(), two)) is None


def test_timers_and_attempts_to_signal_tell_nothing():
    noisy = [*STORY, Arm("t", S), Cancel("t"), Kill("cleanup.0", 1, "group"), Log("broker", 7, "ignored")]
    assert first_difference(lines(*STORY), lines(*noisy)) is None


def test_a_reminder_that_fires_tells_nothing_and_a_limit_that_fires_does():
    reminder = [*STORY, Arm("warn", S, reminder=True), Fired("warn")]
    limit = [*STORY, Arm("warn", S), Fired("warn")]
    assert first_difference(lines(*STORY), lines(*reminder)) is None
    assert first_difference(lines(*STORY), lines(*limit)) == (
        'rank 0, timer warn, 0: nothing more against {"type":"Fired","timer":"warn"}'
    )


@pytest.mark.parametrize(
    "two",
    [
        STORY[:-1],
        (*STORY[:-1], Ended("cleanup.0", "it", 1, "Exited", 0)),
        (*STORY[:-1], Ended("cleanup.0", "it", 0, "Hangup", 0)),
        (STORY[1], STORY[0], *STORY[3:]),
        (*STORY[:3], Output("cleanup.0", "err", "hello"), *STORY[4:]),
        (*STORY[:5], Exited("cleanup.0", 1), STORY[6]),
    ],
)
def test_another_code_word_stream_or_order_is_a_difference_in_one_line(two):
    difference = first_difference(lines(*STORY), lines(*two))
    assert difference is not None
    assert "\n" not in difference
    assert " against " in difference


def test_the_same_lines_on_another_rank_are_another_story():
    assert first_difference(lines(*STORY), lines(*STORY, rank=1)) is not None
