"""Jobs of a simulated instance: FLUX.md E–H where nothing was recorded, and what may be asked of the job manager."""

import pytest

from brokerctl.durations import S
from brokerctl.model.puppet import Reaction
from brokerctl.records import Answer, Asked, Start, Waiting
from brokerctl.settings import Hold, Housekeeping, Perilog
from tests.stage import Story


def instance(size=2, *, policy="flux", prolog=None, epilog=None, housekeeping=None, release_after=None, **fields):
    """An instance with Flux's cleanup actions; scripts are given as what `Story.puppet` takes."""
    story = Story(size, policy=policy, **fields)
    story.four()
    story.fields["rc3"] = (story.puppet("rc3", 0.3),)
    if prolog is not None:
        command = story.puppet("prolog", **prolog).command
        story.fields.setdefault("prolog", Perilog(command=command, per_rank=True, cancel_on_exception=True))
    if epilog is not None:
        story.fields.setdefault("epilog", Perilog(command=story.puppet("epilog", **epilog).command, per_rank=True))
    if housekeeping is not None:
        command = story.puppet("hk", **housekeeping).command
        after_ns = None if release_after is None else int(release_after * S)
        story.fields["housekeeping"] = Housekeeping(command=command, release_after_ns=after_ns)
    return story


def answers(story, what):
    replies = {line.what.reply for line in story.lines if isinstance(line.what, Asked) and line.what.what == what}
    return [line.what.body for line in story.lines if isinstance(line.what, Answer) and line.what.reply in replies]


# ---- the scheduler


def test_nobody_overtakes_the_first_that_does_not_fit():
    story = instance(4)
    task = story.puppet("task", 10)
    story.job(2, "three", task, nodes=3).job(3, "two", task, nodes=2).job(4, "one", task, nodes=1)
    story.signal(60).run()
    assert story.at("three", "start") == 2
    assert story.at("two", "start") == pytest.approx(12, abs=0.1)
    assert story.at("one", "start") == pytest.approx(12, abs=0.1), "although a node was free all the time"
    assert story.broken() == set()


def test_cores_belong_to_one_job_and_nodes_need_not():
    story = instance(1, cores=4)
    task = story.puppet("task", 10)
    for name in ("a", "b", "c"):
        story.job(2, name, task, cores=2)
    story.signal(60).run()
    assert [dict(story.events(name, contexts=True))["alloc"]["annotations"]["sched"]["resource_summary"]
            for name in "abc"] == ["rank0/core[0-1]", "rank0/core[2-3]", "rank0/core[0-1]"]  # fmt: skip
    assert story.at("c", "start") == pytest.approx(12, abs=0.1)
    assert story.broken() == set()


def test_a_job_may_name_its_ranks_and_waits_for_just_those():
    story = instance(3)
    task = story.puppet("task", 10)
    story.job(2, "one", task, ranks=(1,)).job(3, "same", task, ranks=(1,)).signal(60).run()
    assert story.at("same", "start") == pytest.approx(12, abs=0.1)


def test_no_job_is_put_on_a_lost_node_and_waits_until_there_are_enough():
    story = instance(3)
    story.job(9, "all", story.puppet("task", 1), nodes=3).fault(3, "crash", 2).signal(20).run()
    assert story.events("all") == ["submit", "validate", "depend", "priority"]


def test_a_job_that_the_instance_can_never_run_is_refused():
    story = instance(2)
    story.job(2, "wide", story.puppet("task", 1), nodes=3).job(2, "cores", story.puppet("task", 1), cores=9)
    story.signal(5).run()
    errors = [body.get("error") for body in answers(story, "submit")]
    assert errors == ["unsatisfiable: the instance has not that much"] * 2


@pytest.mark.parametrize("spec", [{"ranks": (1, 1)}, {"cores": 0}, {"cores": -1}])
def test_a_job_that_would_wait_for_ever_or_have_nothing_is_refused(spec):
    story = instance(2)
    story.job(2, "odd", story.puppet("task", 1), **spec).job(3, "next", story.puppet("task", 1)).signal(9).run()
    assert answers(story, "submit")[0] == {"error": "unsatisfiable: a rank stands there twice, or no core is wanted"}
    assert story.events("next")[-1] == "clean"


@pytest.mark.parametrize("word", ["9" * 5000, "-1", "1" * 10, "²", ""])
def test_a_rank_that_is_no_number_of_a_rank_is_not_disconnected(word):
    story = instance(2)
    story.ask(2, "disconnect", word).signal(9).run()
    assert answers(story, "disconnect") == [{"error": "expected one rank"}]


# ---- cancel, exceptions


def test_a_pending_job_that_is_canceled_is_clean_without_a_free():
    story = instance(1)
    task = story.puppet("task", 10)
    story.job(2, "first", task).job(3, "second", task).ask(4, "cancel", "second").signal(30).run()
    assert story.events("second") == ["submit", "validate", "depend", "priority", "exception", "clean"]


def test_tasks_that_ignore_sigterm_get_sigkill():
    story = instance(1, exec_kill_timeout_ns=7 * S)
    story.job(2, "deaf", story.puppet("task", None, on={15: Reaction(ignore=True)}))
    story.ask(4, "cancel", "deaf").signal(30).run()
    assert dict(story.events("deaf", contexts=True))["finish"] == {"status": 137 << 8}
    assert story.at("deaf", "finish") == pytest.approx(11, abs=0.1)


def test_an_inactive_job_can_not_be_canceled_and_an_unknown_one_is_named():
    story = instance(1)
    story.job(2, "short", story.puppet("task", 1)).ask(9, "cancel", "short").ask(9, "cancel", "nobody").signal(12).run()
    first, second = (body["error"] for body in answers(story, "cancel"))
    assert first.endswith("is inactive")
    assert second == "unknown job 'nobody'"


def test_a_fatal_code_of_a_task_is_the_shells_code_of_the_job():
    story = instance(2)
    story.job(2, "fails", story.puppet("task", 1, rc={1: 3, -1: 0}), nodes=2).signal(5).run()
    assert dict(story.events("fails", contexts=True))["finish"] == {"status": 3 << 8}


# ---- prolog and epilog


def test_a_node_that_is_lost_in_the_prolog_makes_the_start_fail_and_the_epilog_runs():
    story = instance(3, prolog={"runs": {2: 1000, -1: 0.1}}, epilog={"runs": 0.1}, loss_at_once=True)
    story.job(2, "job", story.puppet("task", 10), nodes=3).fault(5, "crash", 2).signal(20).run()
    events = story.events("job", contexts=True)
    assert [name for name, _ in events][4:] == [
        "alloc", "prolog-start", "prolog-finish", "exception", "finish", "epilog-start", "release", "epilog-finish",
        "free", "clean",
    ]  # fmt: skip
    found = dict(events)
    assert found["prolog-finish"]["status"] == 0
    assert found["exception"] == {
        "type": "exec", "severity": 0, "note": "node failure on n2 (rank 2)", "userid": 0,
    }  # fmt: skip
    assert found["finish"]["status"] == 15
    assert found["epilog-finish"]["status"] == 0
    assert story.drained() == {}


def test_a_prolog_that_ignores_a_cancel_is_given_up_and_its_nodes_are_drained():
    story = Story(2)
    command = story.puppet("prolog", None, on={15: Reaction(ignore=True)}).command
    story.fields["prolog"] = Perilog(command=command, per_rank=True, kill_timeout_ns=3 * S, cancel_on_exception=True)
    story.job(2, "job", story.puppet("task", 1), nodes=2).ask(4, "cancel", "job").signal(20).run()
    notes = [context["note"] for name, context in story.events("job", contexts=True) if name == "exception"]
    assert notes == ["", "prolog canceled then timed out on n[0-1] (rank 0-1)"]
    assert set(story.drained()) == {0, 1}
    assert all(reason.startswith("prolog canceled then timed out for job ") for reason in story.drained().values())
    assert dict(story.events("job", contexts=True))["prolog-finish"]["status"] == 0
    assert any("timed out waiting for SIGTERM to terminate prolog" in text for text in story.log(0))


def test_an_epilog_is_not_ended_by_a_cancel_unless_that_is_wanted():
    for wanted, end in ((False, 22), (True, 15)):
        story = Story(1)
        command = story.puppet("epilog", 20).command
        story.fields["epilog"] = Perilog(command=command, per_rank=True, cancel_on_exception=wanted)
        story.job(1, "job", story.puppet("task", 1)).ask(15, "cancel", "job").signal(60).run()
        assert story.at("job", "epilog-finish") == pytest.approx(end, abs=0.1)
        assert story.drained() == {}, "a script that was canceled drains nobody"


def test_no_epilog_begins_in_cleanup_but_one_that_runs_is_awaited():
    story = instance(1, epilog={"runs": 5})
    story.job(1, "ends-before", story.puppet("short", 1), cores=1).job(1, "canceled", story.puppet("long", 90), cores=1)
    story.signal(3).run()
    assert "epilog-finish" in story.events("ends-before")
    assert "epilog-start" not in story.events("canceled")
    assert story.entered(0, "shutdown") == pytest.approx(7, abs=0.1)
    assert story.outcome.exits == {0: 0}


# ---- housekeeping


@pytest.mark.parametrize(
    ("release_after", "times"),
    [(None, [6, 6, 6, 6]), (0, [1, 2, 4, 6]), (2, [3, 3, 4, 6])],
)
def test_release_after_counts_from_the_first_that_is_done(release_after, times):
    story = instance(4, housekeeping={"runs": {0: 1, 1: 2, 2: 4, -1: 6}}, release_after=release_after)
    story.job(2, "job", story.puppet("task", 1), nodes=4).signal(20).run()
    clean = story.at("job", "clean")
    assert [story.freed()[rank] - clean for rank in range(4)] == pytest.approx(times, abs=0.05)
    assert story.broken() == set()


def test_queue_idle_waits_for_epilogs_but_not_for_housekeeping_nor_pending_jobs():
    story = instance(1, epilog={"runs": 3}, housekeeping={"runs": 100})
    task = story.puppet("task", 1)
    story.job(1, "first", task).job(1.5, "pending", task).signal(2.5).run()
    assert story.entered(0, "shutdown") == pytest.approx(5, abs=0.2)
    assert story.events("pending")[-1] == "priority"
    assert "broker.info[0]: cleanup.3: 1 jobs" in story.log(0, level=6)
    assert story.outcome.exits == {0: 0}


def test_who_waits_for_an_idle_queue_is_told_for_whom():
    story = instance(1, epilog={"runs": None}, cleanup_timeout_ns=5 * S)
    story.job(1, "job", story.puppet("task", 1)).signal(3).run()
    waits = [(line.what.who, line.what.on) for line in story.lines if isinstance(line.what, Waiting)]
    assert ("flux queue idle", "job job") in waits
    assert ("job job", "epilog action job-manager.epilog of job") in waits


def test_jobs_are_managed_by_the_leader_only():
    story = instance(2)
    story.ask(2, "jobs", rank=1).signal(4).run()
    assert answers(story, "jobs")[0]["error"] == "jobs are managed on rank 0"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("job",), "expected a job, the name of an event, and KEY=VALUE"),
        (("job", "epilog-finish"), "epilog-finish needs description=NAME"),
        (("job", "dws_environment", "x"), "'x' is no KEY=VALUE"),
        (("job", "epilog-start", "name=x"), "epilog-start needs description=NAME"),
        (("job", "exception", "type=x"), "an exception is raised, not posted"),
    ],
)
def test_an_event_that_can_not_be_posted_is_refused(words, error):
    story = instance(1)
    story.job(1, "job", story.puppet("task", 10)).ask(3, "post-event", *words).signal(20).run()
    assert [body.get("error") for body in answers(story, "post-event")] == [error]


def test_any_other_event_may_be_posted_and_holds_nothing():
    story = instance(1)
    story.job(1, "job", story.puppet("task", 10)).ask(3, "post-event", "job", "dws_environment", "n=3").signal(20).run()
    assert dict(story.events("job", contexts=True))["dws_environment"] == {"n": 3}
    assert story.events("job")[-1] == "clean"


@pytest.mark.parametrize("name", ["dws-start", "dws-finish"])
def test_only_prologs_and_epilogs_are_actions_whatever_an_event_is_called(name):
    story = instance(1)
    story.job(1, "job", story.puppet("task", 10)).ask(3, "post-event", "job", name).signal(20).run()
    assert name in story.events("job")
    assert story.events("job")[-1] == "clean"


def test_a_number_that_no_eventlog_can_hold_is_posted_as_text():
    long, longest = "9" * 19, "9" * 5000
    story = instance(1)
    words = ("job", "measured", "least=007", f"long={long}", f"longest={longest}", "description=5")
    story.job(1, "job", story.puppet("task", 10)).ask(3, "post-event", *words).signal(20).run()
    context = dict(story.events("job", contexts=True))["measured"]
    assert context == {"least": 7, "long": long, "longest": longest, "description": "5"}
    assert story.outcome.exits == {0: 0}


@pytest.mark.parametrize(
    ("at", "name"),
    [
        *((at, name) for at in (2.5, 3.5, 6.5) for name in ("validate", "depend", "priority", "flux-restart", "alloc")),
        (3.5, "finish"),
        (6.5, "finish"),
    ],
)
def test_an_event_that_is_posted_again_moves_no_job_and_starts_nothing_twice(at, name):
    """2.5 s is in its prolog, 3.5 s in its task, 6.5 s in its epilog."""
    story = instance(2, prolog={"runs": 1}, epilog={"runs": 3}, housekeeping={"runs": 1})
    story.job(2, "job", story.puppet("task", 3), nodes=2).ask(at, "post-event", "job", name).signal(30).run()
    starts = [(line.rank, line.what.run) for line in story.lines if isinstance(line.what, Start)]
    assert len(starts) == len(set(starts)), "no run has the name of another one"
    assert sum(run.startswith("job.") for _, run in starts) == 2 * 4
    assert story.events("job")[-1] == "clean"
    assert story.outcome.exits == {0: 0, 1: 0}


def test_an_action_is_held_until_it_is_released():
    story = instance(1, epilog={"runs": 1})
    story.job(1, "job", story.puppet("task", 2)).ask(2, "hold", "job", "mine").ask(9, "release", "job", "mine")
    story.signal(20).run()
    assert story.at("job", "clean") == pytest.approx(4, abs=0.1), "begun in RUN, it holds nothing (FLUX.md 75)"
    assert story.outcome.exits == {0: 0}


# ---- events that scripts wait for


def waiting_prolog(**fields):
    story = instance(3, prolog={"runs": 0.1, "asks": ("wait-event", "dws_environment")}, **fields)
    return story.job(1, "job", story.puppet("task", 1), nodes=3)


def test_scripts_on_every_rank_wait_for_an_event_of_their_job():
    story = waiting_prolog()
    story.ask(8, "post-event", "job", "dws_environment").signal(20).run()
    events = story.events("job")
    assert events.index("dws_environment") < events.index("prolog-finish") < events.index("start")
    assert story.at("job", "prolog-finish") == pytest.approx(8, abs=0.1)
    assert story.outcome.exits == {0: 0, 1: 0, 2: 0}


def test_an_event_that_never_comes_is_waited_for_until_the_scripts_are_ended():
    story = waiting_prolog()
    story.ask(30, "cancel", "job").signal(60).run()
    assert dict(story.events("job", contexts=True))["prolog-finish"]["status"] == 15
    assert story.at("job", "prolog-finish") == pytest.approx(30, abs=0.1)
    waits = [line.what.who for line in story.lines if isinstance(line.what, Waiting) and "dws" in line.what.on]
    assert sorted(waits) == ["script of job on n0", "script of job on n1", "script of job on n2"]


def test_an_event_that_was_posted_before_is_not_waited_for():
    story = instance(2, epilog={"runs": 1, "asks": ("wait-event", "finish")})
    story.job(1, "job", story.puppet("task", 1), nodes=2).signal(20).run()
    assert story.at("job", "epilog-finish") == pytest.approx(3, abs=0.1)


def test_a_plugin_posts_its_event_before_its_action_is_finished():
    story = waiting_prolog(holds=(Hold(name="dws-setup", phase="prolog", after_ns=5 * S, posts="dws_environment"),))
    story.signal(20).run()
    names = [(name, context.get("description")) for name, context in story.events("job", contexts=True)]
    assert names[names.index(("dws_environment", None)) + 1] == ("prolog-finish", "dws-setup")
    assert story.at("job", "start") == pytest.approx(6, abs=0.1)


# ---- what is stored


def test_flux_stores_jobs_when_rc3_has_succeeded_and_hardened_before_it_too():
    for policy, stored in (("flux", False), ("hardened", True)):
        story = instance(1, policy=policy)
        story.fields["rc3"] = (story.puppet("bad", 0.3, rc=7),)
        story.job(1, "job", story.puppet("task", 1)).signal(9).run()
        assert ("jobs" in story.outcome.stored) == stored


def test_a_leader_that_is_killed_has_stored_what_it_knew_at_its_last_checkpoint():
    story = instance(1, checkpoint_period_ns=10 * S)
    task = story.puppet("task", 1)
    story.job(1, "before", task).job(15, "after", task).fault(18, "crash", 0).run()
    assert '"before"' in story.outcome.stored["jobs"]
    assert '"after"' not in story.outcome.stored["jobs"]


def test_a_stuck_leaf_that_is_killed_lets_the_stop_go_on():
    story = instance(2, epilog={"runs": {1: None, -1: 0.1}}, cleanup_timeout_ns=60 * S, loss_at_once=True)
    story.job(1, "job", story.puppet("task", 1), nodes=2).signal(5).fault(9, "crash", 1).run()
    assert story.outcome.exits == {0: 0}
    assert "cleanup-success: cleanup->shutdown" in story.moves(0)


def test_a_signal_is_forwarded_to_the_tasks_on_every_rank_and_does_not_stop_the_broker():
    story = instance(3)
    story.job(1, "job", story.puppet("task", None, on={10: Reaction(code=9)}), nodes=3).signal(4, 0, 10).signal(9).run()
    assert dict(story.events("job", contexts=True))["finish"] == {"status": 9 << 8}
    assert story.at("job", "finish") == pytest.approx(4, abs=0.1)
    assert "broker.info[0]: forwarded signal 10 to 1 jobs" in story.log(0, level=6)
    assert story.entered(0, "cleanup") == 9


@pytest.mark.parametrize("policy", ["flux", "hardened"])
def test_a_job_that_ran_when_the_leader_was_killed_is_ended_by_its_next_life_and_the_queue_is_idle_then(policy):
    story = instance(2, policy=policy, checkpoint_period_ns=1 * S, quorum=1)
    story.job(1, "job", story.puppet("task", 1000), ranks=(0,)).fault(5, "crash", 0).fault(9, "restart", 0)
    story.signal(20).run()
    assert story.events("job")[-5:] == ["exception", "finish", "release", "free", "clean"]
    assert "job-manager.info[0]: restart: 1 running jobs" in story.log(0, level=6)
    assert story.outcome.exits[0] == 0
