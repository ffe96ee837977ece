"""CLEANUP's holders, shedding, and what saves state: what the wrapper does when main takes too long."""

from __future__ import annotations

from itertools import pairwise

import pytest

from brokerctl.durations import MINUTE, MS, S
from brokerctl.model.stopper.holders import HoldersOfCleanup
from brokerctl.records import KillHolder, Notify, Query
from brokerctl.records.stops import Holders, Holding, Limits, Look, Peers, ShedRank, Sheds
from brokerctl.settings import StopSettings
from tests.model.stopper.test_decisions import as_dict, signals
from tests.stopping import HUP, KILL, TERM, Main, Stop

FLUX = Limits(cleanup_timeout_ns=45 * S, shutdown_timeout_ns=5 * MINUTE)

# ---- who holds CLEANUP


def test_the_ladder_goes_to_the_holders_of_cleanup_five_seconds_after_its_timeout_and_never_to_the_broker():
    stop = Stop(Main(holder=KILL)).run()
    assert stop.main.killed == [HUP, TERM, KILL]
    first = next(at for at, effect in stop.effects if isinstance(effect, KillHolder))
    assert 50 * S <= first <= 51 * S
    assert (len(stop.terms()), stop.main.cut, stop.code) == (1, False, 3)


def test_a_cleanup_within_its_timeout_is_left_alone():
    stop = Stop(Main(cleanup=45 * S)).run()
    assert (stop.main.killed, stop.code) == ([], 0)


def test_a_requested_cleanup_that_is_joined_gets_its_timeout_from_the_moment_of_the_stop():
    stop = Stop(Main("cleanup", holder=HUP))
    stop.now_ns = 600 * S
    stop.main.since = 0
    stop.run()
    first = next(at for at, effect in stop.effects if isinstance(effect, KillHolder))
    assert 650 * S <= first <= 651 * S
    assert (signals(stop), stop.main.cut) == ([], False)


def test_a_broker_with_a_bound_of_its_own_gets_the_time_that_it_promises():
    """Its own ladder, and what is essential, come after its timeout."""
    stop = Stop(Main(cleanup=70 * S))
    stop.answers["look"] = lambda _: Look(**{**as_dict(stop.look()), "left_ns": max(0, 75 * S - stop.now_ns)})
    stop.run()
    assert (stop.main.killed, stop.code) == ([], 0)


def test_without_any_cleanup_timeout_nobody_is_killed():
    stop = Stop(Main(cleanup=10 * MINUTE, limits=Limits())).run()
    assert (stop.main.killed, stop.code) == ([], 0)


def test_limits_that_are_learned_only_later_hold_from_the_beginning_of_the_state():
    stop = Stop(Main(holder=HUP, limits=FLUX))
    stop.answers["look"] = lambda _: Look(**{**as_dict(stop.look()), "limits": FLUX if stop.now_ns > 20 * S else None})
    stop.run()
    first = next(at for at, effect in stop.effects if isinstance(effect, KillHolder))
    assert 50 * S <= first <= 51 * S


def test_a_limit_of_the_configuration_stands_in_for_one_that_main_does_not_have():
    stop = Stop(Main(holder=HUP, limits=Limits()), StopSettings(cleanup_timeout_ns=10 * S)).run()
    assert stop.main.killed == [HUP]


def test_on_a_state_that_is_only_guessed_nobody_is_killed():
    stop = Stop(Main(cleanup=100 * S))
    stop.answers["look"] = lambda _: Look(**{**as_dict(stop.look()), "guessed": True})
    stop.run()
    assert stop.main.killed == []


def listed_since(stop: Stop) -> int:
    return next(int(query.words[0]) for query in stop.sent(Query) if query.what == "holders")


def test_what_was_there_before_the_sigterm_is_not_listed_however_coarse_mains_own_time_is():
    stop = Stop(Main(holder=HUP))
    stop.main.since = stop.now_ns = 600 * S
    coarse = {"held_ns": 30 * S}
    stop.answers["look"] = lambda _: (
        stop.look() if stop.main.state == "run" else Look(**{**as_dict(stop.look()), **coarse})
    )
    stop.run()
    assert 0 <= stop.terms()[0] - listed_since(stop) < 500 * MS


@pytest.mark.parametrize("wrong", [{"state": "quorum"}, {"guessed": True}])
def test_of_a_main_that_was_not_seen_in_run_its_own_time_counts(wrong):
    stop = Stop(Main(holder=HUP))
    stop.main.since = stop.now_ns = 600 * S
    stop.answers["look"] = lambda _: (
        Look(**{**as_dict(stop.look()), **wrong})
        if stop.main.state == "run"
        else Look(**{**as_dict(stop.look()), "held_ns": stop.now_ns - stop.main.since + 3 * S})
    )
    stop.run()
    assert 3 * S <= stop.terms()[0] - listed_since(stop) < 4 * S


DEADLINES = [50 * S, 52 * S, 57 * S]  # of the first, the second and the third rung


@pytest.mark.parametrize("deadline_ns", DEADLINES)
@pytest.mark.parametrize("off_ns", range(-500 * MS, 501 * MS, 30 * MS))
def test_however_close_the_end_of_cleanup_is_rc3_is_never_cut(deadline_ns, off_ns):
    stop = Stop(Main(cleanup=deadline_ns + off_ns, finalize=10 * S)).run()
    assert not stop.main.cut
    assert len(stop.terms()) == 1


def test_the_sweep_sees_a_wrapper_that_looks_before_it_lists(monkeypatch):
    """The guard, inverted: then some of those stops are cut."""

    def looks_first(self):
        stopper = self._stopper
        stopper.questions.ask("look", Look, 2 * S, lambda look: lists(self, look), self._failed)

    def lists(self, look):
        self._stopper.questions.ask(
            "holders", Holders, 2 * S, lambda found: self._looked(found, look), self._failed, ("0",)
        )

    monkeypatch.setattr(HoldersOfCleanup, "_due", looks_first)
    cut = [
        Stop(Main(cleanup=deadline_ns + off_ns, finalize=10 * S)).run().main.cut
        for deadline_ns in DEADLINES
        for off_ns in range(-500 * MS, 501 * MS, 5 * MS)
    ]
    assert any(cut)


# ---- shedding


def test_a_frozen_rank_is_shed_after_60_seconds_of_shutdown_and_the_state_is_saved():
    stop = Stop(Main(frozen=(3,), size=4, limits=FLUX)).run()
    assert 60 * S < next(at for at, state in stop.main.history if state == "finalize") < 63 * S
    assert (stop.code, stop.main.cut, len(stop.terms())) == (3, False, 1)
    assert any("picl3 (rank 3)" in text for text in stop.logged())


@pytest.mark.parametrize(("limit_ns", "shed_ns"), [(30 * S, 27 * S), (5 * S, 4 * S), (5 * MINUTE, 60 * S)])
def test_ranks_are_always_shed_before_shutdown_timeout(limit_ns, shed_ns):
    stop = Stop(Main(frozen=(1,), size=2, limits=Limits(45 * S, limit_ns))).run()
    began = next(at for at, state in stop.main.history if state == "shutdown")
    shed = next(at for at, effect in stop.effects if isinstance(effect, Query) and effect.what == "shed")
    assert shed_ns <= shed - began <= shed_ns + 100 * MS
    assert shed - began < limit_ns


def test_shedding_can_be_turned_off_and_then_shutdown_timeout_ends_the_wait():
    stop = Stop(Main(frozen=(1,), size=2, limits=FLUX), StopSettings(shed_after_ns=None)).run()
    assert stop.code == 0
    assert not any(query.what == "shed" for query in stop.sent(Query))


def test_cleanup_is_not_shed_unless_it_is_asked_for():
    for after_ns, asked in ((None, False), (20 * S, True)):
        stop = Stop(Main(cleanup=40 * S, frozen=(1,), size=2), StopSettings(shed_in_cleanup_after_ns=after_ns))
        stop.run(until_ns=41 * S)
        assert any(query.what == "shed" for query in stop.sent(Query)) is asked


def test_what_was_behind_a_shed_rank_is_looked_for_again():
    stop = Stop(Main(frozen=(1, 2), size=4, limits=FLUX))
    left = [1, 2]
    stop.answers["peers"] = lambda _: Peers("2 peers", (Holding(left[0]),) if left else ())

    def shed(query):
        rank = int(query.words[0])
        left.remove(rank)
        stop.main.frozen.discard(rank)
        stop.after(MS, stop.settle)
        return Sheds((ShedRank(rank, severed="5-6", jobs=("f2",)),))

    stop.answers["shed"] = shed
    stop.run()
    assert stop.stopper.shedding.ranks == {1, 2}
    assert any("its subtree with it (ranks 5-6); jobs cut off: f2" in text for text in stop.logged())


def test_rank_0_is_never_shed():
    stop = Stop(Main(frozen=(1,), size=2, limits=FLUX))
    stop.answers["peers"] = lambda _: Peers("1 peer", (Holding(0),))
    stop.run()
    assert not any(query.what == "shed" for query in stop.sent(Query))


def test_a_rank_that_can_not_be_shed_is_told_and_tried_again():
    stop = Stop(Main(frozen=(1,), size=2, limits=FLUX))
    stop.answers["shed"] = lambda _: Sheds((ShedRank(1, error="Operation not permitted"),))
    stop.run()
    tries = [query for query in stop.sent(Query) if query.what == "shed"]
    assert len(tries) > 3
    assert stop.code == 0  # shutdown-timeout ended it; nobody was shed


# ---- what saves state


def extensions(stop: Stop) -> list[tuple[int, int]]:
    return [(at, int(text)) for at, text in stop.notified("EXTEND_TIMEOUT_USEC")]


def test_finalize_is_extended_while_it_makes_progress_and_told_again_within_half_of_any_timeout():
    stop = Stop(Main(finalize=10 * MINUTE), StopSettings(timeout_stop_ns=20 * S)).run()
    times = [at for at, _ in extensions(stop)]
    assert max(later - earlier for earlier, later in pairwise(times)) < 10 * S
    assert all(usec > 0 for _, usec in extensions(stop))
    end = next(at for at, state in stop.main.history if state == "goodbye")
    assert all(at + usec * 1000 > min(end, at + 10 * S) for at, usec in extensions(stop))
    assert stop.code == 0


def test_nothing_but_finalize_is_extended():
    stop = Stop(Main(cleanup=40 * S, frozen=(1,), size=2, limits=FLUX)).run()
    began = next(at for at, state in stop.main.history if state == "finalize")
    assert all(at >= began for at, _ in extensions(stop))


def test_a_stalled_finalize_is_named_and_extended_no_further_than_its_patience_and_nothing_is_sent():
    stop = Stop(Main(finalize=20 * MINUTE, writes=False)).run(until_ns=15 * MINUTE)
    began = next(at for at, state in stop.main.history if state == "finalize")
    assert max(at + usec * 1000 for at, usec in extensions(stop)) <= began + 5 * MINUTE + 2 * S
    assert sum("no progress for" in text for text in stop.logged()) == 5  # 30 s, 1, 2, 4 and 8 minutes
    assert len(stop.terms()) == 1
    assert not stop.main.killed


def test_after_an_extended_finalize_the_rest_of_the_stop_gets_its_time():
    stop = Stop(Main(finalize=2 * S))
    stop.main.lasts["goodbye"] = 10 * S
    stop.run()
    assert extensions(stop)[-1][0] > next(at for at, state in stop.main.history if state == "goodbye")


# ---- what is told


def test_status_quotes_mains_own_status_and_comes_on_change_only():
    stop = Stop(Main(cleanup=20 * S)).run()
    told = [text for _, text in stop.notified("STATUS")]
    assert all(text.startswith("brokerctl stop: ") for text in told)
    assert any("cleanup, at most" in text and text.endswith("Running cleanup") for text in told)
    assert all(first != second for first, second in pairwise(told))


def test_status_names_who_is_waited_for():
    stop = Stop(Main(frozen=(1,), size=2, limits=FLUX))
    stop.answers["peers"] = lambda _: Peers("3 peers: picl[4,7-8]")
    stop.run(until_ns=30 * S)
    assert "3 peers: picl[4,7-8]" in stop.notified("STATUS")[-1][1]


def test_mains_status_is_remembered_where_ours_hides_it():
    stop = Stop(Main(cleanup=20 * S))
    stop.answers["look"] = lambda _: Look(**{**as_dict(stop.look()), "text": "Running it" if stop.now_ns < S else ""})
    stop.run(until_ns=10 * S)
    assert stop.notified("STATUS")[-1][1].endswith(": Running it")


def test_every_message_fits_what_the_manager_takes():
    stop = Stop(Main(finalize=10 * MINUTE)).run()
    for message in stop.sent(Notify):
        assert "\n" not in message.text
        assert not message.text.startswith("EXTEND_TIMEOUT_USEC=") or message.text.partition("=")[2].isdecimal()
