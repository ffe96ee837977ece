"""What a scenario's unit needs inside a private systemd: its unit file, a way in for each of its commands, a FIFO."""

from __future__ import annotations

import errno
import os
import secrets
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from brokerctl import stoptable
from brokerctl.kernel import proc
from brokerctl.records.units import MAIN
from brokerctl.worlds.live import launch
from brokerctl.worlds.live.actor import IN_UNIT
from brokerctl.worlds.live.unit_acting import RUN, UNIT_NAME
from brokerctl.worlds.live.ways import ACTOR
from brokerctl.worlds.puppets import part

if TYPE_CHECKING:
    from brokerctl.records import Command
    from brokerctl.records.units import ExecLine, UnitSettings
    from brokerctl.settings import StopSettings
    from brokerctl.worlds.contract import Resolved
    from brokerctl.worlds.puppets import PuppetSpec
    from brokerctl.worlds.systemd.private import PrivateSystemd

# How often a puppet that draws is started at most; restarts are what starts one again.
USES_MAX = 32
# WATCHDOG_USEC: a puppet sends what it is told to send, nothing of itself.
_PUPPET = """\
#!/bin/sh
unset WATCHDOG_USEC WATCHDOG_PID
export {environment}
exec {argv}
"""
_SITE_ACTION = """\
#!/bin/sh
exec {argv}
"""
# As a unit would call it, from a checkout too: the wrapper knows a broker of ours by its argument list.
PROGRAM = (sys.executable, "-P", "-m", "brokerctl")
# The one command of ours that is no puppet.
WRAPPER = "brokerctl stop"


class Leader(NamedTuple):
    """How the leader's broker is started, where it is the unit's main process: the words after `brokerctl`."""

    words: Sequence[str]
    cookie: str
    stderr: Path


class UnitStage:
    """The unit of one run of a scenario; `close` ends it. Its commands are puppets, the `leader`, and the wrapper."""

    def __init__(self, manager: PrivateSystemd, scenario: Resolved, leader: Leader | None = None) -> None:
        assert scenario.unit is not None
        self._manager = manager
        self._scenario = scenario
        self._leader = leader
        token = secrets.token_hex(4)
        self.unit = f"scenario-{token}.service"
        self._inside = Path(f"/run/brokerctl-scenario-{token}")
        self._folder = manager.path(self._inside)
        self._folder.mkdir(mode=0o755)
        os.mkfifo(self._folder / "reports", 0o600)
        self.reports = os.open(self._folder / "reports", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self.commands: dict[str, Command] = {}  # by the name of what starts them
        lines = [self._exec_line(*line) for line in _lines(scenario.unit.settings)]
        manager.unit(self.unit, "\n".join((scenario.unit.text, "[Service]", *lines, "")))

    def close(self) -> None:
        """Give the descriptor back; files go with the manager."""
        os.close(self.reports)

    def _exec_line(self, key: str, name: str, line: ExecLine) -> str:
        self.commands[name] = line.command
        if line.command.puppet:
            spec = self._scenario.puppets[line.command.puppet]
            self._script(name, self._puppet(name, spec), spec.start_errno)
        else:
            self._script(name, self._program(name, line.command), 0)
        prefix = ("-" if line.ignore_failure else "") + line.prefixes.replace("@", "")
        return f"{key}={prefix}{self._inside / name}"

    def _script(self, name: str, text: str, failure: int) -> None:
        """What starts a command, or fails to."""
        if failure != errno.ENOENT:
            file = self._folder / name
            file.write_text(text)
            file.chmod(0o600 if failure else 0o755)

    def _puppet(self, name: str, spec: PuppetSpec) -> str:
        run = MAIN if name.startswith(f"{MAIN}.") else name
        environment = {IN_UNIT: str(self._inside / "reports"), RUN: run, UNIT_NAME: self.unit}
        return _PUPPET.format(environment=" ".join(_assignments(environment)), argv=self._acting(spec))

    def _acting(self, spec: PuppetSpec) -> str:
        """The command line that acts a puppet out."""
        seed = self._scenario.seed
        uses = USES_MAX if spec.runs[-1].is_drawn() or spec.leaves_run.is_drawn() else 1
        parts = {-1: [part(spec, seed, 0, nth) for nth in range(uses)]}
        counter = [str(self._inside / f"puppet-{spec.name}")] if uses > 1 else []
        return shlex.join((*ACTOR, msgspec.json.encode(parts).decode(), *counter))

    def _configuration(self, stop: StopSettings) -> Path:
        """The wrapper's, with a way in for each site action."""
        for index, action in enumerate(stop.actions):
            spec = self._scenario.puppets[action.command.puppet]
            self._script(f"site.{index}", _SITE_ACTION.format(argv=self._acting(spec)), spec.start_errno)
        commands = [[str(self._inside / f"site.{index}")] for index in range(len(stop.actions))]
        (self._folder / "stop.toml").write_text(stoptable.text(stop, commands))
        (self._folder / "stop.toml").chmod(0o644)
        return self._inside / "stop.toml"

    def _program(self, name: str, command: Command) -> str:
        leader = self._leader
        environment = {"PYTHONPATH": launch.PATHS}
        if leader is not None:
            environment[proc.COOKIE] = leader.cookie
        if leader is not None and name.startswith(f"{MAIN}."):
            words, stderr = leader.words, f" 2>{shlex.quote(str(leader.stderr))}"
        elif command.text.startswith(WRAPPER):
            assert self._scenario.unit is not None
            configuration = self._configuration(self._scenario.unit.stop)
            words, stderr = [*command.text.split()[1:], "--config", str(configuration)], ""
        else:
            return "#!/bin/sh\n"  # nothing that scenarios know: it ends at once, as in the simulator
        argv = shlex.join((*PROGRAM, *words))
        return f"#!/bin/sh\nexport {' '.join(_assignments(environment))}\nexec {argv}{stderr}\n"


def _assignments(environment: Mapping[str, str]) -> list[str]:
    return [f"{name}={shlex.quote(value)}" for name, value in environment.items()]


def _lines(settings: UnitSettings) -> Iterator[tuple[str, str, ExecLine]]:
    """Every command of the unit: its key, the name of what starts it, and the line."""
    lists = {
        "ExecCondition": ("exec-condition", settings.exec_condition),
        "ExecStartPre": ("exec-start-pre", settings.exec_start_pre),
        "ExecStart": (MAIN, settings.exec_start),
        "ExecStartPost": ("exec-start-post", settings.exec_start_post),
        "ExecReload": ("exec-reload", settings.exec_reload),
        "ExecStop": ("exec-stop", settings.exec_stop),
        "ExecStopPost": ("exec-stop-post", settings.exec_stop_post),
    }
    for key, (name, lines) in lists.items():
        for index, line in enumerate(lines):
            yield key, f"{name}.{index}", line
