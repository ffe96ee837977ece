"""Units to judge, out of texts and files."""

from pathlib import Path

import pytest

from brokerctl.lint import engine, fluxconfig
from brokerctl.lint.subject import Subject
from brokerctl.unit import load, merge

FIXTURES = Path(__file__).parent / "fixtures"


def of_directory(directory):
    """The units of a fixture, with Flux's configuration where one stands beside them."""
    config = directory / "flux.toml"
    flux = fluxconfig.load(config) if config.exists() else None
    return [Subject(load(path), flux) for path in sorted(directory.iterdir()) if path.name.endswith(merge.SUFFIXES)]


@pytest.fixture
def judge(tmp_path):
    """The ids of the rules that a unit breaks, from its text; in the order of the lines."""

    def judged(text, name="site.service"):
        path = tmp_path / name
        path.write_text(text)
        return [finding.rule for finding in engine.judge(Subject(load(path)))]

    return judged
