"""A unit as rules look at it: what it runs, as whom, and what Flux's configuration says of it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Literal

from brokerctl.lint.fluxconfig import FluxConfig
from brokerctl.records.base import Command
from brokerctl.records.units import UnitSettings
from brokerctl.settings import Action, StopSettings
from brokerctl.unit import Unit, broker, keys, service
from brokerctl.unit.execline import ExecCommand
from brokerctl.unit.invocations import Invocation, invocations
from brokerctl.unit.specifiers import split_name
from brokerctl.unit.syntax import Place

Role = Literal["", "prolog", "epilog", "housekeeping"]
ROLES: tuple[Role, ...] = ("prolog", "epilog", "housekeeping")


class Subject(Unit):
    """A unit, and what can be known of it.

    `flux` is Flux's own configuration, where that is known, `stop` what a `brokerctl stop` in the unit is told; where
    nobody says, it has site actions, under the default limits.
    """

    def __init__(self, unit: Unit, flux: FluxConfig | None = None) -> None:
        super().__init__(unit.name, unit.files)
        self.flux = flux
        self.stop = StopSettings(actions=(Action(Command("a site action")),))

    @cached_property
    def settings_record(self) -> UnitSettings:
        """The unit as the model of systemd has it."""
        return service.settings(self)

    @cached_property
    def broker(self) -> broker.Broker | None:
        """The broker that it runs, if it runs one."""
        return broker.find(self.commands("ExecStart"))

    @cached_property
    def role(self) -> Role:
        """Which script of a job's life it runs, by its name."""
        prefix = split_name(self.name)[0]
        words = prefix.replace("_", "-").split("-")
        return next((role for role in ROLES if role in words), "") if "flux" in words else ""

    @property
    def complete(self) -> bool:
        """Whether the unit's own file is there, not a drop-in alone."""
        return any(not file.path.endswith(".conf") for file in self.files)

    @property
    def stop_limit_ns(self) -> int | None:
        """TimeoutStopSec: of each ExecStop line, and of what follows a SIGTERM; None is no limit."""
        limit_ns: int | None = self.value("TimeoutStopSec")
        return limit_ns

    def all_commands(self) -> Iterator[tuple[str, ExecCommand]]:
        """Every command with the key that it stands under."""
        for key in keys.EXEC:
            for command in self.commands(key):
                yield key, command

    def stops(self) -> Iterator[tuple[ExecCommand, Invocation]]:
        """What each ExecStop line runs."""
        for command in self.commands("ExecStop"):
            for each in invocations(command):
                yield command, each

    def wrapper(self, verb: str = "stop", key: str = "ExecStop") -> ExecCommand | None:
        """The line that runs `brokerctl VERB`."""
        for command in self.commands(key):
            for each in invocations(command):
                if (each.brokerctl() or ("",))[0] == verb:
                    return command
        return None

    @property
    def main_as_root(self) -> bool:
        """Whether the main process runs as root."""
        dynamic = self.last("DynamicUser")
        another = dynamic is not None and dynamic.value.lower() in {"yes", "true", "on", "1"}
        return not self._of_user and not another and self.value("User") in {"", "root", "0"}

    @property
    def _of_user(self) -> bool:
        """Whether it is a unit of a user's own manager, which has nothing that runs as root."""
        return any("/systemd/user/" in file.path for file in self.files)

    def as_root(self, key: str, command: ExecCommand) -> bool:
        """Whether a command runs as root beside a main process that does not (SYSTEMD.md 23)."""
        if self._of_user or self.main_as_root:
            return False
        only_main = self.value("PermissionsStartOnly") and key != "ExecStart"
        # `!!` drops privileges on every kernel that has ambient capabilities.
        return only_main or "+" in command.prefixes or command.prefixes.count("!") == 1

    def start(self) -> Place:
        """Where the unit as a whole is blamed: at its ExecStart, else at its first line."""
        main = self.commands("ExecStart")
        if main:
            return main[0].setting.at
        found = next((setting.at for file in self.files for setting in file.settings), None)
        return found or Place(self.files[0].path, 1, 1)
