"""What a stop tells of who holds it: processes that hold CLEANUP, ranks that hold SHUTDOWN."""

from __future__ import annotations

import pytest

from brokerctl.durations import MS, S
from brokerctl.ids import parse_idset
from brokerctl.records import Answered, KillHolder, Query
from brokerctl.records.stops import Holder, Holders, Holding, Peers, ShedRank, Sheds
from brokerctl.settings import StopSettings
from tests.model.stopper.telling import ERR, FLUX, HOLDING, WARNING, held, looks, statuses, told, words_of
from tests.stopping import HUP, KILL, TERM, Main, Stop

# ---- who holds CLEANUP


def test_each_rung_at_a_process_that_holds_cleanup_is_told_and_that_it_survived_them_once():
    stop = Stop(Main(holder=99, limits=FLUX)).run(until_ns=80 * S)
    held = "cleanup is over its timeout, and held by stubborn (pid 99): "
    assert told(stop) == [
        (ERR, f"{held}SIGHUP"),
        (ERR, f"{held}SIGTERM"),
        (ERR, f"{held}SIGKILL"),
        (WARNING, "stubborn (pid 99) still runs after SIGHUP, SIGTERM, SIGKILL"),
    ]
    assert statuses(stop)[-1] == "cleanup, over its time: Running cleanup"


def test_the_report_gets_what_was_signalled_and_the_last_line_says_which_bound_was_broken():
    stop = Stop(Main(holder=TERM, limits=FLUX)).run()
    words = words_of(stop, "after")
    assert [word for word in words if not word.startswith(("took=", "state."))] == [
        "ended=SIGHUP, SIGTERM to stubborn (pid 99)",
    ]
    broken = "cleanup outlived its timeout of 45s"
    assert told(stop)[-1] == (ERR, f"main has ended, but not within its bounds: {broken}")


def test_of_thousands_that_hold_cleanup_all_are_signalled_and_the_first_are_named():
    stop = Stop(Main(cleanup=70 * S, limits=FLUX))
    stop.answers["holders"] = lambda _: Holders(tuple(Holder(pid, pid, "make " + "x" * 200) for pid in range(1, 1000)))
    stop.run()
    assert {order.pid for order in stop.sent(KillHolder) if order.signum == KILL} == set(range(1, 1000))
    lines = [text for _, text in told(stop)]
    assert sum(text.endswith(" (pid 7): SIGKILL") for text in lines) == 1
    assert lines.count("more than 20 processes hold the cleanup: all are signalled, and no more named") == 1
    assert len(lines) < 90
    assert words_of(stop, "after")[-1] == "ended=979 more processes"
    assert sum(map(len, words_of(stop, "after"))) < 10_000, "it must fit into the pipe to the helper"


def test_a_holder_that_is_started_later_joins_the_rung_that_is_reached_and_one_without_words_is_a_process():
    stop = Stop(Main(cleanup=66 * S, limits=FLUX))
    born = {7: 0, 8: 51 * S, 9: 58 * S, 10: 64 * S}
    stop.answers["holders"] = lambda _: Holders(
        tuple(Holder(pid, pid, "late" if pid > 7 else "") for pid, at in born.items() if stop.now_ns > at)
    )
    stop.run(until_ns=65 * S)
    assert [text.rpartition("held by ")[2] for level, text in told(stop) if level == ERR] == [
        "a process (pid 7): SIGHUP", "late (pid 8): SIGHUP", "a process (pid 7): SIGTERM", "late (pid 8): SIGTERM",
        "a process (pid 7): SIGKILL", "late (pid 8): SIGKILL", "late (pid 9): SIGKILL", "late (pid 10): SIGKILL",
    ]  # fmt: skip


def test_where_the_holders_are_not_known_that_is_told_once_and_they_are_asked_for_again_every_second():
    stop = Stop(Main(cleanup=54 * S, limits=FLUX))
    stop.answers["holders"] = lambda _: "permission denied"
    stop.run()
    assert told(stop) == [(WARNING, "who holds the cleanup is not known: permission denied")]
    assert 4 <= len([query for query in stop.sent(Query) if query.what == "holders"]) <= 5


def test_on_a_guess_nobody_is_signalled_and_that_is_told():
    stop = Stop(Main(cleanup=52 * S, limits=FLUX))
    looks(stop, guessed=True)
    stop.run(until_ns=51 * S)
    assert told(stop)[1] == (WARNING, "who holds the cleanup is not known: main does not tell its state itself")


def test_a_cleanup_that_nobody_holds_is_told_once():
    stop = Stop(Main(cleanup=55 * S, limits=FLUX))
    stop.answers["holders"] = lambda _: Holders()
    stop.run()
    assert told(stop)[:-1] == [(WARNING, "cleanup is over its timeout, and no process is found that holds it")]
    assert len([query for query in stop.sent(Query) if query.what == "holders"]) >= 4


def test_holders_are_those_that_were_started_since_cleanup_began_with_the_clocks_tick_to_spare():
    stop = Stop(Main(holder=HUP, limits=FLUX)).run()
    began = next(at for at, state in stop.main.history if state == "cleanup")
    (since,) = words_of(stop, "holders")
    assert began - 100 * MS <= int(since) <= began


# ---- who holds SHUTDOWN


def test_who_is_shed_is_told_before_and_after_with_what_it_took_along():
    stop = held(Stop(Main(frozen=(1, 5), size=6, limits=FLUX))).run()
    assert told(stop) == [
        (ERR, "shutdown is held by picl1 (rank 1), degraded: it is shed, and its subtree with it (ranks 3-4)"),
        (ERR, "shutdown is held by rank 5: it is shed"),
        (ERR, "shed picl1 (rank 1), and its subtree with it (ranks 3-4); jobs cut off: f2 f3"),
        (ERR, "rank 5 can't be shed: not 1,5"),
        (ERR, "main has ended, but not within its bounds: picl1 (rank 1) was shed after 60s of shutdown"),
    ]
    assert "shed=1" in words_of(stop, "after")


def test_the_status_names_who_is_waited_for_and_how_long_till_it_is_shed():
    stop = held(Stop(Main(frozen=(1, 5), size=6, limits=FLUX)))
    stop.run(until_ns=20 * S)
    assert statuses(stop)[-1] == "shutdown, at most 45s more, 2 peers: picl[1,5]: Running shutdown"


def test_without_shedding_the_status_counts_mains_own_limit():
    stop = Stop(Main(frozen=(1,), size=2, limits=FLUX), StopSettings(shed_after_ns=None))
    stop.run(until_ns=20 * S)
    assert statuses(stop)[-1] == "shutdown, at most 4m45s more, 1 peers: Running shutdown"


def test_where_nobody_is_to_blame_that_is_told_once():
    stop = Stop(Main(frozen=(1,), size=2, limits=FLUX))
    stop.answers["peers"] = lambda _: Peers("1 peer: picl1")
    stop.run(until_ns=80 * S)
    assert told(stop) == [(WARNING, "shutdown: 1 peer: picl1, none of which is to blame by itself")]


@pytest.mark.parametrize("what", ["peers", "shed"])
def test_a_shedding_that_gets_no_answer_is_told_once_and_tried_again_after_5_seconds(what):
    stop = Stop(Main(frozen=(1,), size=2, limits=FLUX))
    stop.answers[what] = lambda _: "timed out"
    stop.run(until_ns=73 * S)
    lines = [line for line in told(stop) if line[0] == WARNING]
    assert lines == [(WARNING, "ranks that hold the stop can't be shed: timed out")]
    asked = [at for at, effect in stop.effects if isinstance(effect, Query) and effect.what == what and at > 60 * S]
    assert len(asked) >= 3


def many(stop: Stop, *, fails: tuple[int, ...] = ()) -> Stop:
    """All ranks but the leader hold SHUTDOWN; some can't be shed."""
    stop.answers["peers"] = lambda _: Peers(
        "many", tuple(Holding(rank, f"picl{rank}") for rank in sorted(stop.main.frozen))
    )

    def shed(query: Query) -> Sheds:
        ranks = parse_idset(query.words[0])
        stop.main.frozen -= set(ranks) - set(fails)
        stop.after(MS, stop.settle)
        return Sheds(tuple(ShedRank(rank, f"picl{rank}", error="no" if rank in fails else "") for rank in ranks))

    stop.answers["shed"] = shed
    return stop


def test_thousands_are_shed_some_at_a_time_and_told_in_a_few_lines():
    stop = many(Stop(Main(frozen=tuple(range(1, 5000)), size=5000, limits=FLUX))).run()
    asked = [parse_idset(query.words[0]) for query in stop.sent(Query) if query.what == "shed"]
    assert sorted(rank for ranks in asked for rank in ranks) == list(range(1, 5000))
    assert max(map(len, asked)) <= 64
    lines = [text for _, text in told(stop)]
    assert lines[0] == "shutdown is held by picl[1-4999] (4999 ranks: 1-4999): they are shed"
    assert lines[1] == "shed picl[1-64] (64 ranks: 1-64)"
    assert lines[-1] == "main has ended, but not within its bounds: more than 8 ranks were shed after 60s of shutdown"
    assert len(lines) < 90
    assert max(map(len, lines)) < 500
    assert words_of(stop, "after")[-1] == "shed=1-4999"


def test_ranks_that_can_not_be_shed_keep_no_other_from_its_turn_and_are_told_once():
    stop = many(Stop(Main(frozen=tuple(range(1, 200)), size=200)), fails=tuple(range(1, 100)))
    stop.run(until_ns=90 * S)
    assert stop.main.frozen == set(range(1, 100))
    errors = [text for _, text in told(stop) if "can't be shed" in text]
    assert errors == ["ranks 1-64 can't be shed: no", "ranks 65-99 can't be shed: no"]


def test_who_held_a_state_that_is_over_by_now_is_not_shed():
    stop = Stop(Main(frozen=(1,), size=2, limits=FLUX, finalize=30 * S))
    stop.answers["peers"] = lambda query: stop.after(3 * S, lambda: stop.give(Answered(query.query, HOLDING))) and None
    stop.at(63 * S, lambda: stop.enter("finalize", "shutdown"))
    stop.run()
    assert not [query for query in stop.sent(Query) if query.what == "shed"]
    assert (told(stop), stop.code) == ([], 0)


def test_a_rank_that_is_shed_while_main_goes_on_is_told_with_the_state_that_it_held():
    stop = Stop(Main(frozen=(1,), size=2, limits=FLUX, finalize=10 * S))

    def shed(query: Query) -> None:
        stop.main.frozen.clear()
        stop.after(MS, stop.settle)
        stop.after(3 * S, lambda: stop.give(Answered(query.query, Sheds((ShedRank(1, "picl1"),)))))

    stop.answers["shed"] = shed
    stop.run()
    assert told(stop)[-1] == (
        ERR, "main has ended, but not within its bounds: picl1 (rank 1) was shed after 60s of shutdown",
    )  # fmt: skip
