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

import brokerctl
from brokerctl.errors import KernelError
from brokerctl.records import Asked
from brokerctl.worlds.contract import Deliver
from brokerctl.worlds.puppets import part

if TYPE_CHECKING:
    from collections.abc import Iterator

    from brokerctl.settings import Action, Settings
    from brokerctl.worlds.contract import Resolved
    from brokerctl.worlds.puppets import PuppetSpec

LISTS = ("rc1", "rc2", "cleanup", "rc3")

# From a checkout or installed, and whatever the directory: what an interpreter needs to find, and nothing else.
PATHS = ":".join(dict.fromkeys(str(Path(str(module.__file__)).parents[1]) for module in (brokerctl, msgspec)))
BOOT = "import sys; sys.path[:0] = sys.argv.pop(1).split(':'); "
# -I: isolated; -S: no site, a quarter of an interpreter's start.
ACTOR = (
    sys.executable, "-ISc", BOOT + "from brokerctl.worlds.live.actor import main; main(sys.argv[1:])", PATHS
)  # fmt: skip
BROKER = (sys.executable, "-Pc", BOOT + "from brokerctl.cli import main; sys.exit(main(sys.argv[1:]))", PATHS)

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
        self.rundir = self.folder / "run"
        self.trace = self.folder / "trace"
        self.stderr = self.folder / "stderr"
        self.settings = self.folder / "settings"
        self._scenario = scenario
        self._ways: dict[str, tuple[str, ...]] = {}
        try:
            os.mkfifo(self.trace, 0o600)
            self.settings.write_bytes(msgspec.json.encode((self._fill_in(), scenario.topology)))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Remove it all."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def argv(self) -> list[str]:
        """The broker's argument list."""
        return [
            *BROKER, "run",
            "--settings", str(self.settings), "--rundir", str(self.rundir), "--trace", str(self.trace),
        ]  # fmt: skip

    def last_words(self) -> str:
        """The last line that the broker wrote to stderr."""
        lines = self.stderr.read_bytes()[-4096:].decode(errors="replace").split("\n")
        return next((line for line in reversed(lines) if line.strip()), "nothing")

    def _fill_in(self) -> Settings:
        settings = self._scenario.settings
        lists = {name: tuple(map(self._action, getattr(settings, name))) for name in LISTS}
        ways = {spec.command: self._way(spec) for spec in self._pushed()}
        shell = self.folder / "shell"
        shell.write_text(_SHELL.format(python=sys.executable, ways=ways))
        shell.chmod(0o700)
        return msgspec.structs.replace(settings, shell=str(shell), **lists)

    def _action(self, action: Action) -> Action:
        command = action.command
        if not command.puppet:
            raise KernelError(f"{self._scenario.name}: {command.text!r} is no puppet; nothing else is run live")
        filled = msgspec.structs.replace(command, argv=self._way(self._scenario.puppets[command.puppet]))
        return msgspec.structs.replace(action, command=filled)

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
        parts = [part(spec, scenario.seed, 0, nth) for nth in range(uses)]
        number = parts[0].start_errno
        file = self.folder / f"puppet-{len(self._ways)}"
        if number == errno.ENOENT:
            return (str(file),)
        if number == errno.EACCES:
            file.touch(mode=0o600)
            return (str(file),)
        if number:
            raise KernelError(f"{scenario.name}: puppet {spec.name}: no live process fails to start with {number}")
        counter = [str(file)] if uses > 1 else []
        return (*ACTOR, msgspec.json.encode(parts).decode(), *counter)

    def _uses(self, spec: PuppetSpec) -> int:
        """How often this puppet can be started at most, at least 1."""
        settings = self._scenario.settings
        actions = (*settings.rc1, *settings.rc2, *settings.cleanup, *settings.rc3)
        listed = [action for action in actions if action.command.puppet == spec.name]
        return max(1, len(listed) + sum(pushed.name == spec.name for pushed in self._pushed()))
