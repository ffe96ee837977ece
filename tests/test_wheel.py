"""What is built can be installed: the source distribution, the wheel, and the wheel in an empty environment."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from tests.console import ROOT

_PATIENCE_S = 300.0


def call(*words: str | Path, cwd: Path) -> str:
    done = subprocess.run(
        [str(word) for word in words], cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=_PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    place = tmp_path_factory.mktemp("dist")
    call(sys.executable, "-m", "build", "--no-isolation", "--outdir", place, ROOT, cwd=place)
    return place


def test_the_source_distribution_has_all_that_its_tests_need(built):
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as files:
        names = {name.partition("/")[2] for name in files.getnames()}
    for needed in ("pyproject.toml", "Makefile", "LICENSE", "README.md", "scenarios/stuck-cleanup.toml"):
        assert needed in names
    for folder in ("brokerctl/", "unitfiles/", "tests/conformance/recorded/", "docs/"):
        assert any(name.startswith(folder) for name in names), folder


def test_the_wheel_has_the_package_and_no_tests(built):
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as files:
        names = files.namelist()
    assert "brokerctl/py.typed" in names
    assert not [name for name in names if name.startswith(("tests/", "scenarios/"))]


def test_the_wheel_installed_into_an_empty_environment_simulates_and_renders_units(built, tmp_path):
    (wheel,) = built.glob("*.whl")
    home = tmp_path / "venv"
    venv.create(home, with_pip=True)
    programs = home / "bin"
    call(programs / "python", "-m", "pip", "install", "--quiet", wheel, cwd=tmp_path)
    (tmp_path / "mine.toml").write_bytes((ROOT / "scenarios" / "stuck-cleanup.toml").read_bytes())
    told = call(programs / "brokerctl", "simulate", "mine.toml", cwd=tmp_path)
    assert "mine (sim, flux): ok" in told
    call(programs / "brokerctl", "units", "--install", tmp_path / "units", cwd=tmp_path)
    unit = (tmp_path / "units" / "flux.service.d" / "brokerctl.conf").read_text()
    assert f"{programs / 'python'}" in unit
