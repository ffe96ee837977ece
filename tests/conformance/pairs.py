"""Recorded runs of a real Flux, each beside a scenario that tells its input half again, and both compared.

`recorded/NAME.json` and `.log` are runs of flux-core 0.88, unchanged. `scenarios/NAME.toml` has attributes, scripts and
steps; the observed half is read from the recording, never typed. A run that began with what an earlier one had left is
a scenario of two lives, and the second one is compared. What is compared is `observed`'s, and the times that a limit
or a script fixes. A run that the recorder gave up waiting for, and killed, is compared up to there; the scenario's
horizon says when that was. A pair that is put here is found, without a line of code.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from brokerctl import trace
from brokerctl.check.replay import first_difference
from brokerctl.logs import recording
from brokerctl.model import jobstore
from brokerctl.records import JobEvent, Line, Log
from brokerctl.report.sides import Difference
from brokerctl.scenario import compare, lives
from brokerctl.scenario import format as scenario_format
from brokerctl.scenario.format import Scenario, ScenarioFile
from brokerctl.scenario.observed import observed
from brokerctl.scenario.resolve import horizon_ns, resolve
from brokerctl.worlds.contract import Resolved
from brokerctl.worlds.sim.world import SimWorld
from tests.conformance import times

HERE = Path(__file__).parent
Verdict = Literal["equal", "differs", "not expressible"]


class Row(msgspec.Struct):
    """A recorded run: what came of the comparison, of how many things, and why."""

    name: str
    verdict: Verdict
    compared: int = 0
    text: str = ""
    difference: Difference | None = None


def names(folder: Path = HERE) -> list[str]:
    """All that was recorded."""
    return sorted(path.stem for path in (folder / "recorded").glob("*.json"))


def reasons(folder: Path = HERE) -> dict[str, str]:
    """Why runs are not expressible."""
    return tomllib.loads((folder / "not_expressible.toml").read_text())


def rows(folder: Path = HERE) -> Iterator[Row]:
    """One row a recording."""
    for name in names(folder):
        yield row(name, folder)


def row(name: str, folder: Path = HERE, scenario: Scenario | None = None) -> Row:
    """A recording compared with its scenario, or with another one."""
    reason = reasons(folder).get(name)
    path = folder / "scenarios" / f"{name}.toml"
    if reason is not None:
        return Row(name, "differs", text="has a reason and a scenario") if path.exists() else no(name, reason)
    if not path.exists():
        return Row(name, "differs", text=f"no scenario; expected {path}")
    real = recording.read(folder / "recorded" / f"{name}.json")
    try:
        model = simulated(scenario or scenario_format.load(path))
    except Exception as error:  # noqa: BLE001 - a broken model is a red row, too
        return Row(name, "differs", text=f"{type(error).__name__}: {error}")
    return against(name, real, model)


def no(name: str, reason: str) -> Row:
    return Row(name, "not expressible", text=reason)


def against(name: str, real: recording.Recording, model: list[Line]) -> Row:
    """What both have observed, then the times."""
    lines = [line for line in recording.lines(real) if not of_the_recorder(line)]
    if not lines:
        return Row(name, "differs", text="nothing was recorded")
    kind = {"debug": real.has_debug, "jobs": real.jobs}
    one, two = observed(lines, real.size, **kind), observed(model, real.size, **kind)
    found = compare.differ(one, two)
    count = compare.count(one)
    if found is not None:
        return Row(name, "differs", count, compare.in_one_line(found), found)
    fixed = times.fixed(lines, real)
    text = times.differ(fixed, times.fixed(model, real), real) or times.samples_differ(real, model)
    return Row(name, "differs" if text else "equal", count + len(fixed), text)


def of_the_recorder(line: Line) -> bool:
    """What a shell function of the machine it was recorded on printed in an rc1."""
    return isinstance(line.what, Log) and "pyenv" in line.what.text


def simulated(scenario: Scenario) -> list[Line]:
    """The lines of the scenario's last life; the eventlogs are whole, with what came in earlier lives, as the KVS's."""
    stored: dict[str, str] = {}
    earlier: dict[str, str] = {}
    lines: list[Line] = []
    for life in lives.of(scenario):
        lines, earlier = [], stored
        resolved = with_own_streams(resolve(lives.after(life, stored)))
        outcome = SimWorld().run(resolved, lines.append, horizon_ns(life))
        assert outcome.undone == (), outcome
        assert first_difference(trace.header(resolved.settings, resolved.topology), lines) is None
        stored = {**stored, **outcome.stored}
    given_up = scenario.file.horizon != ScenarioFile(about="x").horizon
    assert outcome.kind in ({"horizon", "stuck"} if given_up else {"ended"}), outcome
    return [*earlier_events(earlier), *lines]


def earlier_events(stored: dict[str, str]) -> list[Line]:
    """What the store has of jobs of earlier lives, as lines before the first one."""
    kept = jobstore.decode(stored["jobs"]).jobs if "jobs" in stored else []
    return [
        Line(0, 0, -1, ">", JobEvent(job.id, job.spec.name, name, context))
        for job in kept
        for _, name, context in job.events
    ]


def with_own_streams(resolved: Resolved) -> Resolved:
    """Flux gives rc2 the broker's own standard streams, as `brokerctl run` does."""
    inherit = [
        msgspec.structs.replace(one, command=msgspec.structs.replace(one.command, inherit=True))
        for one in resolved.settings.rc2
    ]
    settings = msgspec.structs.replace(resolved.settings, rc2=tuple(inherit))
    return msgspec.structs.replace(resolved, settings=settings)
