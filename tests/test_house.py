"""The house's rules are enforced, and the enforcement works: a broken rule is found."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def lint(root: Path) -> tuple[int, str]:
    """import-linter's verdict on a copy of the house."""
    command = Path(sys.executable).with_name("lint-imports")
    if not command.exists():
        pytest.skip("import-linter is not installed beside this Python")
    done = subprocess.run(
        [command, "--no-cache"], cwd=root, capture_output=True, text=True, timeout=120, check=False,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(root)},
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def house(tmp_path):
    shutil.copytree(ROOT / "brokerctl", tmp_path / "brokerctl", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("module", "statement", "contract"),
    [
        ("model/ladder.py", "import os", "The model is pure"),
        ("model/ladder.py", "from brokerctl.worlds.sim import world", "The house"),
        ("model/run.py", "import random", "The model is pure"),
        ("worlds/sim/world.py", "from brokerctl.kernel import proc", "The simulator never touches"),
        ("worlds/sim/world.py", "from brokerctl.worlds.live import loop", "The house"),
        ("kernel/proc.py", "from brokerctl.model import tree", "The house"),
        ("logs/fluxlog.py", "from brokerctl.report import text", "The house"),
    ],
)
def test_an_import_that_points_upwards_or_out_of_the_model_is_found(house, module, statement, contract):
    path = house / "brokerctl" / module
    text = path.read_text()
    mark = "from __future__ import annotations\n"
    assert mark in text
    path.write_text(text.replace(mark, f"{mark}\n{statement}\n", 1))
    code, said = lint(house)
    assert code != 0
    assert any(line.startswith(contract) and line.endswith("BROKEN") for line in said.splitlines()), said


def test_the_house_as_it_stands_keeps_its_contracts(house):
    code, said = lint(house)
    assert code == 0, said
