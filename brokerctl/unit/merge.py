"""A unit: its file and its drop-ins, merged in systemd's order; and where they are found (systemd.unit(5))."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from brokerctl.errors import BrokerctlError
from brokerctl.unit import keys
from brokerctl.unit.execline import ExecCommand, ExecError, commands
from brokerctl.unit.specifiers import split_name
from brokerctl.unit.syntax import Place, Problem, Setting, UnitFile, parse
from brokerctl.unit.values import PartlyError

# The largest unit file that anybody has is a few KiB.
FILE_SIZE_MAX = 16 << 20
SUFFIXES = (
    ".service", ".socket", ".target", ".timer", ".path", ".mount", ".automount", ".swap", ".slice", ".scope", ".device",
)  # fmt: skip


class UnitError(BrokerctlError):
    """Raised when a file is no unit file."""


class Unit:
    """A unit as its files say it; a value that systemd would not take is a problem, and as if it were not there."""

    def __init__(self, name: str, files: Sequence[UnitFile]) -> None:
        self.name = name
        self.files = tuple(files)
        self.problems: list[Problem] = [problem for file in files for problem in file.problems]
        self._settings: dict[tuple[str, str], list[Setting]] = {}
        self._values: dict[tuple[str, str], Any] = {}
        self._commands: dict[str, tuple[ExecCommand, ...]] = {}
        for file in files:
            self._read(file)

    @property
    def kind(self) -> str:
        """What kind of unit it is: `service`, `timer` and so on."""
        return self.name.rpartition(".")[2]

    @property
    def template(self) -> bool:
        """Whether its name has an `@`."""
        return split_name(self.name)[1] is not None

    def settings(self) -> list[Setting]:
        """All settings that systemd reads, by key."""
        return [setting for group in self._settings.values() for setting in group]

    def assigned(self, key: str, section: str = "Service") -> tuple[Setting, ...]:
        """Every assignment of a key, in order, resets included."""
        return tuple(self._settings.get((section, key), ()))

    def entries(self, key: str, section: str = "Service") -> tuple[Setting, ...]:
        """The assignments of a list that hold: those after the last empty one."""
        found: list[Setting] = []
        for setting in self.assigned(key, section):
            if setting.value:
                found.append(setting)
            else:
                found.clear()
        return tuple(found)

    def last(self, key: str, section: str = "Service") -> Setting | None:
        """The last assignment that holds, of a key that has one value."""
        known = keys.KEYS.get((section, key))
        found = None
        for setting in self.assigned(key, section):
            if _readable(setting, known):
                found = setting
            elif not setting.value and (known is None or known.resets):
                found = None
        return found

    def value(self, key: str, section: str = "Service") -> Any:  # noqa: ANN401 - each key has a type of its own
        """The value of a key of `keys.KEYS`, else its default; a time is ns, None where it is no limit."""
        return self._values.get((section, key), keys.KEYS[section, key].default)

    def commands(self, key: str) -> tuple[ExecCommand, ...]:
        """The commands of ExecStart= and the like, in order."""
        return self._commands.get(key, ())

    def words(self, key: str, section: str = "Unit") -> list[str]:
        """The words of a list such as After=, in order."""
        return [word for setting in self.entries(key, section) for word in setting.value.split()]

    def line(self, place: Place) -> str:
        """The text of that line."""
        for file in self.files:
            if file.path == place.path and 0 < place.line <= len(file.lines):
                return file.lines[place.line - 1]
        return ""

    def _problem(self, place: Place, text: str, *, fatal: bool = False) -> None:
        self.problems.append(Problem(place, text, fatal))

    def _read(self, file: UnitFile) -> None:
        for setting in file.settings:
            where = (setting.section, setting.key)
            self._settings.setdefault(where, []).append(setting)
            if setting.section == "Service" and setting.key in keys.EXEC:
                if not self._read_commands(setting):
                    return
            elif (key := keys.KEYS.get(where)) is not None:
                self._read_value(setting, key)

    def _read_value(self, setting: Setting, key: keys.Key) -> None:
        targets = key.sets or ((setting.section, setting.key),)
        if not setting.value and key.resets:
            for where in targets:
                self._values.pop(where, None)
            return
        try:
            value = key.read(setting.value)
        except ValueError as error:
            rest = "the word" if isinstance(error, PartlyError) else "the line"
            self._problem(setting.place(), f"{setting.key}={setting.value}: {error}; systemd ignores {rest}")
            if not isinstance(error, PartlyError):
                return
            value = error.value
        for where in targets:
            old = self._values.get(where)
            self._values[where] = value if key.join is None or old is None else key.join(old, value)

    def _read_commands(self, setting: Setting) -> bool:
        """False where systemd reads no further in this file."""
        if not setting.value:
            self._commands.pop(setting.key, None)
            return True
        try:
            found = commands(setting)
        except ExecError as error:
            # What is wrong in a drop-in does not keep the unit from being started.
            drop_in = setting.at.path.endswith(".conf")
            ends = "systemd ignores the line"
            if error.fatal:
                ends = "systemd ignores the rest of this file" if drop_in else "the unit can't be started"
            self._problem(
                setting.place(error.offset), f"{setting.key}=: {error}; {ends}", fatal=error.fatal and not drop_in
            )
            return not error.fatal
        self._commands[setting.key] = self._commands.get(setting.key, ()) + found
        return True


def _readable(setting: Setting, key: keys.Key | None) -> bool:
    if key is None or not setting.value:
        return bool(setting.value)
    try:
        key.read(setting.value)
    except PartlyError:
        return True
    except ValueError:
        return False
    return True


def read_file(path: Path) -> bytes:
    """The bytes of a regular file; UnitError in one line otherwise."""
    try:
        # O_NONBLOCK: opening a FIFO that nobody writes to would wait for ever.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise UnitError(f"{path}: is no regular file; expected a unit file")
            data = file.read(FILE_SIZE_MAX + 1)
    except OSError as error:
        raise UnitError(f"{path}: cannot read: {error.strerror}") from None
    except ValueError:
        raise UnitError(f"{str(path)!r}: is no path; expected a unit file") from None
    if len(data) > FILE_SIZE_MAX:
        raise UnitError(f"{path}: larger than {FILE_SIZE_MAX >> 20} MiB; expected a unit file")
    return data


def load(path: Path, name: str = "") -> Unit:
    """The unit of that file and of the drop-ins beside it. `name` is its own where it is an instance of a template."""
    name = name or path.name
    if not name.endswith(SUFFIXES):
        raise UnitError(f"{path}: is no unit; expected a name that ends in .service or another kind")
    return from_files(name, [path, *drop_ins(path.parent, name)])


def from_files(name: str, paths: Sequence[Path], read: Callable[[Path], bytes] = read_file) -> Unit:
    """The unit of these files, in this order. A file that systemd could not read at all is UnitError."""
    files = [parse(read(path), str(path)) for path in paths]
    for file in files:
        for problem in file.problems:
            if problem.fatal and not file.settings:
                raise UnitError(f"{problem.at.path}:{problem.at.line}: {problem.text}")
        if not file.sections and file.problems:
            raise UnitError(f"{file.path}: has no [Section]; expected a unit file")
    return Unit(name, files)


def drop_ins(directory: Path, name: str) -> list[Path]:
    """The drop-ins of a unit that stand in this directory, in the order in which they are read.

    They are sorted by their names, whichever directory they are in; of two with the same name the one that is more
    special holds: `a-b@x.service.d` before `a-b@.service.d`, `a-.service.d` and `service.d`.
    """
    found: dict[str, Path] = {}
    for folder in reversed(_drop_in_directories(name)):
        for path in (directory / folder).glob("*.conf"):
            if path.is_file():
                found[path.name] = path
    return [found[each] for each in sorted(found)]


def _drop_in_directories(name: str) -> list[str]:
    """Most special first."""
    stem, _, kind = name.rpartition(".")
    prefix, instance = split_name(name)
    folders = [f"{name}.d"]
    if instance:
        folders.append(f"{prefix}@.{kind}.d")
    tail = "" if instance is None else "@"
    dash = (prefix if instance is not None else stem).rstrip("-")
    while (cut := dash.rfind("-")) > 0:
        dash = dash[:cut]
        folders.append(f"{dash}-{tail}.{kind}.d")
    folders.append(f"{kind}.d")
    return folders
