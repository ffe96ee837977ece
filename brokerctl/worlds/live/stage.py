"""What a scenario needs on disk to be acted out: a private directory with settings, a trace FIFO, and actors' ways in.

Settings go to the broker exactly as they were resolved; only what a puppet's command runs is filled in: an actor, or,
for a puppet that can't be started, a file that fails so.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from brokerctl.errors import KernelError
from brokerctl.worlds.live import launch
from brokerctl.worlds.live.store import STORE, Store
from brokerctl.worlds.live.ways import Ways, decode_job, scripts_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from brokerctl.records import Command
    from brokerctl.settings import Action, Settings
    from brokerctl.worlds.contract import Resolved

LISTS = ("rc1", "rc2", "cleanup", "rc3")

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
        self._ways = Ways(scenario, self.folder)
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
            for name, script in scripts_of(settings).items()
        }
        workers = tuple(
            msgspec.structs.replace(worker, command=self._command(worker.command)) for worker in settings.workers
        )
        ways = {spec.command: self._ways.of(spec) for spec in self._ways.pushed()}
        shell = self.folder / "shell"
        shell.write_text(_SHELL.format(python=sys.executable, ways=ways))
        shell.chmod(0o700)
        return msgspec.structs.replace(settings, shell=str(shell), workers=workers, **lists, **scripts)

    def submission(self, text: str) -> str:
        """A job's specification with what its task runs filled in."""
        spec = decode_job(text)
        return msgspec.json.encode(msgspec.structs.replace(spec, task=self._command(spec.task))).decode()

    def _action(self, action: Action) -> Action:
        return msgspec.structs.replace(action, command=self._command(action.command))

    def _command(self, command: Command) -> Command:
        if not command.puppet:
            raise KernelError(f"{self._scenario.name}: {command.text!r} is no puppet; nothing else is run live")
        return msgspec.structs.replace(command, argv=self._ways.of(self._scenario.puppets[command.puppet]))
