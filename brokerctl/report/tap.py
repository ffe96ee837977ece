"""Results as TAP 14 (Test Anything Protocol): one test point for each scenario and world."""

from __future__ import annotations

import json
from collections.abc import Sequence

from brokerctl.report import text
from brokerctl.report.result import Result


def report(results: Sequence[Result]) -> str:
    """The whole document. Diagnostics are YAML whose scalars are JSON strings, which every YAML reader reads."""
    lines = ["TAP version 14", f"1..{len(results)}"]
    for number, result in enumerate(results, 1):
        status = "not ok" if result.status == "failed" else "ok"
        point = f"{status} {number} - {_escaped(f'{result.name} ({result.world}, {result.policy})')}"
        if result.status == "skipped":
            point += f" # SKIP {_escaped(result.reason)}"
        lines.append(point)
        if result.failures:
            lines += ["  ---", f"  ending: {json.dumps(text.ending(result))}", "  failures:"]
            lines += [f"    - {json.dumps(f'{one.name}: {one.text}')}" for one in result.failures]
            lines += [f"  replay: {json.dumps(result.replay)}", "  ..."]
    return "".join(f"{line}\n" for line in lines)


def _escaped(description: str) -> str:
    # TAP 14: a backslash and a hash are escaped in a description, or a directive would begin.
    return text.printable(description).replace("\\", "\\\\").replace("#", "\\#")
