"""Findings as text, with the line and a caret, or as JSON; the chain as a table; a rule explained."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from brokerctl.durations import as_short
from brokerctl.lint.chain import Row
from brokerctl.lint.engine import Finding
from brokerctl.lint.rule import Rule
from brokerctl.report.text import printable

_COLOURS = {"error": "\x1b[31m", "warning": "\x1b[33m"}
_PLAIN = "\x1b[0m"
_LINE_MAX = 200


def text(findings: Iterable[Finding], *, colour: bool) -> str:
    """Each finding in a few lines: where, how bad, what, the line, and what mends it."""
    return "".join(_entry(finding, colour=colour) for finding in findings)


def summary(findings: Sequence[Finding], units: int) -> str:
    """One line: how many of what."""
    errors = sum(finding.severity == "error" for finding in findings)
    warnings = len(findings) - errors
    return f"{_count(errors, 'error')}, {_count(warnings, 'warning')} in {_count(units, 'unit')}"


def json(findings: Sequence[Finding]) -> bytes:
    """The findings as one JSON document."""
    return msgspec.json.format(
        msgspec.json.encode(
            [
                {
                    "rule": each.rule,
                    "severity": each.severity,
                    "unit": each.unit,
                    "path": each.at.path,
                    "line": each.at.line,
                    "column": each.at.column,
                    "text": each.text,
                    "mend": each.mend,
                }
                for each in findings
            ]
        )
    )


def chain(rows: Sequence[Row]) -> str:
    """The table of one unit's chain."""
    heads = ("phase", "inner", "outer", "who acts first", "else lost")
    cells = [heads, *(_cells(row) for row in rows)]
    widths = [max(len(row[index]) for row in cells) for index in range(len(heads))]
    return "".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() + "\n" for row in cells
    )


def chain_json(unit: str, rows: Sequence[Row]) -> dict[str, object]:
    """The chain of one unit for JSON; times are nanoseconds, null is no limit."""
    return {"unit": unit, "chain": [msgspec.to_builtins(row) | {"first": row.first} for row in rows]}


def explained(rule: Rule) -> str:
    """All that there is to say of a rule."""
    return f"{rule.id} ({rule.severity})\n  why:    {rule.why}\n  mend:   {rule.mend}\n  source: {rule.source}\n"


def listed(rules: Iterable[Rule]) -> str:
    """One line a rule."""
    rules = list(rules)
    width = max(len(rule.id) for rule in rules)
    return "".join(f"{rule.id:<{width}}  {rule.severity:<7}  {rule.why}\n" for rule in rules)


def table(rules: Iterable[Rule]) -> str:
    """The rules as a table of the documentation."""
    rows = [f"| `{rule.id}` | {rule.severity} | {rule.why} | {rule.mend} | {rule.source} |" for rule in rules]
    return "\n".join(["| rule | severity | why | what mends it | source |", "|---|---|---|---|---|", *rows]) + "\n"


def _entry(finding: Finding, *, colour: bool) -> str:
    severity = f"{_COLOURS[finding.severity]}{finding.severity}{_PLAIN}" if colour else finding.severity
    number = str(finding.at.line)
    blank = " " * len(number)
    lines = [f"{finding.at}: {severity}: {printable(finding.text)} [{finding.rule}]"]
    if finding.line.strip():
        before = len(_shown(finding.line[: finding.at.column - 1]))
        lines.append(f"  {number} | {_shown(finding.line)[:_LINE_MAX]}")
        if before < _LINE_MAX:
            lines.append(f"  {blank} | {' ' * before}^")
    lines.append(f"  {blank} = {finding.mend}")
    return "\n".join(lines) + "\n"


def _shown(line: str) -> str:
    return printable(line.replace("\t", " "))


def _cells(row: Row) -> tuple[str, ...]:
    inner = f"{_time(row.inner_ns)} {row.inner}" if row.inner_ns is not None else row.inner
    outer = f"{_time(row.outer_ns)} {row.outer}" if row.outer_ns is not None else row.outer
    first = {"fits": "inner", "open": "inner, if it ends", "cut": "OUTER"}[row.verdict]
    return (row.phase, inner, outer, first, row.lost)


def _time(limit_ns: int | None) -> str:
    return "none" if limit_ns is None else as_short(limit_ns)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
