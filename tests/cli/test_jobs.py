"""`brokerctl simulate` where there are jobs: eventlogs, deadlocks, lives, and the instance at one moment."""

from pathlib import Path

import pytest

from brokerctl import cli
from brokerctl.errors import UsageError

SCENARIOS = Path(__file__).parents[2] / "scenarios"
STUCK = str(SCENARIOS / "stuck-epilog.toml")
DEADLOCK = str(SCENARIOS / "clientmount-deadlock.toml")


def test_eventlogs_stand_between_the_story_and_the_verdict_and_each_life_has_its_ending(capsys):
    assert cli.main(["simulate", STUCK]) == 0
    out = capsys.readouterr().out
    assert "job-manager.err[0]: ƒ2UzHM: epilog: picl1 (rank 1): No route to host\n" in out
    assert "job-manager.err[0]: housekeeping: picl1 (rank 1) ƒ2UzHM: No route to host\n" in out
    log = out.partition("eventlog of stuck (ƒ2UzHM):\n")[2].partition("\n\n")[0]
    assert [line.split()[1] for line in log.splitlines()] == [
        "submit", "validate", "depend", "priority", "alloc", "start", "finish", "epilog-start", "release",
        "epilog-finish", "free", "clean",
    ]  # fmt: skip
    assert '   86.501 epilog-finish description="job-manager.epilog" status=0\n' in out
    assert "  life 1: exit code 129, 46s after the stop began\n  life 2: exit code 0, " in out


def test_a_deadlock_is_named_and_is_1_also_where_the_scenario_expects_it(capsys):
    assert cli.main(["simulate", DEADLOCK]) == 1
    out = capsys.readouterr().out
    assert (
        "  deadlock at 62.302: housekeeping of f1 waits for epilog action dws-epilog of f1; "
        "epilog action dws-epilog of f1 waits for nnf-clientmount on picl[2-3]; "
        "nnf-clientmount on picl[2-3] waits for housekeeping of f1\n"
    ) in out
    assert cli.main(["test", "--world", "sim", DEADLOCK]) == 0


@pytest.mark.parametrize("twin", ["clientmount-cured", "clientmount-canceled"])
def test_the_cured_twins_have_no_deadlock(twin, capsys):
    assert cli.main(["simulate", str(SCENARIOS / f"{twin}.toml")]) == 0
    assert "deadlock at" not in capsys.readouterr().out


def at(moment, capsys, file=STUCK):
    assert cli.main(["simulate", file, "--at", moment]) == 0
    return capsys.readouterr().out


def test_an_instance_is_shown_at_one_moment(capsys):
    out = at("stuck epilog-start + 10s", capsys)
    assert out.startswith("stuck epilog-start + 10s: 21.201 s after the beginning\n")
    assert "  run 2      picl[0-1]\n" in out
    assert "ƒ2UzHM stuck 0    CLEANUP 2      10s  picl[0-1] job-manager.epilog\n" in out
    assert "allocated 2      4      picl[0-1]\n" in out
    assert "no housekeeping runs\n" in out
    assert "no node is drained\n" in out


def test_housekeeping_is_listed_as_flux_lists_it_and_accounted_by_job_user_and_node(tmp_path, capsys):
    text = (SCENARIOS / "housekeeping-cut-off.toml").read_text()
    path = tmp_path / "h.toml"
    path.write_text(text)
    out = at("j clean + 30s", capsys, str(path))
    assert " JOBID NNODES #ACTIVE RUNTIME NODELIST\nƒ2UzHM 1      1       30.000s picl1\n" in out
    assert "     free 1      2      picl0\n" in out
    assert (
        "housekeeping by job: j 35s\nhousekeeping by user: 0 35s\nhousekeeping by node: picl1 30s, picl0 5.0s\n" in out
    )


def test_drained_nodes_are_shown_with_their_reason(capsys):
    out = at("B start", capsys, str(SCENARIOS / "prolog-fails.toml"))
    assert "drained prolog failed for job ƒ2UzHM picl1\n" in out


@pytest.mark.parametrize(
    ("moment", "message"),
    [
        ("stuck eat", "--at stuck eat: jobs have no 'eat'"),
        ("stuck finish - 5s", "--at stuck finish - 5s: can't be foreseen"),
        ("panic + 5h", "--at panic + 5h"),
        ("stuck prolog-start", "--at stuck prolog-start: never comes while the leader lives"),
    ],
)
def test_a_moment_that_is_none_or_never_comes_is_2_and_one_line(moment, message, capsys):
    code = cli.main(["simulate", STUCK, "--at", moment])
    assert code == UsageError.exit_code
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
