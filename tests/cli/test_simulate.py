"""`brokerctl simulate`: the story, the verdict, the trace; exit codes 0, 1, 2."""

from pathlib import Path

import pytest

from brokerctl import cli, trace
from brokerctl.cli.simulate import Progress
from brokerctl.records import Booted, Exit, Line, Moved

ROOT = Path(__file__).parents[2]
DEMO = str(ROOT / "scenarios" / "stuck-cleanup.toml")


def test_the_stop_is_told_as_flux_logs_it_and_then_the_verdict(capsys):
    assert cli.main(["simulate", DEMO]) == 0
    out = capsys.readouterr().out
    story, verdict = out.split("\n\n")
    assert "   45.900 broker.err[0]: cleanup.3: flux queue idle --quiet Hangup (rc=129) 44.4s\n" in story
    assert "broker.info[0]: cleanup-fail: cleanup->shutdown 45s\n" in story
    assert verdict.startswith("stuck-cleanup (sim, flux): ok\n")
    assert "\x1b" not in out


def test_attributes_and_policy_come_from_the_command_line(capsys):
    assert cli.main(["simulate", DEMO, "--policy", "hardened", "-S", "broker.cleanup-timeout=2s"]) == 0
    out = capsys.readouterr().out
    assert "(sim, hardened): ok" in out
    assert "cleanup-fail: cleanup->shutdown 2s\n" in out


def test_a_broken_expectation_is_1_with_expected_got_and_how_to_run_it_again(tmp_path, capsys):
    path = tmp_path / "wrong.toml"
    good = (ROOT / "scenarios" / "rc3-fails.toml").read_text()
    path.write_text(good.replace("[puppet.fails]\nexit = 7", "[puppet.fails]\nexit = 8"))
    assert cli.main(["simulate", str(path), "-S", "broker.quorum-warn=9s"]) == 1
    out = capsys.readouterr().out
    assert "expect.exit: expected exit code 7, got 8\n" in out
    assert f"run it again: brokerctl simulate {path} -S broker.quorum-warn=9s\n" in out


def test_the_trace_can_be_read_back(tmp_path):
    path = tmp_path / "t.jsonl"
    assert cli.main(["simulate", DEMO, "--trace", str(path)]) == 0
    head, lines = trace.read(path)
    lines = list(lines)
    assert head.settings.cleanup_timeout_ns == 45_000_000_000
    assert isinstance(lines[0].what, Booted)
    assert lines[-1].what == Exit(129)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "the following arguments are required: FILE"),
        (["/no/such.toml"], "/no/such.toml: cannot read: No such file or directory"),
        ([DEMO, "--policy", "soft"], "argument --policy: invalid choice: 'soft'"),
        ([DEMO, "-S", "colour=red"], "-S: unknown attribute 'colour'"),
        ([DEMO, "--trace", "/no/such/dir/t"], "--trace /no/such/dir/t: cannot write: No such file or directory"),
        ([DEMO, "--trace", "/dev/full"], "--trace /dev/full: cannot write: No space left on device"),
    ],
)
def test_what_cannot_be_used_is_one_line_and_2(words, message, capsys):
    assert cli.main(["simulate", *words]) == 2
    err = capsys.readouterr().err
    assert err.startswith("brokerctl simulate: ")
    assert message in err
    assert err.count("\n") == 1


def test_nothing_runs_where_the_scenario_is_wrong(tmp_path, capsys):
    path = tmp_path / "bad.toml"
    path.write_text('about = "x"\n[[step]]\nat = "walk"\ndo = "sigterm"\n')
    assert cli.main(["simulate", str(path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == (
        f"brokerctl simulate: {path}: step[0].at: 'walk' is no moment; "
        "expected a time, a state, or such as 'cleanup.0 start'\n"
    )


def test_equal_lines_of_many_ranks_are_one(capsys):
    path = ROOT / "scenarios" / "shed-deep.toml"
    assert cli.main(["simulate", str(path)]) == 0
    out = capsys.readouterr().out
    assert "broker.info[0-14]: quorum-full: quorum->run\n" in out
    assert "    3.402           broker.info[1]: rc3-success: finalize->goodbye 0.2s\n" in out
    assert "overlay.err[5]: picl11 (rank 11) is shed: it holds the shutdown\n" in out


def test_progress_counts_who_runs_and_who_has_ended_and_makes_room_for_lines(capsys):
    progress = Progress(3000)
    for n in range(2 * Progress._EVERY_LINES):
        what = Moved("quorum-full", "quorum", "run", 0) if n < 3000 else Exit(0)
        progress.see(Line(n * 10**6, n, 0, ">", what))
        progress._next_s = 0.0
    shown = capsys.readouterr().err
    assert "    1.999 2,000 of 3,000 ranks have been in run, 0 have ended" in shown
    assert shown.endswith("    3.999 3,000 of 3,000 ranks have been in run, 1,000 have ended")
    progress.clear()
    progress.clear()
    assert capsys.readouterr().err == "\r\x1b[K"
