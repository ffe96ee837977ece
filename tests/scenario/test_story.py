"""The story: each entry of a small instance; of a large one, equal entries as one with their ranks and times."""

from hypothesis import given
from hypothesis import strategies as st

from brokerctl.durations import MS, S
from brokerctl.ids import idset
from brokerctl.records import Ended, Line, Log, Moved
from brokerctl.scenario.story import EACH_MAX, Story

HOSTS = tuple(f"n{rank}" for rank in range(20))


def told(lines, hosts=HOSTS):
    """(first, last, ranks, text) of each entry."""
    shown = []
    story = Story(hosts, shown.append)
    for t_ns, rank, what in lines:
        story.see(Line(t_ns, rank, 0, ">", what))
    story.finish()
    assert list(story.told) == shown
    return [(one.t_ns, one.until_ns, one.ranks, one.entry.text) for one in shown]


def moved(held_ns=S):
    return Moved("shutdown", "run", "cleanup", held_ns)


def test_a_small_instance_tells_each_entry():
    lines = [(0, rank, moved()) for rank in range(3)]
    assert told(lines, HOSTS[:EACH_MAX]) == [(0, 0, "", "shutdown: run->cleanup 1s")] * 3


def test_equal_entries_of_a_large_one_are_told_once():
    lines = [(5 * S, 0, Log("broker", 6, "signal 15"))]
    lines += [(6 * S + rank * MS, rank, moved(S + rank)) for rank in range(1, 20)]
    assert told(lines) == [
        (0, 0, "0", "signal 15"),
        (S + MS, S + 19 * MS, "1-19", "shutdown: run->cleanup"),
    ]


def test_a_duration_is_told_where_it_is_everybodys():
    assert told([(0, rank, Ended("rc3.0", "rc3", 0, "Exited", S)) for rank in (3, 4, 9)]) == [
        (0, 0, "3-4,9", "rc3.0: rc3 Exited (rc=0) 1.0s")
    ]


def test_other_results_are_other_entries():
    lines = [(0, rank, Ended("rc3.0", "rc3", rank % 2, "Exited", S)) for rank in range(4)]
    assert [(ranks, text) for _, _, ranks, text in told(lines)] == [
        ("0,2", "rc3.0: rc3 Exited (rc=0) 1.0s"),
        ("1,3", "rc3.0: rc3 Exited (rc=1) 1.0s"),
    ]


def test_what_comes_later_is_told_apart():
    assert [one[:3] for one in told([(0, 1, moved()), (S, 2, moved()), (S, 3, moved())])] == [
        (0, 0, "1"),
        (S, S, "2-3"),
    ]


def test_a_story_is_told_while_it_happens():
    shown = []
    story = Story(HOSTS, shown.append)
    story.see(Line(0, 0, 0, ">", moved()))
    story.see(Line(S, 1, 0, ">", Log("broker", 6, "later")))
    assert [one.entry.text for one in shown] == ["shutdown: run->cleanup 1s"]


def test_debug_lines_are_not_told():
    assert told([(0, 1, Log("broker", 7, "debug"))]) == []


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 19), st.sampled_from(["a", "b", "c"])), max_size=60))
def test_every_entry_is_in_one_group_and_groups_come_in_their_order(entries):
    lines, t_ns = [], 0
    for gap_ms, rank, text in entries:
        t_ns += gap_ms * MS
        lines.append((t_ns, rank, Log("broker", 6, text)))
    groups = told(lines)
    assert [group[0] for group in groups] == sorted(group[0] for group in groups)
    for text in "abc":
        ranks = idset(rank for _, rank, what in lines if what.text == text)
        members = {
            int(rank)
            for _, _, group, of in groups
            if of == text
            for part in group.split(",")
            for rank in range(int(part.split("-")[0]), int(part.split("-")[-1]) + 1)
        }
        assert idset(members) == ranks
