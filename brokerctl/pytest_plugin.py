"""`pytest scenarios/`: an item for each scenario and world; what fails is told as `brokerctl test` tells it.

Every pytest on the machine loads this file, so it imports nothing of weight until a scenario is there.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    # Only for the annotations: a lean start is a promise of this file.
    from brokerctl.report.result import Result
    from brokerctl.scenario.format import Scenario


class ScenarioFailed(Exception):  # noqa: N818 - a result, not an error of the program
    """Raised when expectations or invariants don't hold; `result` says which."""

    def __init__(self, result: Result) -> None:
        super().__init__(result.name)
        self.result = result


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--scenario-world`: which of the worlds that a scenario lists."""
    parser.getgroup("brokerctl").addoption(
        "--scenario-world",
        metavar="W,…",
        default="sim,live",
        help="run brokerctl scenarios in these of the worlds that they list (default: sim,live)",
    )


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """A TOML file that begins with `about = …` is a scenario; `pyproject.toml` and its like are not."""
    if file_path.suffix != ".toml":
        return None
    from brokerctl.scenario.collect import is_scenario

    return ScenarioFile.from_parent(parent, path=file_path) if is_scenario(file_path) else None


class ScenarioFile(pytest.File):
    """A scenario file; a bad one is an error of collection, in one line."""

    def collect(self) -> Iterator[pytest.Item]:
        """An item for each of its worlds that is wanted."""
        from brokerctl.errors import BrokerctlError
        from brokerctl.scenario import format as scenario_format
        from brokerctl.scenario import runner

        try:
            scenario = scenario_format.load(self.path)
            runner.prepare(scenario)
        except BrokerctlError as error:
            raise self.CollectError(str(error)) from None
        wanted = self.config.getoption("--scenario-world").split(",")
        for world in scenario.file.worlds:
            if world in wanted:
                yield ScenarioItem.from_parent(self, name=world, scenario=scenario)


class ScenarioItem(pytest.Item):
    """One scenario in one world."""

    def __init__(self, *, scenario: Scenario, **keywords: Any) -> None:  # noqa: ANN401 - pytest's own
        super().__init__(**keywords)
        self._scenario = scenario

    def runtest(self) -> None:
        """Run it; skipped where the world lacks what it needs."""
        from brokerctl.scenario import runner

        result = runner.run(self._scenario, self.name)
        if result.status == "skipped":
            pytest.skip(result.reason)
        if result.status == "failed":
            raise ScenarioFailed(result)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], *args: Any) -> Any:  # noqa: ANN401
        """The story and the verdict instead of a traceback."""
        if not isinstance(excinfo.value, ScenarioFailed):
            return super().repr_failure(excinfo, *args)
        from brokerctl.report import text

        return text.story(excinfo.value.result) + text.verdict(excinfo.value.result)

    def reportinfo(self) -> tuple[Path, int, str]:
        """What the summary calls it."""
        return self.path, 0, f"{self.path.stem} [{self.name}]"
