"""Run the rules over units: findings, in the order of the files, without those that a comment takes out.

`# brokerctl: ignore=RULE why it is right here` in any file of a unit takes out that rule's findings in the unit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from brokerctl.lint.rule import Hit, Rule, Severity, rules
from brokerctl.lint.subject import Subject
from brokerctl.unit.execline import ExecCommand
from brokerctl.unit.syntax import Place, Setting

# The command is not the one that was meant then: what other rules say of it is noise.
_BROKEN = "missing-backslash"
_IGNORE = re.compile(r"[#;]\s*brokerctl:\s*ignore=(\S*)[ \t]*(.*)")


class Finding(msgspec.Struct, frozen=True):
    """What one rule has found at one place of a unit; `line` is the text of the line."""

    rule: str
    severity: Severity
    unit: str
    at: Place
    text: str
    mend: str
    line: str


class Ignore(msgspec.Struct, frozen=True):
    """A comment that takes a rule out, and why."""

    at: Place
    rule: str
    reason: str


def ignores(unit: Subject) -> list[Ignore]:
    """The comments that take rules out of this unit."""
    found = []
    for file in unit.files:
        for line, comment in file.comments:
            if (match := _IGNORE.match(comment)) is not None:
                found.append(Ignore(Place(file.path, line, 1), match[1], match[2].strip()))
    return found


def judge(unit: Subject) -> list[Finding]:
    """All findings of a unit."""
    ignored = {each.rule for each in ignores(unit) if each.reason}
    active = [each for each in rules().values() if each.id not in ignored]
    found = {_finding(unit, each, hit) for each in active for hit in each.check(unit)}
    if any(finding.rule == _BROKEN for finding in found):
        found = {finding for finding in found if finding.rule == _BROKEN}
    order = {file.path: index for index, file in enumerate(unit.files)}
    return sorted(found, key=lambda finding: (order.get(finding.at.path, 0), finding.at, finding.rule, finding.text))


def worst(findings: Iterable[Finding], *, strict: bool) -> bool:
    """Whether there is an error among them; with `strict` a warning does too."""
    return any(strict or finding.severity == "error" for finding in findings)


def _finding(unit: Subject, each: Rule, hit: Hit) -> Finding:
    at = _place(unit, hit.at)
    return Finding(each.id, each.severity, unit.name, at, hit.text, hit.mend or each.mend, unit.line(at))


def _place(unit: Subject, at: Place | Setting | ExecCommand | None) -> Place:
    match at:
        case None:
            return unit.start()
        case Setting():
            return at.place()
        case ExecCommand():
            return at.setting.place(at.words[0].start)
        case Place():
            return at
