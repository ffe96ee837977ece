"""The broker that a unit runs: Flux's or brokerctl's own, its attributes and where they stand, its limits."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from brokerctl import config
from brokerctl.errors import ConfigError
from brokerctl.model.tree import Tree, flat, kary
from brokerctl.records.base import Command
from brokerctl.settings import Action, Rung, Settings
from brokerctl.trace import Topology
from brokerctl.unit.execline import ExecCommand
from brokerctl.unit.invocations import Invocation, invocations
from brokerctl.unit.syntax import Place

# flux-broker-attributes(7): how brokers of a system instance spell an attribute.
_SET_OPTIONS = ("-S", "--setattr")
_SIZE_MAX = 1000
# What stands for actions that the unit does not tell: a limit holds only for a list that is not empty.
_CLEANUP = Action(Command("flux queue idle --quiet"))
_RC3 = Action(Command("flux modprobe rc3"))


class Attribute(msgspec.Struct, frozen=True):
    """One `-Sname=value`, and where it stands."""

    name: str
    value: str
    at: Place


class Broker(msgspec.Struct, frozen=True):
    """What runs in the unit. `wrong` has the attributes that could not be read, each with what was expected."""

    kind: Literal["flux", "brokerctl"]
    command: ExecCommand
    attributes: dict[str, Attribute]
    settings: Settings
    tree: Tree
    wrong: tuple[tuple[Attribute, str], ...] = ()
    config_path: str = ""

    def attribute(self, name: str) -> Attribute | None:
        """That attribute, if it is set on the command line."""
        return self.attributes.get(name)

    def at(self, name: str) -> Place:
        """Where the attribute is set, else where the broker's command begins."""
        found = self.attributes.get(name)
        return found.at if found else self.command.setting.place(self.command.words[0].start)


def find(commands: tuple[ExecCommand, ...]) -> Broker | None:
    """The broker among the commands of ExecStart=."""
    for command in commands:
        for each in invocations(command):
            words = each.brokerctl()
            if words and words[0] in {"run", "start"}:
                return _brokerctl(command, words)
            if each.name == "flux-broker" or (each.name == "flux" and _verb(each.arguments) in {"broker", "start"}):
                return _flux(command, each)
    return None


def _verb(words: tuple[str, ...]) -> str:
    return next((word for word in words if not word.startswith("-")), "")


def _flux(command: ExecCommand, invocation: Invocation) -> Broker:
    words = list(invocation.arguments)
    for index, word in enumerate(words):
        # flux-start(1) hands these on: -o,-Sname=value, --broker-opts=-Sname=value.
        if word.startswith("-o") and len(word) > len("-o"):
            words[index] = word.removeprefix("-o").removeprefix(",")
        words[index] = words[index].removeprefix("--broker-opts=")
    attributes = {each.name: each for each in _attributes(command, words)}
    fields, wrong = _settings(attributes)
    # Flux's own actions end at SIGHUP (FLUX.md 25); what ignores it is another matter: letter a.
    limits = config.with_fields("flux", {"ladder": (Rung(signal.SIGHUP, 0),), "output_grace_ns": 0, **fields})
    limits = msgspec.structs.replace(limits, cleanup=(_CLEANUP,), rc3=(_RC3,))
    path = option(words, "-c", "--config-path")
    # How deep its tree is, is not in the unit; one level of followers is what every system instance has.
    return Broker("flux", command, attributes, limits, _tree(flat(2)), wrong, path)


def _brokerctl(command: ExecCommand, words: tuple[str, ...]) -> Broker:
    own = list(words[: words.index("--")] if "--" in words else words)
    attributes = {each.name: each for each in _attributes(command, own)}
    fields, wrong = _settings(attributes)
    policy = option(own, "--policy") or "hardened"
    path = option(own, "--config")
    rc2 = words[words.index("--") + 1 :] if "--" in words else ()
    here = os.path.isfile(path)  # noqa: PTH113 - for a name that is too long Path.is_file raises, in Python 3.11
    try:
        base = config.resolve(policy, Path(path) if here else None, rc2=rc2)
    except ConfigError:
        # `brokerctl run` refuses it itself, in one line.
        base = config.HARDENED
    limits = msgspec.structs.replace(base, **fields)
    if path and not here:
        # The file of another machine: it may well have actions.
        limits = msgspec.structs.replace(limits, cleanup=(_CLEANUP,), rc3=(_RC3,))
    tree = _tree_of_start(own) if own[0] == "start" else _tree(flat(1))
    return Broker("brokerctl", command, attributes, limits, tree, wrong, path)


def _tree(parents: tuple[int, ...]) -> Tree:
    return Tree(Topology(parents, ("",) * len(parents)))


def _tree_of_start(words: list[str]) -> Tree:
    """The tree of `brokerctl start`: `--size` and `--topology`; its own default is kary:2."""
    size = option(words, "--size")
    count = min(int(size), _SIZE_MAX) if size.isascii() and size.isdigit() and 0 < len(size) < 9 else 1
    if option(words, "--topology") == "flat":
        return _tree(flat(max(count, 1)))
    fanout = option(words, "--topology").removeprefix("kary:")
    return _tree(kary(max(count, 1), int(fanout) if fanout.isascii() and fanout.isdigit() and fanout[0] != "0" else 2))


def _attributes(command: ExecCommand, words: list[str]) -> Iterator[Attribute]:
    for index, word in enumerate(words):
        text = ""
        if word in _SET_OPTIONS:
            text = words[index + 1] if index + 1 < len(words) else ""
        elif word.startswith("--setattr="):
            text = word.removeprefix("--setattr=")
        elif word.startswith("-S"):
            text = word.removeprefix("-S")
        if text:
            name, _, value = text.partition("=")
            offset = max(command.setting.value.find(name, command.words[0].start), 0)
            yield Attribute(name, value, command.setting.place(offset))


def _settings(attributes: dict[str, Attribute]) -> tuple[dict[str, Any], tuple[tuple[Attribute, str], ...]]:
    fields: dict[str, Any] = {}
    wrong = []
    for each in attributes.values():
        # What a shell or systemd puts in there is not known here.
        if each.name not in config.ATTRIBUTES or "$" in each.value or "%" in each.value:
            continue
        try:
            field, value = config.parse_attribute(each.name, each.value, "")
        except ConfigError as error:
            wrong.append((each, str(error).removeprefix(f": {each.name}: ")))
        else:
            fields[field] = value
    return fields, tuple(wrong)


def option(words: Sequence[str], *names: str) -> str:
    """The value of an option among the words, `--name value` or `--name=value`; nothing where it is not there."""
    for index, word in enumerate(words):
        for name in names:
            if word == name:
                return words[index + 1] if index + 1 < len(words) else ""
            if name.startswith("--") and word.startswith(f"{name}="):
                return word.removeprefix(f"{name}=")
    return ""
