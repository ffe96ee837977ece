"""`[[job]]`, `[perilog]`, `[housekeeping]`, `[[hold]]`, `[service]`: what they mean to the model; steps about jobs.

Errors are ScenarioError, `FILE: job[N].KEY: what; expected …`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import msgspec

from brokerctl.durations import MINUTE
from brokerctl.errors import ScenarioError
from brokerctl.model import jobstore
from brokerctl.model.job import JobSpec
from brokerctl.records import Asked, Command, JobEvent, Line
from brokerctl.scenario import moments, puppets
from brokerctl.scenario.format import Scenario, ScenarioFile
from brokerctl.scenario.jobtables import HoldEntry, JobEntry, ScriptEntry
from brokerctl.scenario.sets import rank_set
from brokerctl.settings import Hold, Housekeeping, NodeService, Perilog
from brokerctl.worlds.contract import Deed, Deliver, Step
from brokerctl.worlds.puppets import PuppetSpec

# flux-config-job-manager(5): a prolog may take that long, an epilog any time.
PROLOG_TIMEOUT_NS = 30 * MINUTE
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,99}")
_TAKEN = frozenset({"rank"})

Find = Callable[[str, str], PuppetSpec]  # name, where → the puppet


def settings(file: ScenarioFile, find: Find, where: str) -> dict[str, Any]:
    """The settings that are about jobs."""
    fields: dict[str, Any] = {"cores": file.instance.cores}
    if file.perilog.prolog is not None:
        fields["prolog"] = _script(file.perilog.prolog, find, f"{where}: perilog.prolog", prolog=True)
    if file.perilog.epilog is not None:
        fields["epilog"] = _script(file.perilog.epilog, find, f"{where}: perilog.epilog", prolog=False)
    if file.housekeeping is not None:
        after = file.housekeeping.release_after
        fields["housekeeping"] = Housekeeping(
            command=_command(find(file.housekeeping.puppet, f"{where}: housekeeping.puppet")),
            release_after_ns=None if after is None else puppets.duration(after, f"{where}: housekeeping.release-after"),
        )
    fields["services"] = tuple(
        NodeService(name=name, active=one.active, started_by=one.started_by, stopped_by=one.stopped_by, quiet=one.quiet)
        for name, one in file.service.items()
    )
    fields["holds"] = tuple(_hold(one, file, f"{where}: hold[{index}]") for index, one in enumerate(file.hold))
    return fields


def _command(spec: PuppetSpec) -> Command:
    return Command(spec.command, puppet=spec.name)


def _script(entry: ScriptEntry, find: Find, where: str, *, prolog: bool) -> Perilog:
    timeout_ns = PROLOG_TIMEOUT_NS if prolog else None
    if entry.timeout is not None:
        timeout_ns = puppets.duration(entry.timeout, f"{where}.timeout")
    return Perilog(
        command=_command(find(entry.puppet, f"{where}.puppet")),
        per_rank=entry.per_rank,
        timeout_ns=timeout_ns,
        kill_timeout_ns=puppets.finite(entry.kill_timeout, f"{where}.kill-timeout"),
        cancel_on_exception=prolog if entry.cancel_on_exception is None else entry.cancel_on_exception,
    )


def _hold(entry: HoldEntry, file: ScenarioFile, where: str) -> Hold:
    if entry.until and entry.until not in file.service:
        known = ", ".join(file.service) or "none"
        raise ScenarioError(f"{where}.until: unknown service {entry.until!r}; known are {known}")
    if entry.until and entry.for_ is not None:
        raise ScenarioError(f"{where}.for: it waits until {entry.until} is active; expected only one of them")
    after_ns = None if entry.for_ is None else puppets.duration(entry.for_, f"{where}.for")
    return Hold(name=entry.name, phase=entry.phase, after_ns=after_ns, until=entry.until, posts=entry.posts)


# ---- what is submitted ---------------------------------------------------------------------------------


def steps(scenario: Scenario, find: Find, size: int) -> list[Step]:
    """A step for each job of the file."""
    found: list[Step] = []
    names = scenario.jobs()
    for index, entry in enumerate(scenario.file.job):
        where = f"{scenario.path}: job[{index}]"
        if not _NAME.fullmatch(entry.name) or entry.name in _TAKEN:
            raise ScenarioError(f"{where}.name: {entry.name!r} is no name; expected letters, digits, '-', '_' and '.'")
        if names.count(entry.name) > 1:
            raise ScenarioError(f"{where}.name: {entry.name!r} stands here twice")
        spec = _spec(entry, find, size, scenario.file.instance.cores, where)
        low, high = _width(entry, size, f"{where}.nodes")
        every = puppets.span(entry.every, f"{where}.every")
        random = Random(f"{scenario.file.seed}/job/{entry.name}")
        moment, after_ns = moments.of_step(entry.at, size, f"{where}.at", names), 0
        for nth in range(entry.count):
            name = entry.name if nth == 0 else f"{entry.name}-{nth + 1}"
            own = msgspec.structs.replace(moment, offset_ns=moment.offset_ns + after_ns)
            after_ns += every.draw(random) or 0
            one = msgspec.structs.replace(spec, name=name, nodes=low if low == high else random.randint(low, high))
            text = msgspec.json.encode(one).decode()
            found.append(Step(own.trigger(), Deliver(0, Asked("submit", 1, text=text)), entry.at))
    return found


def _width(entry: JobEntry, size: int, where: str) -> tuple[int, int]:
    """The least and the most nodes that it may want."""
    words = str(entry.nodes or 1).split("..")
    if len(words) > 2 or not all(word.isascii() and word.isdigit() and len(word) < 9 for word in words):
        raise ScenarioError(f"{where}: {entry.nodes!r} is no number of nodes; expected such as 4 or 1..64")
    low, high = int(words[0]), int(words[-1])
    if not 1 <= low <= high <= size:
        raise ScenarioError(f"{where}: {entry.nodes} can't be; expected 1 to {size}")
    return low, high


def _spec(entry: JobEntry, find: Find, size: int, cores: int, where: str) -> JobSpec:
    if entry.ranks is not None and entry.nodes is not None:
        raise ScenarioError(f"{where}.nodes: the ranks are given; expected only one of them")
    if (entry.cores or 1) > cores:
        raise ScenarioError(f"{where}.cores: {entry.cores} is too many; expected at most {cores} of a node")
    ranks: tuple[int, ...] = ()
    if entry.ranks is not None:
        try:
            ranks = tuple(rank_set(entry.ranks, size))
        except ValueError as error:
            raise ScenarioError(f"{where}.ranks: {error}") from None
    return JobSpec(
        name=entry.name,
        task=_command(find(entry.puppet, f"{where}.puppet")),
        user=entry.user,
        ranks=ranks,
        cores=entry.cores,
    )


# ---- steps about jobs ----------------------------------------------------------------------------------

ABOUT_JOBS = ("cancel", "post-event", "hold", "release-action", "housekeeping-kill")
DEEDS = "cancel JOB, post-event JOB NAME KEY=VALUE…, hold JOB NAME, release-action JOB NAME or housekeeping-kill JOB"


def deed(words: list[str], reply: int, jobs: list[str], where: str) -> Deed:
    """What a step asks of the job manager."""
    what, *rest = words
    if not rest or (rest[0] not in jobs and not (what == "housekeeping-kill" and rest == ["all"])):
        known = ", ".join(jobs[:12]) or "none"
        name = rest[0] if rest else ""
        raise ScenarioError(f"{where}: unknown job {name!r}; known are {known}")
    if len(rest) < {"post-event": 2, "hold": 2, "release-action": 2}.get(what, 1):
        raise ScenarioError(f"{where}: {' '.join(words)!r} can't be done; expected {DEEDS}")
    return Deliver(0, Asked(what.removesuffix("-action"), reply, tuple(rest)))


class JobNames:
    """Learns what each job's id is, so that a log line can be read with the name that a scenario gives it."""

    def __init__(self, restored: Mapping[str, str]) -> None:
        self.labels = jobstore.labels(restored[jobstore.KEY]) if jobstore.KEY in restored else {}

    def see(self, line: Line) -> None:
        """The next line of the run."""
        what = line.what
        if isinstance(what, JobEvent) and what.job not in self.labels:
            self.labels[what.job] = what.label

    def named(self, text: str) -> str:
        """The text with names instead of ids."""
        for job, label in self.labels.items():
            text = text.replace(job, label)
        return text
