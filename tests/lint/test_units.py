"""Whole units: the one that comes with Flux, ours, and those of the machine."""

import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from brokerctl.lint import engine, targets
from brokerctl.lint.subject import Subject
from brokerctl.unit import UnitError, load
from tests.console import ROOT
from tests.lint.conftest import FIXTURES

STOCK = FIXTURES.parent / "units" / "flux.service"
UNITFILES = ROOT / "unitfiles"
SYSTEM = Path("/lib/systemd/system")


def judge(path):
    return engine.judge(Subject(load(path)))


def rendered(path, place):
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(path.read_text().replace("@PYTHON@", "/usr/bin/python3"))
    return place


def test_the_unit_that_comes_with_flux_waits_for_peers_longer_than_systemd_does():
    found = judge(STOCK)
    [error] = [finding for finding in found if finding.severity == "error"]
    assert error.rule == "chain-shutdown"
    assert error.text == (
        "shutdown may take 5m1s, but the broker's extension is over after 90s: SIGKILL; "
        "rc3 does not run: no dump, and running jobs are forgotten"
    )
    assert "broker.shutdown-timeout=5m" in error.line
    assert {finding.rule for finding in found} == {"chain-shutdown", "no-network-order", "norestart-hides-failure"}


def test_with_our_drop_in_it_is_clean(tmp_path):
    unit = tmp_path / "flux.service"
    shutil.copy(STOCK, unit)
    rendered(UNITFILES / "flux.service.d" / "brokerctl.conf", tmp_path / "flux.service.d" / "brokerctl.conf")
    assert judge(unit) == []


@pytest.mark.parametrize("path", sorted(UNITFILES.glob("*.service")), ids=lambda path: path.name)
def test_each_of_our_units_is_clean(path, tmp_path):
    assert judge(rendered(path, tmp_path / path.name)) == []


@pytest.mark.skipif(not SYSTEM.is_dir(), reason="no systemd is installed")
def test_every_unit_of_the_machine_can_be_judged_and_those_of_systemd_have_no_error():
    units = list(targets.units([str(SYSTEM)], []))
    assert len(units) > 50
    wrong = []
    for unit in units:
        found = engine.judge(Subject(unit))
        wrong += [found for found in found if found.severity == "error" and unit.name.startswith("systemd-")]
    assert not wrong


def test_a_unit_that_is_cut_off_anywhere_is_judged_or_refused_in_one_line(tmp_path):
    data = STOCK.read_bytes()
    path = tmp_path / "flux.service"
    for end in range(0, len(data), 7):
        path.write_bytes(data[:end])
        with suppress(UnitError):
            judge(path)
