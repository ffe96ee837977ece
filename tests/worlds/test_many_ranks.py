"""Trees of brokers in virtual time: FLUX.md 4–8, 10–12, H, and what hardened does instead."""

import pytest

from brokerctl.durations import S
from brokerctl.records import Exec, Line, Lost, Notify, Received, Send, Unreachable
from tests.stage import Story


def clean(size=7, **more):
    story = Story(size, **more)
    story.fields |= {"rc1": (story.puppet("rc1", 0.2),), "rc3": (story.puppet("rc3", 0.3),)}
    return story


def test_a_clean_stop_goes_from_the_leaves_to_the_root_and_siblings_run_rc3_together():
    story = clean()
    assert story.signal(5).run().kind == "ended"
    assert set(story.outcome.exits.values()) == {0}
    for rank in range(1, 7):
        parent = (rank - 1) // 2
        assert story.entered(rank, "goodbye") <= story.entered(parent, "finalize")
    assert story.entered(1, "finalize") == pytest.approx(story.entered(2, "finalize"), abs=0.01)
    assert story.moves(3) == [
        "builtins-success: load-builtins->join",
        "parent-ready: join->config-sync",
        "sync-success: config-sync->init",
        "rc1-success: init->quorum",
        "quorum-full: quorum->run",
        "shutdown: run->cleanup",
        "cleanup-none: cleanup->shutdown",
        "children-none: shutdown->finalize",
        "rc3-success: finalize->goodbye",
        "goodbye: goodbye->unload-builtins",
        "builtins-done: unload-builtins->exit",
    ]
    assert story.broken() == set()


def test_messages_go_to_neighbours_and_every_one_that_is_received_was_sent():
    story = clean()
    story.signal(5).run()
    sent = [(line.rank, line.what.neighbour, line.what.message) for line in story.lines if isinstance(line.what, Send)]
    got = [(line.what.peer, line.rank, line.what.message) for line in story.lines if isinstance(line.what, Received)]
    parents = story.topology.parents
    assert all(parents[a] == b or parents[b] == a for a, b, _ in sent)
    assert len(got) == len(sent)
    assert set(map(repr, got)) == set(map(repr, sent))


def test_each_broker_has_a_code_of_its_own():
    story = Story(3)
    story.fields["rc3"] = (story.puppet("rc3", 0.1, rc={1: 7, -1: 0}),)
    story.signal(5).run()
    assert story.outcome.exits == {0: 0, 1: 7, 2: 0}


# ---- losses


def test_a_lost_leaf_is_named_and_then_dead_to_flux():
    story = clean(3)
    story.fault(3, "crash", 2).signal(8).run()
    assert story.log(0) == ["overlay.err[0]: n2 (rank 2) failed", "broker.err[0]: dead to Flux: n2 (rank 2)"]
    assert story.outcome.exits == {0: 0, 1: 0}


def test_a_lost_router_severs_its_subtree_whose_leaves_notice_after_their_heartbeat_timeout():
    story = clean(7)
    story.fault(3, "crash", 1).signal(8).run()
    assert story.log(0) == [
        "overlay.err[0]: n1 (rank 1) failed and severed contact with 2 other nodes",
        "broker.err[0]: dead to Flux: n[1,3-4] (rank 1,3-4)",
    ]
    assert story.entered(0, "exit") < 10
    assert story.outcome.exits == {0: 0, 2: 0, 5: 0, 6: 0, 3: 1, 4: 1}
    assert story.log(3)[0] == "overlay.crit[3]: disconnecting: no heartbeat for 5m"
    assert story.entered(3, "cleanup") == pytest.approx(303, abs=2)


def test_a_loss_deep_in_the_tree_is_logged_by_the_parent_and_counted_by_the_leader():
    story = clean(7)
    story.fault(3, "crash", 5).signal(8).run()
    assert story.log(2) == ["overlay.err[2]: n5 (rank 5) failed"]
    assert story.log(0) == ["broker.err[0]: dead to Flux: n5 (rank 5)"]


def test_an_orphan_that_is_stopped_waits_sixty_seconds_in_goodbye_deaf_to_signals():
    story = clean(3)
    story.fault(3, "crash", 0).signal(6, 1).signal(6, 2).signal(14, 2).run()
    assert "broker.info[2]: ignored signal 15 in goodbye" in story.log(2, level=6)
    assert story.log(1) == ["broker.err[1]: goodbye timeout after 60.0s"]
    assert story.outcome.exits == {1: 0, 2: 0}


def test_hardened_an_orphan_notices_at_once_and_does_not_wait_for_a_goodbye():
    story = clean(3, policy="hardened")
    story.fault(3, "crash", 0).run()
    assert story.outcome.exits == {1: 1, 2: 1}
    assert story.outcome.t_ns < 4 * S
    assert story.log(1)[0] == "overlay.crit[1]: disconnecting: connection lost"
    assert "overlay.err[1]: error sending overlay.goodbye: No route to host" in story.log(1)


def test_a_disconnected_leaf_ends_with_1_and_its_parent_says_so():
    story = clean(3)
    story.ask(3, "disconnect", "2").signal(6).run()
    assert story.log(0)[:1] == ["overlay.err[0]: n2 (rank 2) disconnected by request"]
    assert "overlay.crit[2]: n0 (rank 0) sent disconnect control message" in story.log(2)
    assert "parent-fail: run->cleanup" in story.moves(2)
    assert story.outcome.exits == {0: 0, 1: 0, 2: 1}


def test_a_request_to_disconnect_is_handed_down_to_the_parent_of_the_rank():
    story = clean(7)
    story.ask(3, "disconnect", "5").signal(6).run()
    assert story.log(2)[0] == "overlay.err[2]: n5 (rank 5) disconnected by request"
    assert story.outcome.exits[5] == 1


def test_a_restarted_leader_disconnects_the_children_of_its_earlier_life():
    story = clean(7)
    story.fault(3, "crash", 0).fault(6, "restart", 0).signal(14).run()
    for rank in (1, 2):
        assert "parent-fail: run->cleanup" in story.moves(rank)
        assert story.outcome.exits[rank] == 1
    for rank in (3, 4, 5, 6):
        assert "shutdown: run->cleanup" in story.moves(rank)
        assert story.outcome.exits[rank] == 0
    assert story.moves(0)[-5:-4] == ["quorum-fail: quorum->shutdown"]


def test_a_leaf_that_is_stopped_alone_leaves_cleanly_and_is_dead_to_flux():
    story = clean(3)
    story.signal(3, 2).signal(6).run()
    assert story.log(0) == ["broker.err[0]: dead to Flux: n2 (rank 2)"]
    assert story.outcome.exits == {0: 0, 1: 0, 2: 0}


def test_a_leaf_whose_rc1_failed_ends_with_its_code_and_the_leader_waits_in_quorum():
    story = Story(2, quorum_warn_ns=2 * S)
    story.fields["rc1"] = (story.puppet("rc1", 0.1, rc={1: 3, -1: 0}),)
    story.signal(7).run()
    assert story.outcome.exits == {0: 0, 1: 3}
    assert story.log(0)[:2] == ["broker.err[0]: quorum delayed: waiting for n1 (rank 1)"] * 2


# ---- stuck ranks


def test_flux_a_frozen_leaf_holds_the_stop_for_ever_and_is_named():
    story = clean(2, shutdown_warn_ns=1 * S)
    story.fault(3, "freeze", 1).signal(4).run()
    assert story.outcome.kind == "stuck"
    assert story.moves(0)[-1] == "cleanup-none: cleanup->shutdown"


def test_flux_the_shutdown_timeout_goes_on_without_it_with_exit_0():
    story = clean(2, shutdown_timeout_ns=3 * S, shutdown_warn_ns=1 * S)
    story.fault(3, "freeze", 1).signal(4).fault(20, "thaw", 1).run()
    assert story.log(0) == ["broker.err[0]: shutdown delayed: waiting for 1 peers: n1 (rank 1)"] * 2 + [
        "broker.err[0]: shutdown timeout"
    ]
    assert story.entered(0, "finalize") == pytest.approx(7, abs=0.01)
    assert story.outcome.exits == {0: 0, 1: 0}
    assert story.log(1) == ["broker.err[1]: goodbye timeout after 60.0s"]


def test_a_frozen_rank_keeps_its_events_until_the_thaw():
    story = clean(2)
    story.fault(3, "freeze", 1).signal(4).fault(9, "thaw", 1).run()
    assert story.outcome.exits == {0: 0, 1: 0}
    assert story.entered(1, "cleanup") == pytest.approx(9, abs=0.01)


def test_a_frozen_leaf_in_run_is_named_when_it_is_torpid_and_again_when_it_answers():
    story = clean(2)
    story.fault(3, "freeze", 1).fault(63, "thaw", 1).signal(70).run()
    assert story.log(0) == [
        "overlay.err[0]: broker on n1 (rank 1) has been unresponsive for 30s",
        "overlay.err[0]: broker on n1 (rank 1) is responsive now",
    ]
    assert story.outcome.exits == {0: 0, 1: 0}


def test_hardened_a_parent_sheds_the_child_that_holds_it_and_goes_on():
    story = clean(7, policy="hardened", finalize_timeout_ns=20 * S)
    story.fault(3, "freeze", 1).signal(4).run()
    assert "overlay.err[0]: n1 (rank 1) is shed: it holds the shutdown and severed contact with 2 other nodes" in (
        story.log(0)
    )
    assert story.log(0)[-1] == "broker.err[0]: stopped without n[1,3-4] (rank 1,3-4)"
    assert story.outcome.exits[0] == 0
    assert story.broken() <= {"bounds-held"}, "the frozen rank itself keeps no bound"


def test_hardened_a_router_sheds_its_own_leaf_first_and_the_leader_sheds_nobody():
    story = clean(7, policy="hardened", finalize_timeout_ns=20 * S)
    story.fault(3, "freeze", 5).signal(4).run()
    assert "overlay.err[2]: n5 (rank 5) is shed: it holds the shutdown" in story.log(2)
    assert not any("is shed" in text for text in story.log(0))
    assert story.log(0)[-1] == "broker.err[0]: stopped without n5 (rank 5)"
    assert story.entered(2, "goodbye") <= story.entered(0, "finalize"), "leaves to root, all the same"


def test_lost_ranks_count_in_the_exit_code_only_if_that_is_wanted():
    story = clean(2, policy="hardened", lost_exit_code=9)
    story.fault(3, "crash", 1).signal(4).run()
    assert story.outcome.exits == {0: 9}


def test_flux_waits_for_a_follower_in_rc1_and_hardened_aborts_it():
    for policy, code in (("flux", 0), ("hardened", 129)):
        story = Story(2, policy=policy)
        story.fields["rc1"] = (story.puppet("rc1", {0: 0.1, -1: 50}),)
        story.signal(5).run()
        waited = story.entered(0, "exit") - story.entered(0, "shutdown")
        assert (waited > 40) == (policy == "flux")
        assert story.outcome.exits == {0: 0, 1: code}


def test_a_half_open_link_is_noticed_by_the_child_and_shed_by_the_parent():
    story = clean(3, policy="hardened", finalize_timeout_ns=20 * S, heartbeat_timeout_ns=300 * S)
    story.fault(3, "half-open", 2).signal(400).run()
    assert story.log(2)[0] == "overlay.crit[2]: disconnecting: no heartbeat for 5m"
    assert story.outcome.exits[2] == 1
    assert [line.rank for line in story.lines if isinstance(line.what, Lost)] == [2]
    assert story.outcome.exits[0] == 0


def test_a_cut_link_is_noticed_by_both_ends():
    story = clean(3, policy="hardened")
    story.fault(3, "cut", 2).signal(5).run()
    assert {line.rank for line in story.lines if isinstance(line.what, Lost)} == {0, 2}
    assert story.outcome.exits == {0: 0, 1: 0, 2: 1}


def test_a_slow_link_changes_times_and_nothing_else():
    story, slow = clean(3), clean(3)
    story.signal(5).run()
    slow.fault(0, "slow", 2, delay=0.5).signal(5).run()
    assert slow.outcome.t_ns > story.outcome.t_ns
    assert [slow.moves(rank) for rank in range(3)] == [story.moves(rank) for rank in range(3)]


# ---- actions on other ranks


def remote(size=7, policy="hardened", ranks="all", **more):
    story = clean(size, policy=policy)
    action = story.puppet("sweep", more.pop("runs", 0.5), rc=more.pop("rc", 0), **more)
    story.fields["cleanup"] = (type(action)(action.command, ranks=ranks), story.puppet("next", 0.1))
    return story


def outcome_of(story):
    return next(text for text in story.log(0, level=6) if "]: cleanup.0: sweep" in text)


def test_an_action_runs_on_all_ranks_and_its_outcome_is_one_line():
    story = remote()
    story.signal(5).run()
    ran = {
        line.rank for line in story.lines if type(line.what).__name__ == "Start" and "sweep" in line.what.command.text
    }
    assert ran == set(range(7))
    assert outcome_of(story) == "broker.info[0]: cleanup.0: sweep Exited (rc=0) 0.5s"
    assert story.outcome.exits[0] == 0


def test_results_are_grouped_by_rank_and_the_largest_code_counts():
    story = remote(rc={1: 3, 4: 3, 6: 5, -1: 0})
    story.signal(5).run()
    assert story.log(0)[:2] == [
        "broker.err[0]: cleanup.0: n[1,4] (rank 1,4): Exited (rc=3)",
        "broker.err[0]: cleanup.0: n6 (rank 6): Exited (rc=5)",
    ]
    assert story.outcome.exits[0] == 5


def test_only_the_ranks_that_are_meant_run_it():
    story = remote(ranks="2,5-6")
    story.signal(5).run()
    ran = {
        line.rank for line in story.lines if type(line.what).__name__ == "Start" and "sweep" in line.what.command.text
    }
    assert ran == {2, 5, 6}
    assert all(line.what.neighbour not in {1, 3, 4} for line in story.lines
               if isinstance(line.what, Send) and isinstance(line.what.message, Exec))  # fmt: skip


def test_a_lost_rank_fails_at_once_with_its_host_and_its_whole_subtree():
    story = remote(runs=30)
    story.fault(6, "crash", 1).signal(5).run()
    assert [line.what for line in story.lines if isinstance(line.what, Unreachable)] == [
        Unreachable(1, "cleanup.0 on n[1,3-4] (rank 1,3-4)")
    ]
    assert "broker.err[0]: cleanup.0: n[1,3-4] (rank 1,3-4): No route to host (rc=68)" in story.log(0)
    assert story.outcome.exits[0] == 68


def test_a_rank_that_was_lost_before_fails_at_once_too():
    story = remote(3)
    story.fault(3, "crash", 2).signal(5).run()
    assert "broker.err[0]: cleanup.0: n2 (rank 2): No route to host (rc=68)" in story.log(0)


def test_a_stuck_rank_costs_at_most_the_budget_and_is_named():
    story = remote(7)
    story.fields["cleanup_timeout_ns"] = 10 * S
    story.fields["finalize_timeout_ns"] = 20 * S
    story.fault(3, "freeze", 5).signal(4).run()
    assert "broker.err[0]: cleanup.0: n5 (rank 5): no answer (rc=137)" in story.log(0)
    assert story.entered(0, "shutdown") <= 4 + 10 + 12 + 2.1
    assert "cleanup.1" not in " ".join(story.log(0, level=6)), "what comes after an abort does not run"
    assert story.outcome.exits[0] == 137


def test_the_ladder_climbs_on_the_rank_itself():
    story = remote(3, runs={1: None, -1: 0.1})
    story.fields["cleanup_timeout_ns"] = 2 * S
    story.signal(4).run()
    assert "broker.err[0]: cleanup.0: n1 (rank 1): Hangup (rc=129)" in story.log(0)
    assert story.outcome.exits[0] == 129


def test_remote_processes_end_by_the_ladder_when_the_leader_is_gone():
    story = remote(3, runs=None)
    story.fault(6, "crash", 0).signal(5).run()
    for rank in (1, 2):
        assert f"broker.err[{rank}]: rexec.cleanup.0: sweep Hangup (rc=129) 1.0s" in story.log(rank)
    assert story.outcome.exits == {1: 1, 2: 1}


def test_lines_are_numbered_without_gaps_whatever_the_reader_wants():
    story = clean(3)
    story.signal(5).run()
    numbers: dict[int, int] = {}
    for line in story.lines:
        assert isinstance(line, Line)
        assert line.n == numbers.get(line.rank, 0)
        numbers[line.rank] = line.n + 1


# ---- a parent that is lost before the start is over


def test_a_follower_whose_parent_is_lost_before_it_answered_fails_its_config_sync_at_once():
    story = Story(2, policy="hardened", heartbeat_timeout_ns=3 * S)
    story.fault(0.00025, "freeze", 0).run(horizon=30)
    assert "parent-ready: join->config-sync" in story.moves(1)
    assert "sync-fail: config-sync->shutdown" in story.moves(1)
    assert story.outcome.exits == {1: 1}
    assert story.entered(1, "exit") < 5


def test_a_follower_whose_parent_is_lost_in_rc1_never_waits_for_a_quorum():
    story = Story(2, policy="flux", heartbeat_timeout_ns=1 * S)
    story.fields["rc1"] = (story.puppet("rc1", {0: 0.1, -1: 3}),)
    story.fault(1, "crash", 0).run(horizon=30)
    assert "quorum-fail: quorum->shutdown" in story.moves(1)
    assert story.outcome.exits == {1: 1}


@pytest.mark.parametrize(("after", "outcome", "asked_s"), [(5, "ended", 313), (None, "stuck", 90)])
def test_hardened_a_signal_while_a_requested_stop_waits_for_children_bounds_rc3(after, outcome, asked_s):
    story = Story(2, policy="hardened", sd_notify=True, sd_stop_timeout_ns=90 * S)
    story.fields["rc3"] = (story.puppet("rc3", {0: None, -1: 0.1}),)
    story.fault(2, "freeze", 1).ask(3, "shutdown").fault(10, "thaw", 1)
    if after is not None:
        story.signal(after)
    assert story.run().kind == outcome
    assert story.broken() == set()
    begun_ns = int(story.entered(0, "finalize") * S)
    told = [line.what.text for line in story.lines if line.t_ns >= begun_ns and isinstance(line.what, Notify)]
    asked = next(text for text in told if text.startswith("EXTEND_TIMEOUT_USEC="))
    assert asked == f"EXTEND_TIMEOUT_USEC={asked_s * 1_000_000}", "of the service manager"
