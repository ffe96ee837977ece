"""What a scenario needs on disk to be acted out: a private directory with settings, a trace FIFO, and actors' ways in.

Settings go to the broker exactly as they were resolved; only what a puppet's command runs is filled in: an actor, or,
for a puppet that can't be started, a file that fails so.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from brokerctl.errors import KernelError
from brokerctl.model.job import JobSpec
from brokerctl.records import Asked
from brokerctl.worlds.contract import Deliver
from brokerctl.worlds.live import launch
from brokerctl.worlds.live.launch import BOOT, PATHS
from brokerctl.worlds.live.store import STORE, Store
from brokerctl.worlds.puppets import part

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from brokerctl.model.puppet import Part
    from brokerctl.records import Command
    from brokerctl.settings import Action, Housekeeping, Perilog, Settings
    from brokerctl.worlds.contract import Resolved
    from brokerctl.worlds.puppets import PuppetSpec

_decode_job = msgspec.json.Decoder(JobSpec).decode
LISTS = ("rc1", "rc2", "cleanup", "rc3")

# -I: isolated; -S: no site, a quarter of an interpreter's start.
ACTOR = (
    sys.executable, "-ISc", BOOT + "from brokerctl.worlds.live.actor import main; main(sys.argv[1:])", PATHS
)  # fmt: skip

# What the broker takes for a shell: `SHELL -c TEXT` becomes the actor of a puppet that was pushed while it runs.
# Signals are blocked at once, and the actor inherits that.
_SHELL = """\
#!{python} -IS
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
ways = {ways!r}
way = ways.get(sys.argv[2])
if way is None:
    sys.exit(127)
os.execv(way[0], way)
"""


class Stage:
    """The private directory of one run of one scenario; `close` removes it."""

    def __init__(self, scenario: Resolved) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="brokerctl-"))
        self.settings = self.folder / "settings"
        self.size = len(scenario.topology.parents)
        self._scenario = scenario
        self._ways: dict[str, tuple[str, ...]] = {}
        try:
            for rank in range(self.size):
                os.mkfifo(self.trace(rank), 0o600)
            if scenario.restored:
                self._restore(scenario.restored)
            self.settings.write_bytes(msgspec.json.encode((self._fill_in(), scenario.topology)))
        except BaseException:
            self.close()
            raise

    def _restore(self, values: Mapping[str, str]) -> None:
        """Put what the leader's earlier life has stored where it will look for it."""
        self.rundir(0).mkdir(mode=0o700)
        failed = Store(self.rundir(0) / STORE).put_all(values)
        if failed:
            raise KernelError(f"cannot restore: {failed}")

    def close(self) -> None:
        """Remove it all."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def rundir(self, rank: int) -> Path:
        """A rank's rundir."""
        return launch.rundir(self.folder, rank)

    def trace(self, rank: int) -> Path:
        """The FIFO of a rank's trace."""
        return self.folder / f"trace.{rank}"

    def stderr(self, rank: int) -> Path:
        """What a rank's broker writes to stderr."""
        return self.folder / f"stderr.{rank}"

    def argv(self, rank: int) -> list[str]:
        """The argument list of a rank's broker."""
        more = ("--trace", str(self.trace(rank)), "--breakable")
        return launch.argv(self.folder, rank, self._scenario.topology, self.settings, *more)

    def last_words(self, rank: int) -> str:
        """The last line that a rank's broker wrote to stderr."""
        lines = self.stderr(rank).read_bytes()[-4096:].decode(errors="replace").split("\n")
        return next((line for line in reversed(lines) if line.strip()), "nothing")

    def _fill_in(self) -> Settings:
        settings = self._scenario.settings
        lists = {name: tuple(map(self._action, getattr(settings, name))) for name in LISTS}
        scripts = {
            name: msgspec.structs.replace(script, command=self._command(script.command))
            for name, script in self._scripts().items()
        }
        ways = {spec.command: self._way(spec) for spec in self._pushed()}
        shell = self.folder / "shell"
        shell.write_text(_SHELL.format(python=sys.executable, ways=ways))
        shell.chmod(0o700)
        return msgspec.structs.replace(settings, shell=str(shell), **lists, **scripts)

    def submission(self, text: str) -> str:
        """A job's specification with what its task runs filled in."""
        spec = _decode_job(text)
        return msgspec.json.encode(msgspec.structs.replace(spec, task=self._command(spec.task))).decode()

    def _scripts(self) -> dict[str, Perilog | Housekeeping]:
        """What runs before and after jobs, where there is such."""
        settings = self._scenario.settings
        scripts = {"prolog": settings.prolog, "epilog": settings.epilog, "housekeeping": settings.housekeeping}
        return {name: script for name, script in scripts.items() if script is not None}

    def _jobs(self) -> list[JobSpec]:
        """The jobs that steps submit."""
        events = [step.deed.event for step in self._scenario.steps if isinstance(step.deed, Deliver)]
        return [_decode_job(event.text) for event in events if isinstance(event, Asked) and event.what == "submit"]

    def _action(self, action: Action) -> Action:
        return msgspec.structs.replace(action, command=self._command(action.command))

    def _command(self, command: Command) -> Command:
        if not command.puppet:
            raise KernelError(f"{self._scenario.name}: {command.text!r} is no puppet; nothing else is run live")
        return msgspec.structs.replace(command, argv=self._way(self._scenario.puppets[command.puppet]))

    def _pushed(self) -> Iterator[PuppetSpec]:
        """The puppets that steps push, found by the text of their command."""
        by_text = {spec.command: spec for spec in self._scenario.puppets.values()}
        for step in self._scenario.steps:
            deed = step.deed
            if isinstance(deed, Deliver) and isinstance(deed.event, Asked) and deed.event.words:
                spec = by_text.get(deed.event.words[0])
                if spec is not None:
                    yield spec

    def _way(self, spec: PuppetSpec) -> tuple[str, ...]:
        """The argument list that starts this puppet."""
        if spec.name not in self._ways:
            self._ways[spec.name] = self._new_way(spec)
        return self._ways[spec.name]

    def _new_way(self, spec: PuppetSpec) -> tuple[str, ...]:
        scenario = self._scenario
        uses = self._uses(spec)
        number = spec.start_errno
        file = self.folder / f"puppet-{len(self._ways)}"
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
        drawn = {rank: [part(spec, seed, rank, nth) for nth in range(uses)] for rank in range(self.size)}
        return {-1: drawn[0], **{rank: parts for rank, parts in drawn.items() if parts != drawn[0]}}

    def _uses(self, spec: PuppetSpec) -> int:
        """How often this puppet can be started at most, at least 1."""
        settings = self._scenario.settings
        actions = (*settings.rc1, *settings.rc2, *settings.cleanup, *settings.rc3)
        listed = [action for action in actions if action.command.puppet == spec.name]
        jobs = self._jobs()
        of_jobs = sum(script.command.puppet == spec.name for script in self._scripts().values()) * len(jobs)
        of_jobs += sum(job.task.puppet == spec.name for job in jobs)
        return max(1, len(listed) + of_jobs + sum(pushed.name == spec.name for pushed in self._pushed()))
