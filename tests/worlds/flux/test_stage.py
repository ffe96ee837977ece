"""The private directory of a life, and what it leaves to the next one; no Flux is started here."""

import os
import signal
import tarfile
import tempfile
import tomllib
from pathlib import Path

import msgspec
import pytest

from brokerctl import config
from brokerctl.errors import KernelError
from brokerctl.records import Command, Ended, Line, Moved, Start
from brokerctl.scenario.format import Scenario, ScenarioFile
from brokerctl.scenario.resolve import resolve
from brokerctl.worlds.flux import kept
from brokerctl.worlds.flux.observing import Observations
from brokerctl.worlds.flux.stage import Stage
from brokerctl.worlds.flux.world import _begun, _Run

JOB = "[[job]]\nname = 'j'\npuppet = 'p'\n[puppet.p]\nruns = '1s'\n"


def resolved(text=JOB):
    file = config.validate(tomllib.loads('about = "x"\n' + text), ScenarioFile, "x")
    return resolve(Scenario(name="x", path=Path("x"), file=file))


def staged(scenario=None):
    return Stage(scenario or resolved(), "/usr/bin/flux")


# ---- lives


def left_by_a_first_life():
    """What a first life has stored that had a job and wrote a file, and its stage, which is gone."""
    first = staged()
    (first.folder / "state" / "content.sqlite").write_bytes(b"\0what was kept\xff")
    stored = first.stored({"j": "ƒ1"})
    first.close()
    return first, stored


def test_the_next_life_has_the_same_directory_cookie_jobs_and_state_and_else_a_new_start():
    first, stored = left_by_a_first_life()
    assert not first.folder.exists()
    second = staged(msgspec.structs.replace(resolved(), restored=stored))
    try:
        assert (second.folder, second.cookie, second.earlier) == (first.folder, first.cookie, {"j": "ƒ1"})
        assert kept.files(second.folder / "state") == {"content.sqlite": b"\0what was kept\xff"}
        assert list((second.folder / "run").iterdir()) == []
        assert second.folder.stat().st_mode & 0o777 == 0o700
    finally:
        second.close()


def test_a_directory_that_somebody_has_made_in_the_place_of_the_last_life_is_not_used():
    first, stored = left_by_a_first_life()
    first.folder.mkdir()
    try:
        with pytest.raises(KernelError, match=f"cannot make {first.folder}: File exists"):
            staged(msgspec.structs.replace(resolved(), restored=stored))
        assert list(first.folder.iterdir()) == []
    finally:
        first.folder.rmdir()


def test_without_modules_nothing_is_kept():
    stage = staged(resolved("cleanup = [{ puppet = 'p' }]\n[puppet.p]\n"))
    try:
        assert stage.stored({}) == {}
    finally:
        stage.close()


# ---- where it is


@pytest.mark.parametrize(
    ("name", "expected"), [("x" * 100, "too long a path for the sockets"), ("a b", "that a shell would take apart")]
)
def test_a_directory_that_flux_could_not_use_is_refused_in_one_line(name, expected, tmp_path, monkeypatch):
    folder = tmp_path / name
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    with pytest.raises(KernelError, match=expected):
        staged()
    assert list(folder.iterdir()) == []


# ---- what Flux is told


def test_limits_of_heartbeats_are_told_where_they_are_not_flux_s_own():
    stage = staged(resolved(JOB + "[attrs]\n'heartbeat.timeout' = '8s'\n'tbon.torpid_max' = 'none'\n"))
    try:
        assert '[heartbeat]\ntimeout = "8s"\n' in stage.config
        assert stage.attributes()["tbon.torpid_max"] == "0"
    finally:
        stage.close()
    stage = staged()
    try:
        assert "heartbeat" not in stage.config
        assert "tbon.torpid_max" not in stage.attributes()
    finally:
        stage.close()


def test_nodes_have_the_cores_of_the_scenario_wherever_it_is_run():
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})  # one core is what a Flux would find
    try:
        stage = staged()
        try:
            spec = msgspec.json.decode((stage.folder / "conf" / "R.json").read_bytes())
            assert spec["execution"]["R_lite"] == [{"rank": "0", "children": {"core": "0-1"}}]
            assert f'path = "{stage.folder}/conf/R.json"\nnoverify = true\n' in stage.config
        finally:
            stage.close()
    finally:
        os.sched_setaffinity(0, allowed)


# ---- who is left


class Frozen:
    """An instance whose brokers hear signals, and do nothing."""

    def __init__(self):
        self.heard = []
        self.clock = self.realtime_ns = lambda: 0

    def signal(self, rank, signum):
        self.heard.append((rank, signum))
        return True


def test_who_is_frozen_when_all_others_have_ended_is_ended_but_for_one_that_is_still_to_be_thawed():
    text = "[instance]\nsize = 2\n[[fault]]\nat = 'run + 1s'\ndo = 'thaw'\nranks = '1'\n"
    stage, instance = staged(resolved(text)), Frozen()
    run = _Run(stage, resolved(text), instance, 1)
    stage.close()
    run._left = run._frozen = {1}
    run._see(0, Moved("quorum-full", "quorum", "run", 1))
    run._end_frozen()
    assert instance.heard == []
    run._due.clear()
    run._end_frozen()
    assert instance.heard == [(1, signal.SIGKILL)]


# ---- what is seen


@pytest.mark.parametrize("part", [0, 0.1, 0.5, 0.9])
def test_a_dump_that_was_not_written_to_its_end_tells_what_it_has(part):
    stage = staged()
    try:
        with tarfile.open(stage.dump, "w:gz") as dump:
            dump.add(__file__, "resource/other")
        whole = stage.dump.read_bytes()
        stage.dump.write_bytes(whole[: int(len(whole) * part)])
        assert Observations(lambda: 0, lambda: 0).recording(stage, "x").observed.eventlogs == {}
    finally:
        stage.close()


def test_the_start_of_an_action_that_was_dropped_is_not_told():
    starts = [start("cleanup.0"), start("cleanup.1"), start("rc3.0")]
    told = [
        Line(2, 0, 0, ">", Ended("cleanup.0", "x", 4, "Exited", 1)),  # it was aborted, and had a code of its own
        Line(2, 0, 0, ">", Moved("cleanup-fail", "cleanup", "shutdown", 1)),
    ]
    assert _begun(starts, told) == [starts[0], starts[2]]


def start(run):
    return Line(1, 0, 0, ">", Start(run, Command("x")))
