import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerctl.durations import MS, S
from brokerctl.stop import flux, report
from brokerctl.stop.journal import Entry
from brokerctl.stop.report import After, Before, Facts
from brokerctl.stop.story import story
from tests.stop.recordings import life, text

DUMP = ("/var/lib/flux/dump/20261129_214352.tgz", 2358, True)


def after(name="stopped", **fields):
    """The lines of a recorded life, and what has failed."""
    _, entries = life(name)
    found = After(**{"story": story(entries, 0), "dumps": True, "dump": DUMP, "unit": "flux.service", **fields})
    return report.after(found)


def test_before_the_sigterm_jobs_are_told_by_user_and_housekeeping_with_its_age():
    jobs = flux.jobs(text("job-list"))
    kept = flux.housekeeping(text("stats-job-manager"))
    lines = report.before(Before(jobs, {0: "alice"}, kept, kept[0].since_s + 300))
    assert lines == [
        "running: 2 jobs on 3 nodes: alice 2",
        "running: ƒ2hr17kT of alice, 1 node, sleep",
        "running: ƒ2a8GreK of alice, 2 nodes, sleeper",
        "housekeeping of ƒ2Nn2MXD: runs for 5m on ranks 2; the stop cuts it off",
    ]


def test_jobs_whose_epilog_still_runs_are_told_apart():
    jobs = [flux.Job(1, 7, flux.STATE_CLEANUP, 1, "3", "stuck")]
    assert report.before(Before(jobs)) == [
        "running: no job",
        "in cleanup (their epilog runs, or is stuck): ƒ2 of uid 7, 1 node, stuck",
    ]


def test_what_could_not_be_learned_is_not_told_as_nothing():
    assert report.before(Before()) == ["<4>which jobs run could not be learned"]
    assert report.before(Before([])) == ["running: no job"]


def test_thousands_of_jobs_are_a_handful_of_lines():
    jobs = [flux.Job(n, n % 50, 16, 1, str(n), f"job{n}") for n in range(5000)]
    lines = report.before(Before(jobs))
    assert len(lines) == 2 + report.JOBS_SHOWN
    assert lines[0].startswith("running: 5000 jobs on 5000 nodes: uid 0 100, ")
    assert lines[0].endswith("40 other users 4000")
    assert lines[-1] == "running: and 4992 more"


def test_a_good_stop_is_two_lines():
    facts = Facts(900 * MS, "exit", (("cleanup", 1 * S), ("shutdown", 0)))
    lines, failed = after(facts=facts, exit_text="exit 0")
    assert lines[0].startswith("stopped in 900ms: cleanup 2.7s, ")  # the journal is exact, a look is not
    assert lines[0].endswith("; exit 0")
    assert lines[1:] == ["dump written: /var/lib/flux/dump/20261129_214352.tgz, 2.3 KiB"]
    assert failed == ""


def test_without_a_journal_the_looks_tell_the_phases():
    facts = report.facts(
        ["took=61500000000", "last=finalize", "state.cleanup=60000000000", "state.finalize=1500000000"]
    )
    lines, failed = report.after(After(facts=facts))
    assert (lines, failed) == (["stopped in 62s: cleanup 60s, finalize 1.5s"], "")


def test_the_culprit_of_a_cut_off_cleanup_is_named_with_what_to_type():
    lines, failed = after("cleanup-cut-off")
    assert "<3>cleanup.0 failed: sleep 300: Hangup (rc=129), cut off after 1.0s" in lines
    assert lines[-1] == "next: after `systemctl start flux.service`: `brokerctl check` names jobs that need a repair"
    assert failed == "cleanup"


@pytest.mark.parametrize("dump", [None, (DUMP[0], 100, False)])
def test_no_dump_is_told_in_capitals_and_what_to_keep(dump):
    lines, failed = after("rc3-cut-off", dump=dump)
    assert failed == "rc3"
    assert any(line.startswith("<3>NO DUMP: ") for line in lines)
    assert lines[-1].startswith("next: keep a copy of its state directory before `systemctl start flux.service`")


def test_a_missing_dump_is_a_failed_rc3_whatever_the_journal_says():
    assert after(dump=None)[1] == "rc3"
    assert after(dump=None, dumps=False)[1] == ""
    assert after(dump=None, leader=False)[1] == ""


def test_a_journal_that_lags_behind_is_no_failure():
    _, entries = life("stopped")
    for length in range(len(entries)):
        lines, failed = after(story=story(entries[:length], 0))
        assert not failed
        assert not any("NO DUMP" in line for line in lines)


def test_a_life_that_never_reached_run_has_nothing_to_lose():
    """Its rc3 fails, as it has nothing to end (FLUX.md 94, 95)."""
    lines, failed = after("stopped-in-rc1", dump=None)
    assert failed == ""
    assert not any("DUMP" in line for line in lines)


def test_what_was_cut_off_and_left_behind_is_named():
    told = story(
        [
            Entry("flux", 6, "broker.info[0]: shutdown: run->cleanup 3s"),
            Entry("flux", 3, "job-manager.err[0]: ƒ2: epilog: picl1 (rank 1): No route to host"),
            Entry("flux", 3, "job-manager.err[0]: housekeeping: picl1 (rank 1) ƒ3: No route to host"),
            Entry("flux", 3, "broker.err[0]: shutdown timeout"),
        ],
        0,
    )
    lines, _ = after(
        story=told, facts=Facts(shed="1", ended=("SIGKILL to sh x (pid 7)",)), perilog_units=["flux-epilog@f2.service"],
        leftovers=["sleep 100 (pid 8)"], housekeeping=[flux.Housekeeping("ƒ4", 0, "1", "1")],
    )  # fmt: skip
    for line in (
        "<3>signalled by this stop, as it held the cleanup: SIGKILL to sh x (pid 7)",
        "<3>shutdown-timeout: the leader went on without ranks that had not said goodbye",
        "<3>cut off, as the rank was unreachable: ƒ2: epilog on rank 1",
        "<4>housekeeping abandoned, it is not run again: ƒ3",
        "<4>housekeeping that had not ended when the stop began is not run again: ƒ4",
        "<4>prolog, epilog or housekeeping units still run: flux-epilog@f2.service",
        "<4>left over in flux.service, systemd will kill it: sleep 100 (pid 8)",
        "next: `systemctl status flux.service` on the nodes that were shed (ranks 1), before the next start",
        "next: `systemctl status flux-epilog@f2.service`",
    ):
        assert line in lines


def test_what_to_type_next_fits_what_main_is():
    """What repairs Flux's jobs is of no use to another broker."""
    told = story([Entry("x", 3, "broker.err[0]: cleanup.0: tidy up Killed (rc=137) 12.0s")], 0)
    flux_s, own = (report.after(After(story=told, unit="x.service", flux=which))[0][-1] for which in (True, False))
    assert flux_s == "next: after `systemctl start x.service`: `brokerctl check` names jobs that need a repair"
    assert own.startswith("next: see to what its cleanup has left undone")
    assert own.endswith("then `systemctl start x.service`")


@pytest.mark.parametrize(
    ("code", "status", "words"),
    [("1", "129", "exit 129"), ("2", "9", "killed by SIGKILL"), ("0", "0", ""), ("", "", ""), ("x", "1", "")],
)
def test_the_end_of_main_is_told_as_the_manager_knows_it(code, status, words):
    assert report.exit_text(code, status) == words


@pytest.mark.parametrize(
    ("size", "words"), [(0, "0 bytes"), (1023, "1023 bytes"), (2358, "2.3 KiB"), (5 << 30, "5.0 GiB")]
)
def test_sizes_are_told_for_people(size, words):
    assert report.as_bytes(size) == words


@given(st.lists(st.text(max_size=500), max_size=30))
def test_lines_are_bounded_and_printable_whatever_the_facts(words):
    found = After(facts=report.facts([f"ended={word}" for word in words] + words), leftovers=words, perilog_units=words)
    lines, _ = report.after(found)
    jobs = [flux.Job(1, 1, 16, 1, "0", word) for word in words]
    for line in [*lines, *report.before(Before(jobs))]:
        assert len(line) <= report.LINE_MAX
        assert line.isprintable()
