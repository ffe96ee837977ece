"""Another life of a rank: it knows nothing of the last one, and who had lost it has it back."""

import pytest

from brokerctl.durations import MINUTE, S
from brokerctl.model.puppet import Reaction
from brokerctl.records import Goodbye, Lost, Received, Send, Torpid
from tests.stage import Story


def three(**fields):
    """An instance of three; what is lost is noticed at once, if a test does not say otherwise."""
    return Story(3, **{"policy": "hardened", **fields})


# ---- of a follower


def test_a_rank_that_came_back_is_given_jobs_again():
    story = three().fault(1, "crash", 1).fault(2, "restart", 1)
    story.job(10, "all", story.puppet("task", 1), nodes=3).signal(20).run()
    assert story.events("all")[-1] == "clean"
    assert story.at("all", "alloc") == 10


def test_a_rank_that_came_back_is_not_missing_when_the_leader_ends():
    story = three(lost_exit_code=9).fault(1, "crash", 1).fault(2, "restart", 1).signal(20)
    story.run()
    assert story.outcome.exits == {0: 0, 1: 0, 2: 0}
    assert not any("stopped without" in text for text in story.log(0))


def test_a_rank_that_is_lost_for_a_second_time_is_lost():
    story = three().fault(1, "crash", 1).fault(2, "restart", 1).fault(5, "crash", 1)
    story.job(10, "all", story.puppet("task", 1), nodes=3).signal(20).run()
    assert story.events("all")[-1] == "priority", "no job is put on a lost node"
    assert story.log(0).count("broker.err[0]: dead to Flux: n1 (rank 1)") == 2
    assert story.log(0)[-1] == "broker.err[0]: stopped without n1 (rank 1)"


def test_ranks_further_down_that_came_back_are_known_to_the_leader():
    story = Story(7, policy="hardened").fault(1, "crash", 1).fault(3, "restart", 1)
    story.fault(4, "crash", 6).fault(5, "restart", 6)
    story.job(10, "six", story.puppet("task", 1), ranks=(1, 6)).signal(20).run()
    assert story.events("six")[-1] == "clean"
    assert story.log(0)[-1] == "broker.err[0]: stopped without n[3-4] (rank 3-4)", "they ended with their parent"


def test_a_rank_that_came_back_before_its_loss_was_noticed_has_lost_what_it_ran():
    story = Story(3, policy="flux")
    story.job(1, "all", story.puppet("task", 5), nodes=3).fault(2.1, "crash", 1).fault(2.2, "restart", 1)
    story.signal(20).run()
    assert "overlay.err[0]: n1 (rank 1) reconnected after crash, dropping old connection state" in story.log(0)
    assert dict(story.events("all", contexts=True))["exception"]["note"] == "node failure on n1 (rank 1)"
    assert story.events("all")[-1] == "clean"
    assert not any(isinstance(line.what, Lost) for line in story.lines)


def test_ranks_that_were_lost_are_not_told_as_online_with_others():
    """Between a loss and its line in the log other ranks come online: the scheduler is told of those alone."""
    story = three(quorum=2, online_batch_ns=0)
    story.fields["rc1"] = (story.puppet("rc1", {2: 4.05, -1: 0}),)
    task = story.puppet("task", 1)
    story.job(2, "first", task).job(10, "all", task, nodes=3).fault(4, "crash", 1).signal(20).run()
    assert story.entered(2, "quorum") == pytest.approx(4.05, abs=0.01)
    assert story.events("all")[-1] == "priority"


# ---- of the leader


def test_no_timer_of_a_life_fires_in_the_next_one():
    story = Story(1, policy="flux", cleanup_timeout_ns=45 * S)
    story.fields["cleanup"] = (story.puppet("hang", None, on={1: Reaction(ignore=True)}),)
    story.signal(1).fault(2, "crash", 0).fault(3, "restart", 0)
    assert story.run().kind == "stuck", "in RUN, where nobody stops it"
    assert story.moves(0)[-1] == "quorum-full: quorum->run"


def test_no_message_to_a_life_is_heard_in_the_next_one():
    story = Story(2, policy="flux").fault(1, "slow", 1, delay=5)
    story.signal(2, 1).fault(2.5, "crash", 0).fault(3, "restart", 0).signal(40)
    story.run()
    sent = [line for line in story.lines if line.rank == 1 and line.what == Send(0, Goodbye())]
    assert [line.t_ns // S for line in sent] == [2], "on its way when the leader is killed"
    assert not any(line.rank == 0 and line.what == Received(1, Goodbye()) for line in story.lines)


def test_a_life_is_judged_by_itself():
    """What was killed has kept no bound, ended no action and given back nothing; the next life can't help it."""
    story = Story(1, policy="hardened", cleanup_timeout_ns=4 * S)
    story.fields["cleanup"] = (story.puppet("bad", 0.1, rc=3), story.puppet("slow", 6, on={1: Reaction(ignore=True)}))
    task = story.puppet("task", 1)
    story.job(1, "one", task).signal(3).fault(8, "crash", 0)
    story.fault(200, "restart", 0).job(210, "two", task).signal(220)
    story.run()
    assert story.broken() == set()


# ---- silence


def frozen_twice(kind, undo, first, second, last):
    story = Story(2, policy="flux").fault(first, kind, 1).fault(first + 1, undo, 1)
    return story.fault(second, kind, 1).fault(last, undo, 1)


def test_silence_counts_from_the_last_freeze():
    story = frozen_twice("freeze", "thaw", 1, 29, 40).signal(50)
    story.run()
    assert [line for line in story.lines if isinstance(line.what, Torpid)] == []
    story = frozen_twice("freeze", "thaw", 1, 29, 70).signal(80)
    story.run()
    assert [line.t_ns for line in story.lines if isinstance(line.what, Torpid)] == [59 * S]


def test_a_freeze_of_a_frozen_rank_changes_nothing():
    story = Story(2, policy="flux").fault(1, "freeze", 1).fault(20, "freeze", 1).fault(70, "thaw", 1).signal(80)
    story.run()
    assert [line.t_ns for line in story.lines if isinstance(line.what, Torpid)] == [31 * S]


def test_a_link_that_was_healed_is_given_its_whole_time_again():
    five_min = 5 * MINUTE // S
    story = frozen_twice("half-open", "heal", 1, five_min - 10, five_min + 60).signal(five_min + 70)
    story.run()
    assert [line for line in story.lines if isinstance(line.what, Lost)] == []
    assert story.outcome.exits == {0: 0, 1: 0}
