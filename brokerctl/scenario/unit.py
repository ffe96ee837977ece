"""`[unit]`: the service unit that a scenario runs in, from systemd's own keys, or from unit files.

Errors are ScenarioError, `FILE: unit.KEY: what; expected …`. Values are read as systemd reads them (`brokerctl.unit`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from brokerctl import config
from brokerctl.errors import BrokerctlError, ConfigError, ScenarioError
from brokerctl.records import Command, ExecLine
from brokerctl.scenario.format import Table, UnitTable
from brokerctl.scenario.puppets import UNIT_ASKED
from brokerctl.unit import keys, service
from brokerctl.unit.merge import Unit, from_files, load
from brokerctl.unit.syntax import UnitFile, parse
from brokerctl.worlds.contract import UnitSpec
from brokerctl.worlds.puppets import PuppetSpec

# The wrapper of a stop, where a scenario's line names no puppet.
WRAPPER = "brokerctl stop"
BROKER = "flux broker"
LINES_MAX = 100
# Where a key stands; of those that systemd takes in both, in [Unit].
_SECTIONS = {key: section for section, key in sorted(keys.KEYS)}
_NAME = "scenario.service"

Lines = Annotated[list[str], Meta(max_length=LINES_MAX)]


class OwnKeys(Table, frozen=True):
    """The keys of `[unit]` that are not systemd's; each list replaces the lines of the file.

    A line is a puppet's name with systemd's prefixes, or `brokerctl stop`.
    """

    main: str | None = None
    file: str | None = None
    drop_ins: tuple[str, ...] = ()
    exec_condition: Lines | None = None
    exec_start_pre: Lines | None = None
    exec_start: Lines | None = None
    exec_start_post: Lines | None = None
    exec_reload: Lines | None = None
    exec_stop: Lines | None = None
    exec_stop_post: Lines | None = None


def spec(table: UnitTable, path: Path, puppets: Mapping[str, PuppetSpec]) -> UnitSpec:
    """The unit as worlds want it; files are relative to the scenario, `path`."""
    where = f"{path}: unit"
    given = {key: value for key, value in table.items() if not key[:1].isupper()}
    own = _own(given, where)
    base = _files(own, path, where)
    unit = Unit(_NAME if base is None else base.name, (*(() if base is None else base.files), _extra(table, where)))
    for problem in unit.problems:
        place = "" if problem.at.path == where else f"{problem.at}: "
        raise ScenarioError(f"{where}: {place}{problem.text}")
    settings = service.settings(unit)
    if settings.type in {"forking", "dbus"}:
        raise ScenarioError(f"{where}.Type: {settings.type} can't be simulated; expected simple, notify or oneshot")
    changes = {
        name: tuple(_line(text, puppets, f"{where}.{name.replace('_', '-')}[{i}]") for i, text in enumerate(texts))
        for name in _LISTS
        if (texts := getattr(own, name)) is not None
    }
    if own.main is not None:
        if "exec_start" in changes:
            raise ScenarioError(f"{where}.main: stands beside exec-start; expected one of them")
        changes["exec_start"] = (_line(own.main, puppets, f"{where}.main"),)
    by_puppet = "exec_start" in changes
    if not by_puppet:
        changes["exec_start"] = (ExecLine(Command(BROKER)),)
    if len(changes["exec_start"]) != 1 and (settings.type != "oneshot" or not changes["exec_start"]):
        raise ScenarioError(f"{where}.exec-start: {len(changes['exec_start'])} lines; expected one, of a oneshot more")
    settings = msgspec.structs.replace(settings, **changes)
    return UnitSpec(settings=settings, main="puppet" if by_puppet else "broker", text=_text(unit))


_LISTS = tuple(name for name in OwnKeys.__struct_fields__ if name.startswith("exec_"))


def _own(given: Mapping[str, object], where: str) -> OwnKeys:
    try:
        return config.validate(dict(given), OwnKeys, where)
    except ConfigError as error:
        raise ScenarioError(str(error)) from None


def _files(own: OwnKeys, path: Path, where: str) -> Unit | None:
    if own.file is None:
        if own.drop_ins:
            raise ScenarioError(f"{where}.drop-ins: need a file; expected file = 'NAME.service'")
        return None
    try:
        unit = load(path.parent / own.file)
        if own.drop_ins:
            unit = from_files(unit.name, [Path(file.path) for file in unit.files] + _paths(own.drop_ins, path))
    except BrokerctlError as error:
        raise ScenarioError(f"{where}.file: {error}") from None
    return unit


def _paths(names: Sequence[str], path: Path) -> list[Path]:
    return [path.parent / name for name in names]


def _extra(table: UnitTable, where: str) -> UnitFile:
    """What stands in the table with systemd's own keys, as a last drop-in."""
    lines: dict[str, list[str]] = {"Unit": [], "Service": []}
    for key, value in table.items():
        if not key[:1].isupper():
            continue
        if key not in _SECTIONS:
            hint = f"{key.replace('Exec', 'exec-').lower()} with puppets" if key in keys.EXEC else "a key of systemd"
            raise ScenarioError(f"{where}.{key}: is not known here; expected {hint} that bears on start or stop")
        if isinstance(value, list):
            raise ScenarioError(f"{where}.{key}: is a list; expected text or a number")
        text = {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
        if not text.isprintable() or text.endswith("\\"):  # which would go on in the next line
            raise ScenarioError(f"{where}.{key}: {text!r} is no line; expected printable text")
        lines[_SECTIONS[key]].append(f"{key}={text}")
    text = "".join(f"[{section}]\n" + "".join(f"{line}\n" for line in each) for section, each in lines.items())
    return parse(text.encode(), where)


def _line(text: str, puppets: Mapping[str, PuppetSpec], where: str) -> ExecLine:
    name = text.lstrip("-@:+!")
    prefixes = text[: len(text) - len(name)]
    if name.split()[:2] == WRAPPER.split():
        command = Command(name, tuple(name.split()))
    elif name in puppets:
        asked = puppets[name].asks[:1]
        if asked and asked[0] not in UNIT_ASKED:
            raise ScenarioError(f"{where}: {name} asks for {asked[0]}; expected {' or '.join(UNIT_ASKED)}, in a unit")
        command = Command(puppets[name].command, puppet=name)
    else:
        known = ", ".join(puppets) or "none"
        raise ScenarioError(f"{where}: unknown puppet {name!r}; known are {known}, and {WRAPPER}")
    return ExecLine(command, "-" in prefixes, prefixes.replace("-", ""))


def _text(unit: Unit) -> str:
    """The unit without its command lines; each section as often as it is spoken of."""
    settings = [setting for file in unit.files for setting in file.settings if setting.key not in keys.EXEC]
    return "".join(f"[{setting.section}]\n{setting.key}={setting.value}\n" for setting in settings)
