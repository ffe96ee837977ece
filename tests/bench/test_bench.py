"""The benches measure what they say: the peer does the same work, figures and goals are told right."""

from collections import Counter

import pytest

from brokerctl.durations import HOUR
from brokerctl.worlds.sim.world import SimWorld
from tests.bench import __main__ as bench
from tests.bench import sizes
from tests.bench.measure import Row, percentile
from tests.bench.simpy_peer import queue_of


def told(name, fanout):
    lines = []
    with queue_of(name):
        outcome = SimWorld().run(sizes.story(300, fanout), lines.append, 24 * HOUR)
    return outcome, lines


@pytest.mark.parametrize("fanout", [2, 16])
def test_simpy_as_the_queue_gives_the_same_trace(fanout):
    outcome, lines = told("sim", fanout)
    assert len(lines) > 300 * 20
    assert told("simpy-queue", fanout) == (outcome, lines)


@pytest.mark.parametrize("fanout", [2, 16])
def test_simpy_with_processes_does_the_same_work_in_every_rank(fanout):
    # What happens at one time in several ranks has another order there: each mailbox is a step more.
    ours, theirs = told("sim", fanout), told("simpy", fanout)
    assert theirs[0] == ours[0]
    done = [Counter((line.rank, line.dir, type(line.what)) for line in lines) for _, lines in (ours, theirs)]
    assert done[0] == done[1]


def test_within_queue_of_simpy_it_is_simpy_that_counts_the_time(monkeypatch):
    simpy = pytest.importorskip("simpy")
    steps = []
    step = simpy.Environment.step
    monkeypatch.setattr(simpy.Environment, "step", lambda self: (steps.append(1), step(self))[1])
    for name, expected in (("sim", False), ("simpy-queue", True), ("simpy", True)):
        steps.clear()
        with queue_of(name):
            sizes.run(sizes.story(200, 2), sizes.Clock())
        assert bool(steps) is expected, name


def test_the_big_stop_freezes_one_rank_in_a_hundred_and_the_others_end():
    clock = sizes.Clock()
    outcome = sizes.run(sizes.story(1000, 16), clock)
    assert len(outcome.exits) == 990
    assert 0 in outcome.exits
    assert clock.stop_began > 0


def test_a_percentile_is_a_value_that_was_measured():
    values = list(range(1, 101))
    assert percentile(values, 99) == 99
    assert percentile(values, 50) == 50
    assert percentile([7.0], 99) == 7.0
    assert percentile(range(1, 1001), 99) == 990


def test_a_goal_that_is_missed_is_said_beside_the_figure():
    assert Row("x", "a stop", "late", 2.5, "ms", 3.0).shown() == ("late 2.50 ms", "late ≤ 3.00 ms")
    assert Row("x", "a stop", "late", 4.0, "ms", 3.0).shown() == ("late 4.00 ms (missed)", "late ≤ 3.00 ms")
    assert Row("x", "a stop", "fast", 1.2, "×", 1.5, at_least=True).shown() == ("fast 1.20× (missed)", "fast ≥ 1.50×")
    assert Row("x", "a stop", "", 12345.0, "a second").shown() == ("12,345 a second", "")


def test_figures_of_one_thing_stand_in_one_row():
    rows = [Row("x", "one", "a", 1.0, "s", 2.0), Row("x", "one", "b", 3.0, "MB"), Row("x", "two", "c", 4.0, "s")]
    assert bench.table(rows, "here").splitlines()[-2:] == [
        "| one | a 1.00 s, b 3.00 MB | a ≤ 2.00 s |",
        "| two | c 4.00 s |  |",
    ]


def test_update_puts_the_table_between_the_marks_and_nothing_else_changes(tmp_path, monkeypatch, capsys):
    page = tmp_path / "README.md"
    page.write_text("before\n<!-- bench -->\nold\n<!-- end bench -->\nafter\n")
    monkeypatch.setattr(bench, "ITEMS", {"size": lambda options: [Row("size", "it", "", options.stops, "ms")]})
    assert bench.main(["--quick", "--update", str(page)]) == 0
    text = page.read_text()
    assert text.startswith("before\n<!-- bench -->\nMeasured on: ")
    assert "| it | 20.0 ms |  |\n<!-- end bench -->\nafter\n" in text
    assert "old" not in text
    capsys.readouterr()


def test_a_page_without_marks_is_refused_before_anything_is_measured(tmp_path, monkeypatch, capsys):
    page = tmp_path / "README.md"
    page.write_text("nothing\n")
    monkeypatch.setattr(bench, "ITEMS", {"size": lambda _options: pytest.fail("was measured")})
    with pytest.raises(SystemExit):
        bench.main(["--update", str(page)])
    assert "<!-- bench -->" in capsys.readouterr().err
