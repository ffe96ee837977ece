"""`brokerctl lint` as its user sees it: text, JSON, the chain, exit codes."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from brokerctl import cli
from brokerctl.durations import MINUTE
from brokerctl.lint.rule import rules
from brokerctl.records.base import Command
from brokerctl.settings import Action, StopSettings
from brokerctl.stop.settings import Configuration
from tests.console import ROOT

STOCK = ROOT / "tests" / "lint" / "units" / "flux.service"
WARNED = "[Service]\nExecStart=/usr/bin/program\n\tSendSIGKILL=no\n"


@pytest.fixture
def lint(capsys):
    def run(*words):
        code = cli.main(["lint", *map(str, words)])
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.fixture
def warned(tmp_path):
    path = tmp_path / "site.service"
    path.write_text(WARNED)
    return path


def test_a_finding_has_its_line_and_a_caret_below_the_place(lint, warned):
    code, out, _ = lint(warned)
    assert code == 0
    assert out == (
        f"{warned}:3:14: warning: SendSIGKILL=no: nothing ends what ignores SIGTERM [no-sigkill]\n"
        "  3 |  SendSIGKILL=no\n"
        "    |              ^\n"
        "    = remove SendSIGKILL=no\n"
        "0 errors, 1 warning in 1 unit\n"
    )


def test_a_file_of_a_directory_that_can_t_be_read_is_told_beside_the_others_and_2(lint, warned):
    (warned.parent / "binary.service").write_bytes(b"\0")
    code, out, err = lint(warned.parent)
    assert code == 2
    assert out.endswith("0 errors, 1 warning in 1 unit\n")
    assert err == f"brokerctl lint: {warned.parent}/binary.service:1: has a NUL byte: a binary, no unit file\n"


def test_errors_are_1_and_warnings_too_if_they_are_told_to_be(lint, warned):
    assert lint(STOCK)[0] == 1
    assert lint(warned)[0] == 0
    assert lint("--strict", warned)[0] == 1


def test_a_clean_unit_says_so(lint, warned):
    warned.write_text("[Service]\nExecStart=/usr/bin/program\n")
    assert lint("--strict", warned)[:2] == (0, "0 errors, 0 warnings in 1 unit\n")


def test_json_has_the_same_findings_with_their_places(lint, warned):
    code, out, _ = lint("--format", "json", warned)
    assert code == 0
    assert json.loads(out) == [
        {
            "rule": "no-sigkill", "severity": "warning", "unit": "site.service", "path": str(warned), "line": 3,
            "column": 14, "text": "SendSIGKILL=no: nothing ends what ignores SIGTERM", "mend": "remove SendSIGKILL=no",
        }
    ]  # fmt: skip


def test_the_chain_shows_the_phase_that_systemd_cuts_off(lint):
    code, out, _ = lint("--chain", STOCK)
    assert code == 1
    lines = out.splitlines()
    assert lines[0] == "flux.service"
    [row] = [line for line in lines if line.startswith("shutdown")]
    assert row.split("  ")[0] == "shutdown"
    for word in ("5m1s broker.shutdown-timeout", "90s the broker's extension: SIGKILL", "OUTER", "no dump"):
        assert word in row


def test_the_chain_as_json_has_times_in_nanoseconds(lint):
    _, out, _ = lint("--chain", "--format", "json", STOCK)
    [unit] = json.loads(out)
    rows = {row["phase"]: row for row in unit["chain"]}
    assert rows["shutdown"]["outer_ns"] == 90_000_000_000
    assert rows["shutdown"]["verdict"] == "cut"
    assert rows["finalize"]["inner_ns"] is None


def test_the_chain_of_a_stop_that_fits_is_0(lint, tmp_path):
    unit = tmp_path / "flux.service"
    shutil.copy(STOCK, unit)
    (tmp_path / "flux.service.d").mkdir()
    (tmp_path / "flux.service.d" / "limit.conf").write_text("[Service]\nTimeoutStopSec=10min\n")
    assert lint("--chain", unit)[0] == 0


def test_a_rule_is_explained_and_all_are_listed(lint):
    code, out, _ = lint("--explain", "no-sigkill")
    assert code == 0
    assert out.splitlines()[0] == "no-sigkill (warning)"
    assert "SYSTEMD.md 77" in out
    code, out, _ = lint("--list")
    assert [line.split()[0] for line in out.splitlines()] == list(rules())


def test_limits_of_flux_are_taken_from_its_configuration(lint, tmp_path):
    unit = tmp_path / "flux-epilog@.service"
    unit.write_text("[Service]\nType=oneshot\nTimeoutStopSec=2min\nExecStart=/usr/bin/epilog\n")
    config = tmp_path / "flux.toml"
    config.write_text("[job-manager.epilog]\ntimeout = '10m'\nkill-timeout = 200.0\n")
    assert lint(unit)[0] == 1
    assert lint("--flux-config", config, unit)[:2] == (0, "0 errors, 0 warnings in 1 unit\n")


def test_files_of_fluxs_configuration_are_joined_key_by_key(lint, tmp_path):
    (tmp_path / "1.toml").write_text("[job-manager.epilog]\ntimeout = '10m'\nkill-timeout = 200.0\n")
    (tmp_path / "2.toml").write_text("[job-manager.epilog]\ncommand = ['epilog']\n[job-manager.prolog]\n")
    unit = tmp_path / "flux-epilog@.service"
    unit.write_text("[Service]\nType=oneshot\nTimeoutStopSec=2min\nExecStart=/usr/bin/epilog\n")
    assert lint("--flux-config", tmp_path, unit)[:2] == (0, "0 errors, 0 warnings in 1 unit\n")


def test_the_configuration_that_a_unit_of_flux_names_holds_for_the_scripts_beside_it(lint, tmp_path):
    (tmp_path / "flux.toml").write_text("[job-manager.epilog]\nkill-timeout = 200.0\ntimeout = '1h'\n")
    (tmp_path / "flux.service").write_text(f"[Service]\nExecStart=/usr/bin/flux broker --config-path={tmp_path}\n")
    unit = tmp_path / "flux-epilog@.service"
    unit.write_text("[Service]\nType=oneshot\nTimeoutStopSec=2min\nExecStart=/usr/bin/epilog\n")
    assert "[perilog-kill-timeout]" in lint(unit)[1]
    assert "[perilog-kill-timeout]" not in lint(tmp_path)[1]
    (tmp_path / "flux.toml").write_text("job-manager = 1\n")
    code, out, err = lint(tmp_path)
    assert code == 1
    assert "[perilog-kill-timeout]" in out
    assert err.startswith("brokerctl lint: note: Flux's configuration is not looked at: ")


@pytest.fixture
def wrapped(tmp_path):
    """A unit with a wrapper, and the wrapper's configuration."""
    config = tmp_path / "stop.toml"
    config.write_text("")
    unit = tmp_path / "flux.service"
    unit.write_text(
        "[Service]\nTimeoutStopSec=5min\nExecStart=/usr/bin/flux broker\n"
        f"ExecStop=/usr/bin/brokerctl stop --config {config}\n"
    )
    return unit, config


def test_the_limits_of_a_wrapper_are_those_of_its_own_configuration(lint, wrapped, monkeypatch):
    unit, config = wrapped
    settings = StopSettings(actions=(Action(Command("slow")),), actions_timeout_ns=10 * MINUTE)
    told = {str(config): Configuration(settings)}
    monkeypatch.setattr("brokerctl.stop.settings.load", told.__getitem__)
    assert "[chain-site-actions]" in lint(unit)[1]
    told[str(config)] = Configuration(StopSettings())
    assert "[chain-site-actions]" not in lint(unit)[1]


def test_a_configuration_that_the_wrapper_would_refuse_is_told_and_not_looked_at(lint, wrapped):
    unit, config = wrapped
    config.chmod(0o666)
    code, _, err = lint(unit)
    assert code == 1
    assert err.startswith("brokerctl lint: note: what flux.service tells brokerctl stop is not looked at: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "no UNIT; expected files, directories or names of units"),
        (["--explain", "nope"], "--explain nope: there is no such rule"),
        (["--flux-config", "/not/there", "x"], "/not/there: cannot read: No such file or directory"),
        (["--format", "xml", "x"], "invalid choice: 'xml'"),
        (["/not/there.service"], "/not/there.service: cannot read: No such file or directory"),
        (["x" * 5000], "xxx: cannot read: File name too long"),
        (["--flux-config", "x" * 5000, "x"], "xxx: cannot read: File name too long"),
        (["/bin/sh"], "/bin/sh: is no unit; expected a name that ends in .service"),
    ],
)
def test_a_mistake_is_one_line_and_2(lint, words, said):
    code, out, err = lint(*words)
    assert code == 2
    assert out == ""
    assert err.startswith("brokerctl lint: ")
    assert said in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("job-manager = 1\n", "job-manager: expected a table"),
        ("[job-manager]\nepilog = 1\n", "job-manager.epilog: expected a table"),
        ("[job-manager.epilog]\ntimeout = 'soon'\n", "job-manager.epilog.timeout: 'soon' is no duration"),
        ("[job-manager.prolog]\nkill-timeout = 'x'\n", "job-manager.prolog.kill-timeout: 'x' is no number of seconds"),
        ("[job-manager", "expected"),
    ],
)
def test_a_wrong_configuration_of_flux_is_one_line_and_2(lint, tmp_path, text, said):
    config = tmp_path / "flux.toml"
    config.write_text(text)
    code, _, err = lint("--flux-config", config, STOCK)
    assert code == 2
    assert said in err
    assert err.count("\n") == 1


def test_what_a_unit_says_does_not_command_the_terminal(lint, warned):
    warned.write_text("[Service]\nExecStart=/usr/bin/program\n\x1b]0;owned\x07nonsense\nKillMode=\x1b[2J\n")
    _, out, _ = lint(warned)
    assert "\x1b" not in out
    assert "\x07" not in out


def test_a_reader_that_has_gone_is_no_traceback():
    done = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m brokerctl lint --list | head -n 1"], capture_output=True, text=True,
        timeout=60, check=False, cwd=ROOT, env=os.environ,
    )  # fmt: skip
    assert done.stderr == ""
