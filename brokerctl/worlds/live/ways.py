"""Actors' ways in: for each puppet of a scenario, the argument list that starts a process which acts it out."""

from __future__ import annotations

import errno
import sys
from typing import TYPE_CHECKING

import msgspec

from brokerctl.errors import KernelError
from brokerctl.model.job import JobSpec
from brokerctl.records import Asked
from brokerctl.worlds.contract import Deliver
from brokerctl.worlds.live.launch import BOOT, PATHS
from brokerctl.worlds.puppets import part

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from brokerctl.model.puppet import Part
    from brokerctl.settings import Housekeeping, Perilog, Settings
    from brokerctl.worlds.contract import Resolved
    from brokerctl.worlds.puppets import PuppetSpec

decode_job = msgspec.json.Decoder(JobSpec).decode

# -I: isolated; -S: no site, a quarter of an interpreter's start.
ACTOR = (
    sys.executable, "-ISc", BOOT + "from brokerctl.worlds.live.actor import main; main(sys.argv[1:])", PATHS
)  # fmt: skip


def scripts_of(settings: Settings) -> dict[str, Perilog | Housekeeping]:
    """What runs before and after jobs, where there is such."""
    scripts = {"prolog": settings.prolog, "epilog": settings.epilog, "housekeeping": settings.housekeeping}
    return {name: script for name, script in scripts.items() if script is not None}


class Ways:
    """The ways into the puppets of one scenario; what they need on disk is in `folder`."""

    def __init__(self, scenario: Resolved, folder: Path) -> None:
        self._scenario = scenario
        self._folder = folder
        self._made: dict[str, tuple[str, ...]] = {}

    def of(self, spec: PuppetSpec) -> tuple[str, ...]:
        """The argument list that starts this puppet."""
        if spec.name not in self._made:
            self._made[spec.name] = self._new(spec)
        return self._made[spec.name]

    def pushed(self) -> Iterator[PuppetSpec]:
        """The puppets that steps push, found by the text of their command."""
        by_text = {spec.command: spec for spec in self._scenario.puppets.values()}
        for step in self._scenario.steps:
            deed = step.deed
            if isinstance(deed, Deliver) and isinstance(deed.event, Asked) and deed.event.words:
                spec = by_text.get(deed.event.words[0])
                if spec is not None:
                    yield spec

    def _new(self, spec: PuppetSpec) -> tuple[str, ...]:
        scenario = self._scenario
        uses = self._uses(spec)
        number = spec.start_errno
        file = self._folder / f"puppet-{len(self._made)}"
        if number == errno.ENOENT:
            return (str(file),)
        if number == errno.EACCES:
            file.touch(mode=0o600)
            return (str(file),)
        if number:
            raise KernelError(f"{scenario.name}: puppet {spec.name}: no live process fails to start with {number}")
        counter = [str(file)] if uses > 1 else []
        return (*ACTOR, msgspec.json.encode(self._parts(spec, uses)).decode(), *counter)

    def _parts(self, spec: PuppetSpec, uses: int) -> dict[int, list[Part]]:
        """What its processes do, for each rank; -1 stands for those that do the same as the leader's."""
        seed = self._scenario.seed
        drawn = {
            rank: [part(spec, seed, rank, nth) for nth in range(uses)]
            for rank in range(len(self._scenario.topology.parents))
        }
        return {-1: drawn[0], **{rank: parts for rank, parts in drawn.items() if parts != drawn[0]}}

    def _uses(self, spec: PuppetSpec) -> int:
        """How often this puppet can be started at most, at least 1."""
        settings = self._scenario.settings
        actions = (*settings.rc1, *settings.rc2, *settings.cleanup, *settings.rc3)
        commands = [action.command for action in actions] + [worker.command for worker in settings.workers]
        listed = [command for command in commands if command.puppet == spec.name]
        jobs = self._jobs()
        of_jobs = sum(script.command.puppet == spec.name for script in scripts_of(settings).values()) * len(jobs)
        of_jobs += sum(job.task.puppet == spec.name for job in jobs)
        return max(1, len(listed) + of_jobs + sum(pushed.name == spec.name for pushed in self.pushed()))

    def _jobs(self) -> list[JobSpec]:
        """The jobs that steps submit."""
        events = [step.deed.event for step in self._scenario.steps if isinstance(step.deed, Deliver)]
        return [decode_job(event.text) for event in events if isinstance(event, Asked) and event.what == "submit"]
