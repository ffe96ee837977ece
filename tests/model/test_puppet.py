"""Puppets: declared processes as pure machines."""

from hypothesis import given
from hypothesis import strategies as st

from brokerctl.durations import S
from brokerctl.model.puppet import Hit, Part, Puppet, Reaction, Say
from brokerctl.worlds.puppets import FOREVER, PuppetSpec, Span, part

HUP, TERM, KILL = 1, 15, 9


def test_it_ends_by_itself_output_first():
    puppet = Puppet(Part(runs_ns=5, status=3 << 8), 100)
    assert puppet.due() == 105
    assert puppet.advance(104) == []
    assert puppet.advance(105) == ["output-ended", "exited"]
    assert puppet.status == 3 << 8
    assert puppet.due() is None


def test_one_that_runs_for_ever_waits_for_a_signal_and_dies_of_it():
    puppet = Puppet(Part(runs_ns=None), 0)
    assert puppet.due() is None
    assert puppet.signal(7, HUP, "group")
    assert puppet.advance(7) == ["output-ended", "exited"]
    assert puppet.status == HUP
    assert not puppet.signal(8, HUP, "group"), "nobody is there any more (ESRCH)"


def test_it_may_ignore_a_signal_but_not_kill():
    puppet = Puppet(Part(runs_ns=None, on={HUP: Reaction(ignore=True), KILL: Reaction(ignore=True)}), 0)
    assert puppet.signal(1, HUP, "group")
    assert puppet.advance(2) == []
    puppet.signal(3, KILL, "group")
    assert puppet.advance(3) == ["output-ended", "exited"]
    assert puppet.status == KILL


def test_it_may_need_time_to_end_but_never_more_than_it_would_have_run():
    part_ = Part(runs_ns=10, on={TERM: Reaction(after_ns=4, code=2)})
    puppet = Puppet(part_, 0)
    puppet.signal(1, TERM, "group")
    assert puppet.due() == 5
    puppet = Puppet(part_, 0)
    puppet.signal(8, TERM, "group")
    assert puppet.due() == 10
    assert puppet.advance(10) == ["output-ended", "exited"]
    assert puppet.status == 0


def test_a_leaf_outlives_it_and_holds_its_output():
    puppet = Puppet(Part(runs_ns=0, leaves=1, leaves_ns=50), 0)
    assert puppet.advance(0) == ["exited"]
    assert puppet.due() == 50
    assert puppet.advance(50) == ["output-ended"]


def test_a_detached_leaf_is_reached_only_by_a_signal_to_all():
    puppet = Puppet(Part(runs_ns=0, leaves=1, detached=True), 0)
    puppet.advance(0)
    assert not puppet.signal(1, HUP, "group")
    assert puppet.signal(2, HUP, "all")
    assert puppet.advance(2) == ["output-ended", "emptied"]


def test_emptied_is_told_once_after_a_signal_to_all():
    puppet = Puppet(Part(runs_ns=None), 0)
    puppet.signal(1, HUP, "all")
    assert puppet.advance(1) == ["output-ended", "exited", "emptied"]
    assert puppet.advance(2) == []


def test_an_uninterruptible_one_survives_kill_until_it_is_released():
    puppet = Puppet(Part(runs_ns=5, uninterruptible=True), 0)
    puppet.signal(1, KILL, "all")
    assert puppet.due() is None
    assert puppet.advance(100) == []
    puppet.release(200)
    assert puppet.advance(200) == ["output-ended", "exited", "emptied"]
    assert puppet.status == KILL


@given(st.integers(), st.text(max_size=5), st.integers(0, 50), st.integers(0, 5))
def test_a_seed_draws_the_same_and_within_the_span(seed, name, rank, nth):
    spec = PuppetSpec(
        name=name, command="x", runs={-1: Span(5, 10), 3: FOREVER}, statuses={-1: 0, 2: 1 << 8}, leaves_run=Span(1, 9)
    )
    drawn = part(spec, seed, rank, nth)
    assert drawn == part(spec, seed, rank, nth)
    assert (drawn.runs_ns is None) if rank == 3 else (5 <= drawn.runs_ns <= 10)
    assert drawn.status == (1 << 8 if rank == 2 else 0)


@given(st.data())
def test_whatever_is_sent_it_tells_each_end_at_most_once_and_in_order(data):
    spec = Part(
        runs_ns=data.draw(st.none() | st.integers(0, 20)),
        on={HUP: Reaction(ignore=True), TERM: Reaction(after_ns=data.draw(st.integers(0, 9)), code=1)},
        leaves=data.draw(st.integers(0, 2)),
        leaves_ns=data.draw(st.none() | st.integers(0, 30)),
        detached=data.draw(st.booleans()),
    )
    puppet, told, now = Puppet(spec, 0), [], 0
    for _ in range(data.draw(st.integers(0, 8))):
        now += data.draw(st.integers(0, 10))
        told += puppet.advance(now)
        puppet.signal(now, data.draw(st.sampled_from([HUP, TERM, KILL])), data.draw(st.sampled_from(["group", "all"])))
    puppet.signal(now, KILL, "all")
    told += puppet.advance(now)
    assert sorted(told) == ["emptied", "exited", "output-ended"]
    assert told[-1] == "emptied"


def test_it_is_over_when_nothing_of_it_is_left_and_all_is_told():
    puppet = Puppet(Part(runs_ns=0, leaves=1, leaves_ns=10), 0)
    puppet.advance(0)
    assert not puppet.is_over(), "a leaf still holds its output"
    puppet.advance(10)
    assert puppet.is_over()


def test_one_that_is_watched_is_over_only_when_it_is_told_empty():
    puppet = Puppet(Part(runs_ns=0), 0)
    puppet.advance(0)
    assert puppet.is_over()
    puppet.signal(1, KILL, "all")
    assert not puppet.is_over()
    assert puppet.advance(1) == ["emptied"]
    assert puppet.is_over()


def test_one_that_asks_ends_with_what_it_is_answered():
    puppet = Puppet(Part(runs_ns=5, asks=("queue-idle",)), 0)
    assert puppet.advance(5) == ["asked"]
    assert puppet.due() is None
    puppet.answer(9, 1 << 8)
    assert puppet.advance(9) == ["output-ended", "exited"]
    assert puppet.status == 1 << 8


def test_an_answer_that_comes_after_a_signal_changes_nothing():
    puppet = Puppet(Part(runs_ns=5, asks=("queue-idle",)), 0)
    puppet.advance(5)
    puppet.signal(6, HUP, "group")
    puppet.answer(9, 0)
    assert puppet.advance(9) == ["output-ended", "exited"]
    assert puppet.status == HUP


def test_one_that_ignores_a_signal_still_asks():
    puppet = Puppet(Part(runs_ns=5, asks=("queue-idle",), on={HUP: Reaction(ignore=True)}), 0)
    puppet.signal(1, HUP, "group")
    assert puppet.advance(5) == ["asked"]


def test_one_that_dies_before_it_asks_never_does():
    puppet = Puppet(Part(runs_ns=5, asks=("queue-idle",)), 0)
    puppet.signal(1, HUP, "group")
    assert puppet.advance(5) == ["output-ended", "exited"]


def test_an_uninterruptible_one_that_was_not_killed_goes_on_when_it_is_released():
    puppet = Puppet(Part(runs_ns=5, uninterruptible=True), 0)
    puppet.signal(1, TERM, "group")
    assert puppet.advance(6) == []
    puppet.release(7)
    assert puppet.advance(7) == ["output-ended", "exited"]
    assert puppet.status == 0


def test_a_kill_of_an_uninterruptible_one_is_not_forgotten_over_another_signal():
    puppet = Puppet(Part(runs_ns=None, leaves=1, uninterruptible=True), 0)
    puppet.signal(1, KILL, "all")
    puppet.signal(2, TERM, "all")
    puppet.release(3)
    assert puppet.advance(3) == ["output-ended", "exited", "emptied"]
    assert puppet.status == KILL


def test_a_puppet_says_and_hits_at_its_times_as_long_as_it_lives():
    part = Part(runs_ns=5 * S, says=(Say(0, "READY=1"), Say(3 * S, "X=1"), Say(9 * S, "late")), hits=(Hit(2 * S, 15),))
    puppet = Puppet(part, 10 * S)
    seen = []
    while puppet.due() is not None:
        now_ns = puppet.due()
        happened = puppet.advance(now_ns)
        seen.append((now_ns // S, happened, puppet.acts))
        puppet.acts = []
    assert seen == [
        (10, ["acted"], [Say(0, "READY=1")]),
        (12, ["acted"], [Hit(2 * S, 15)]),
        (13, ["acted"], [Say(3 * S, "X=1")]),
        (15, ["output-ended", "exited"], []),
    ]


def test_what_a_puppet_says_on_a_signal_it_says_before_it_ends():
    puppet = Puppet(Part(runs_ns=None, on={15: Reaction(code=3, notify=("STATUS=bye",))}), 0)
    puppet.signal(S, 15, "process")
    assert puppet.advance(S) == ["acted", "output-ended", "exited"]
    assert puppet.acts == [Say(0, "STATUS=bye")]


def test_a_signal_to_the_process_alone_spares_its_children_and_they_may_ignore_one():
    puppet = Puppet(Part(runs_ns=None, leaves=2, leaves_ignore=(15,)), 0)
    puppet.signal(0, 15, "process")
    puppet.advance(0)
    assert (puppet.lives(), puppet.leaves()) == (False, 2)
    puppet.signal_leaves(15)
    assert puppet.leaves() == 2
    puppet.signal_leaves(9)
    assert puppet.leaves() == 0


def test_one_is_asking_from_its_question_to_the_answer_and_not_before():
    puppet = Puppet(Part(runs_ns=5, asks=("queue-idle",)), 0)
    assert not puppet.is_asking()
    puppet.advance(5)
    assert puppet.is_asking()
    puppet.answer(9, 0)
    assert not puppet.is_asking()
    puppet.advance(9)
    assert not puppet.is_asking()


def test_one_that_asks_nothing_is_never_asking():
    puppet = Puppet(Part(runs_ns=None), 0)
    puppet.advance(5)
    assert not puppet.is_asking()


def test_one_that_was_killed_while_it_asked_is_not_asking_any_more():
    puppet = Puppet(Part(runs_ns=5, asks=("queue-idle",)), 0)
    puppet.advance(5)
    puppet.signal(6, KILL, "group")
    assert not puppet.is_asking()
    puppet.advance(6)
    assert not puppet.is_asking()


def test_what_is_said_on_two_signals_is_all_said():
    said = {HUP: Reaction(ignore=True, notify=("STATUS=1",)), TERM: Reaction(ignore=True, notify=("STATUS=2", "X=3"))}
    puppet = Puppet(Part(runs_ns=None, on=said), 0)
    puppet.signal(1, HUP, "process")
    puppet.signal(1, TERM, "process")
    assert puppet.advance(1) == ["acted"]
    assert [act.text for act in puppet.acts] == ["STATUS=1", "STATUS=2", "X=3"]


def test_a_released_one_that_was_killed_has_no_children_left():
    puppet = Puppet(Part(runs_ns=None, leaves=2, uninterruptible=True), 0)
    puppet.signal(1, KILL, "all")
    puppet.release(3)
    assert puppet.leaves() == 0
    assert puppet.due() == 3


def test_a_signal_to_the_group_reaches_the_children_that_do_not_ignore_it():
    for ignored, left in (((), 0), ((TERM,), 2)):
        puppet = Puppet(Part(runs_ns=None, leaves=2, leaves_ignore=ignored), 0)
        puppet.signal(1, TERM, "group")
        assert puppet.leaves() == left


def test_one_that_only_says_something_needs_nobody_to_hit():
    puppet = Puppet(Part(runs_ns=None, says=(Say(3, "READY=1"),)), 0)
    assert puppet.due() == 3
    assert puppet.advance(3) == ["acted"]


def test_one_that_only_hits_needs_nothing_to_say():
    puppet = Puppet(Part(runs_ns=None, hits=(Hit(3, TERM),)), 0)
    assert puppet.due() == 3
    assert puppet.advance(3) == ["acted"]
