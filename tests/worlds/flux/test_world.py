"""A real Flux acts scenarios out, and what it does is what the simulator does."""

import shutil
import sys

import pytest

from brokerctl import cli
from brokerctl.errors import KernelError
from brokerctl.logs import recording
from brokerctl.records import Signal, Start
from brokerctl.scenario import compare, runner
from brokerctl.scenario import format as scenario_format
from brokerctl.scenario.observed import observed
from brokerctl.scenario.resolve import resolve
from brokerctl.worlds.flux.world import FluxWorld
from tests.conformance import pairs
from tests.console import ROOT

SCENARIOS = pairs.HERE / "scenarios"
# One of each kind: a few seconds each. What else is equal, `brokerctl compare --worlds sim,flux` tells.
SOME = [
    "01-clean-exit--size1",
    "02-rc2-fails--sigterm",
    "05-sigterm-stuck-epilog",
    "08-cleanup-push",
    "13b-no-modules--run-sigterm",
    "21-epilog-fails-one-rank",
    "25-sd-notify--sigterm",
    "44-overlay-disconnect--leaf",
]


@pytest.mark.slow
@pytest.mark.needs_flux
@pytest.mark.parametrize("name", SOME)
def test_a_real_flux_does_what_is_simulated_and_its_recording_joins_the_recorded_ones(name, tmp_path):
    scenario = scenario_format.load(SCENARIOS / f"{name}.toml")
    path, lines = tmp_path / f"{name}.json", []
    result = runner.run(scenario, "flux", sink=lines.append, record=path)
    assert result.status == "passed", result.failures
    model = pairs.simulated(scenario)
    size = scenario.file.instance.size
    found = compare.differ(observed(lines, size), observed(model, size))
    assert found is None, compare.in_one_line(found)
    real = recording.read(path)
    assert (real.name, real.about, real.size) == (name, scenario.file.about, size)
    assert compare.differ(observed(recording.lines(real), size), observed(model, size)) is None
    told = path.read_text() + real.log
    assert not any(here in told for here in (str(tmp_path), sys.executable, str(ROOT), shutil.which("flux"), "libexec"))


@pytest.mark.needs_flux
def test_what_a_recording_has_not_is_in_the_trace_signals_and_the_starts_of_actions():
    lines = []
    runner.run(scenario_format.load(SCENARIOS / "02-rc2-fails--sigterm.toml"), "flux", sink=lines.append)
    whats = [line.what for line in lines]
    assert [what.signum for what in whats if isinstance(what, Signal)] == [15]
    starts = [(what.run, what.command.text) for what in whats if isinstance(what, Start)]
    assert starts[:2] == [("rc1.0", "flux modprobe rc1"), ("rc2.0", "sleep 100")]
    assert [run for run, _ in starts[2:]] == ["cleanup.0", "cleanup.1", "cleanup.2", "cleanup.3", "rc3.0"]


@pytest.mark.needs_flux
def test_a_broken_expectation_is_told_of_a_real_flux_too(tmp_path, capsys):
    path = tmp_path / "x.toml"
    path.write_text('about = "x"\n[[step]]\nat = "run"\ndo = "sigterm"\n[expect]\nexit = 3\n')
    assert cli.main(["test", "--world", "flux", str(path)]) == 1
    assert "expect.exit: expected exit code 3, got 0" in capsys.readouterr().out


def test_where_there_is_none_a_scenario_is_skipped_with_the_reason(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    path = SCENARIOS / f"{SOME[0]}.toml"
    assert cli.main(["test", "--world", "flux", str(path)]) == 0
    assert capsys.readouterr().out.startswith(f"skipped  flux  {SOME[0]}: no `flux` on PATH\n")
    with pytest.raises(KernelError, match="no `flux` on PATH"):
        FluxWorld().run(resolve(scenario_format.load(path)), lambda _line: None, 1)


@pytest.mark.parametrize(
    "words",
    [
        ["--world", "sim", "--record", "x.json", "one"],
        ["--world", "flux", "--record", "x.txt", "one"],
        ["--world", "flux", "--record", "x.json", "one", "two"],
    ],
)
def test_only_one_run_of_a_real_flux_is_recorded(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two"):
        (tmp_path / name).write_text('about = "x"\n')
    assert cli.main(["test", *words]) == 2
    assert capsys.readouterr().err.startswith(
        f"brokerctl test: --record {words[3]}: expected one scenario in --world flux"
    )
