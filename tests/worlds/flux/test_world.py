"""A real Flux acts scenarios out, and what it does is what the simulator does."""

import shutil
import sys

import pytest

from brokerctl import cli
from brokerctl.errors import KernelError
from brokerctl.logs import recording
from brokerctl.records import JobEvent, Signal, Start
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


LIVES = [
    "23-restart-after-05",  # what was told as finished is not run again
    "48-restart-pending-job",  # what waited is run
]


@pytest.mark.slow
@pytest.mark.needs_flux
@pytest.mark.parametrize("name", LIVES)
def test_a_life_begins_with_what_the_one_before_has_left_and_the_last_one_is_recorded(name, tmp_path):
    scenario = scenario_format.load(SCENARIOS / f"{name}.toml")
    path, lines, model = tmp_path / f"{name}.json", [], []
    sets = ["broker.cleanup-timeout=8s"]  # the recorded 3s are short for a machine that is busy
    result = runner.run(scenario, "flux", sets=sets, sink=lines.append, record=path)
    assert result.status == "passed", result.failures
    runner.run(scenario, "sim", sets=sets, sink=model.append)
    size = scenario.file.instance.size
    found = compare.differ(observed(lines, size), observed(model, size))
    assert found is None, compare.in_one_line(found)
    for rank in range(size):
        assert [line.n for line in lines if line.rank == rank] == list(range(sum(line.rank == rank for line in lines)))
    last = recording.lines(recording.read(path))
    assert compare.differ(observed(last, size), observed(pairs.simulated(scenario), size)) is None
    assert last[0].t_ns < 0  # events of the lives before


CURED = """
about = "a job is stuck over a restart, until somebody posts the missing event (FLUX.md 60, 61)"

[attrs]
"broker.cleanup-timeout" = "4s"

[puppet.task]
runs = "0.1s"

[puppet.epilog]
runs = "forever"

[perilog.epilog]
puppet = "epilog"

[[run]]

[[run.job]]
name = "j"
at = "run"
puppet = "task"

[[run.step]]
at = "j epilog-start + 0.1s"
do = "sigterm"

[run.expect]
events.j = ["epilog-start"]
never = ["j epilog-finish"]

[[run]]

[[run.step]]
at = "run + 0.1s"
do = "post-event j epilog-finish description=job-manager.epilog status=0"

[[run.step]]
at = "j clean + 0.1s"
do = "sigterm"

[run.expect]
log = ["restart: 1 running jobs"]
events.j = ["epilog-finish", "free", "clean"]
never = ["j epilog-start", "j submit"]
"""


@pytest.mark.needs_flux
def test_steps_and_moments_speak_of_jobs_of_earlier_lives_whose_events_are_told_once(tmp_path):
    (tmp_path / "x.toml").write_text(CURED)
    lines = []
    result = runner.run(scenario_format.load(tmp_path / "x.toml"), "flux", sink=lines.append)
    assert result.status == "passed", result.failures
    names = [line.what.name for line in lines if isinstance(line.what, JobEvent)]
    assert names.count("submit") == names.count("epilog-start") == names.count("clean") == 1


@pytest.mark.needs_flux
def test_a_broken_expectation_of_a_later_life_is_told(tmp_path, capsys):
    path = tmp_path / "x.toml"
    life = '[[run]]\n[[run.step]]\nat = "run"\ndo = "sigterm"\n[run.expect]\nexit = {}\n'
    path.write_text(f'about = "x"\n{life.format(0)}{life.format(3)}')
    assert cli.main(["test", "--world", "flux", str(path)]) == 1
    assert "expect.exit: life 2: expected exit code 3, got 0" in capsys.readouterr().out


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
