"""Under policy `flux` the model does what a real Flux was recorded doing; and the comparison sees where it doesn't."""

import re
import shutil
import tomllib
from pathlib import Path

import msgspec
import pytest

from brokerctl import config
from brokerctl.ids import idset
from brokerctl.logs import recording
from brokerctl.logs.recording import Observed
from brokerctl.records import Drain, Freed, Line, Log, Moved
from brokerctl.scenario import format as scenario_format
from brokerctl.scenario.format import Scenario, ScenarioFile
from tests.conformance import __main__ as table
from tests.conformance import mutants, pairs
from tests.conformance.pairs import HERE, row

NAMES = pairs.names()
NOT_EXPRESSIBLE_MAX = 8


@pytest.mark.parametrize("name", NAMES)
def test_what_is_simulated_is_what_was_recorded(name):
    found = row(name)
    assert found.verdict == ("not expressible" if name in pairs.reasons() else "equal"), found.text


def test_few_runs_are_not_expressible_and_each_for_a_defect_of_flux_or_as_outside_of_the_model():
    reasons = pairs.reasons()
    assert len(reasons) <= NOT_EXPRESSIBLE_MAX
    assert all(text.startswith(("letter ", "outside of the model: ")) for text in reasons.values())
    assert reasons.keys() <= set(NAMES)


def test_every_scenario_has_its_recording():
    assert {path.stem for path in (HERE / "scenarios").glob("*.toml")} <= set(NAMES)


def test_many_runs_are_compared():
    assert len(NAMES) >= 129


# ---- pairs are files


@pytest.fixture
def folder(tmp_path):
    """A place for pairs, with one in it under another name."""
    (tmp_path / "not_expressible.toml").touch()
    put(tmp_path, "05-sigterm-stuck-epilog", "new")
    return tmp_path


def put(folder: Path, name: str, new: str) -> None:
    for kind, suffix in (("recorded", "json"), ("recorded", "log"), ("scenarios", "toml")):
        (folder / kind).mkdir(exist_ok=True)
        shutil.copy(HERE / kind / f"{name}.{suffix}", folder / kind / f"{new}.{suffix}")
        (folder / kind / f"{new}.{suffix}").chmod(0o600)


def test_a_pair_that_is_put_there_is_compared(folder):
    assert [(one.name, one.verdict) for one in pairs.rows(folder)] == [("new", "equal")]


def test_a_recording_without_a_scenario_is_a_row_that_differs(folder):
    (folder / "scenarios" / "new.toml").unlink()
    (found,) = pairs.rows(folder)
    assert found.verdict == "differs"
    assert found.text.startswith("no scenario; expected ")


def test_a_scenario_is_the_same_whatever_was_observed(folder):
    whole = pairs.simulated(scenario_format.load(folder / "scenarios" / "new.toml"))
    path = folder / "recorded" / "new.json"
    blind = msgspec.structs.replace(recording.read(path), observed=Observed(rank0_transitions=[]), log="")
    recording.write(blind, path)
    assert pairs.simulated(scenario_format.load(folder / "scenarios" / "new.toml")) == whole
    assert row("new", folder).verdict == "differs"


def test_the_table_has_a_row_each_and_the_first_difference_side_by_side(folder, monkeypatch, capsys):
    put(folder, "08-cleanup-push", "other")
    rows = pairs.rows
    monkeypatch.setattr(pairs, "rows", lambda: rows(folder))
    assert table.main() == 0
    assert "2 equal, 0 differs, 0 not expressible; 2 recorded runs" in capsys.readouterr().out
    scenario = folder / "scenarios" / "new.toml"
    scenario.write_text(scenario.read_text().replace("sigterm", "signal HUP"))
    assert table.main() == 1
    told = capsys.readouterr().out
    assert re.search(r"^≠ +2\.\d+ broker.info\[0\]: signal 15 .* broker.info\[0\]: signal 1$", told, re.MULTILINE)
    assert "1 equal, 1 differs, 0 not expressible; 2 recorded runs" in told


# ---- the comparison can see


@pytest.mark.parametrize("mutant", mutants.MUTANTS, ids=lambda mutant: mutant.about)
def test_a_wrong_model_is_seen(mutant):
    with mutants.in_place(mutant):
        assert row(mutant.row).verdict == "differs"
    assert row(mutant.row).verdict == "equal"


def test_there_are_mutants_enough():
    assert len(mutants.MUTANTS) >= 20


CHANGES = [
    # run, text of its scenario, what stands there instead
    ("08-cleanup-push", "exit = 5", "exit = 6"),
    ("08-cleanup-push", "exit = 9", "exit = 8"),
    ("08-cleanup-push", "cleanup-push second", "cleanup-push first"),
    ("08-cleanup-push", 'prints-err = ["second-pushed"]', ""),
    ("05-sigterm-stuck-epilog", 'do = "sigterm"', 'do = "signal HUP"'),
    ("05-sigterm-stuck-epilog", '"1" = "forever"', '"1" = "0.1s"'),
    ("05-sigterm-stuck-epilog", 'cleanup-timeout" = "3"', 'cleanup-timeout" = "3.1"'),
    ("02-rc2-fails--killed", '"KILL"', "0"),
    ("24-exit-norestart--flux-shutdown", '"42"', '"41"'),
    ("24-exit-norestart--sigterm", 'do = "sigterm"', 'do = "shutdown"'),
    ("25-sd-notify--sigterm", '"90"', '"91"'),
    ("14-kill9-leaf--idle", 'ranks = "2"', 'ranks = "1"'),
    ("16-kill9-router--idle", 'do = "crash"', 'do = "freeze"'),
    ("33-sigstop-then-kill-leaf", 'do = "crash"', 'do = "thaw"'),
    ("36-router-restart--leader", 'do = "restart"', 'do = "thaw"'),
    ("44-overlay-disconnect--leaf", "disconnect 1", "disconnect 0"),
    ("15-sigstop-leaf--none", 'do = "thaw"', 'do = "crash"'),
    ("39-cleanup-bg-stdout--setsid", 'cleanup-timeout" = "2"', 'cleanup-timeout" = "9"'),
    ("21-epilog-fails-one-rank", '"1" = 4', '"1" = 5'),
    ("21-epilog-fails-one-rank", '"1" = 4', '"0" = 4'),
    ("22-perilog-timeouts--epilog-timeout-term", 'timeout = "1s"', 'timeout = "1.2s"'),
    ("18-hk-fails-one-rank", '"3" = "KILL"', '"3" = 7'),
    ("19-cancel-during-prolog--with-epilog", 'do = "cancel job"', 'do = "post-event job x"'),
    ("20-prolog-fails-one-rank", "per-rank = true", "per-rank = false"),
    ("29-jobtap-hold", 'name = "hold"', 'name = "held"'),
    ("04-sigterm-running-job--noepilog", 'asks = "cancel-running"', ""),
    ("17-hk-partial-release--unset", "[housekeeping]", '[housekeeping]\nrelease-after = "0"'),
]


@pytest.mark.parametrize(("name", "old", "new"), CHANGES)
def test_a_changed_scenario_is_told_apart(name, old, new):
    path = HERE / "scenarios" / f"{name}.toml"
    text = path.read_text()
    assert old in text
    file = config.validate(tomllib.loads(text.replace(old, new)), ScenarioFile, name)
    assert row(name, scenario=Scenario(name=name, path=path, file=file)).verdict == "differs"


def test_changed_observations_are_told_apart():
    name = "08-cleanup-push"
    model = pairs.simulated(scenario_format.load(HERE / "scenarios" / f"{name}.toml"))
    real = recording.read(HERE / "recorded" / f"{name}.json")
    assert pairs.against(name, real, model).verdict == "equal"
    lines = real.log.splitlines(keepends=True)
    for changed in (
        msgspec.structs.replace(real, log="".join(line for line in lines if "cleanup.3:" not in line)),
        msgspec.structs.replace(real, log=real.log.replace("Exited (rc=9)", "Exited (rc=8)")),
        msgspec.structs.replace(real, observed=msgspec.structs.replace(real.observed, broker_rc={})),
        msgspec.structs.replace(real, observed=msgspec.structs.replace(real.observed, notify=[(0, 0, "READY=1")])),
    ):
        assert pairs.against(name, changed, model).verdict == "differs"


# ---- recordings are read as their recorder read them


@pytest.mark.parametrize("name", NAMES)
def test_log_and_summary_of_a_recording_agree(name):
    real = recording.read(HERE / "recorded" / f"{name}.json")
    lines = recording.lines(msgspec.structs.replace(real, steps=real.steps[:1]))  # also what came after it gave up
    expected = {0: real.observed.rank0_transitions}
    expected |= {int(rank): rows for rank, rows in real.observed.other_ranks_transitions.items()}
    assert {rank: [one[:3] for one in rows] for rank, rows in expected.items()} == {
        rank: moved(lines, rank) for rank in expected
    }
    drains = [event.context["idset"] for event in real.observed.drained if event.name == "drain" and event.t > 0]
    assert drains == [idset(line.what.ranks) for line in lines if isinstance(line.what, Drain)]


def moved(lines: list[Line], rank: int) -> list[tuple[str, str, str]]:
    found = [line.what for line in lines if line.rank == rank and isinstance(line.what, Moved)]
    return [(what.event, what.old, what.new) for what in found]


def test_a_kill_of_housekeeping_gives_its_node_back():
    lines = pairs.simulated(scenario_format.load(HERE / "scenarios" / "57-hk-partial-at-stop.toml"))
    assert [line.what.ranks for line in lines if isinstance(line.what, Freed)] == [(0,), (1,)]
    assert any(isinstance(line.what, Log) and line.what.text.endswith(": Terminated") for line in lines)
