"""What a rule is, and where all of them are found: each is a file of `lint/rules`, and its name is the rule's id."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from typing import Literal, NamedTuple

import msgspec

from brokerctl.lint.subject import Subject
from brokerctl.unit.execline import ExecCommand
from brokerctl.unit.syntax import Place, Setting

Severity = Literal["error", "warning"]


class Hit(NamedTuple):
    """What a rule has found, and where; None is the unit as a whole: something that it should say is not there.

    `mend` says more closely than the rule itself what mends it here.
    """

    at: Place | Setting | ExecCommand | None
    text: str
    mend: str = ""


Check = Callable[[Subject], Iterable[Hit]]


class Rule(msgspec.Struct, frozen=True):
    """One trap: why it is one (a sentence), who says so, and what mends it."""

    id: str
    severity: Severity
    why: str
    source: str
    mend: str
    check: Check


def rule(severity: Severity, *, why: str, source: str, mend: str) -> Callable[[Check], Rule]:
    """Make a rule of a function. Its id is the name of the file that it stands in."""

    def make(check: Check) -> Rule:
        name = check.__module__.rpartition(".")[2].replace("_", "-")
        return Rule(name, severity, why, source, mend, check)

    return make


@functools.cache
def rules() -> Mapping[str, Rule]:
    """All rules by id, in alphabetical order."""
    from brokerctl.lint import rules as package

    found = {}
    for module in pkgutil.iter_modules(package.__path__):
        each: Rule = importlib.import_module(f"{package.__name__}.{module.name}").check
        found[each.id] = each
    return dict(sorted(found.items()))
