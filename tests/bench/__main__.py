"""`python -m tests.bench`: speed and memory against goals and peers, as a table.

    --quick           fewer runs, smaller sizes: minutes instead of an hour
    --only NAME       one of startup, stop, overshoot, simulate, size, tree, heartbeat, perilog, flux; may be repeated
    --stops N         stops of the overshoot bench (1000; 20 with --quick)
    --runs N          runs of everything else (10)
    --json            JSON instead of the table
    --update FILE     put the table between the marks of that page

No figure fails the bench: the table shows the goal beside it.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from pathlib import Path

from tests.bench import flux, heartbeats, overshoot, perilog, simulated, startup, stops, trees
from tests.bench.measure import Options, Row, machine

ITEMS: Mapping[str, Callable[[Options], list[Row]]] = {
    "startup": startup.measure,
    "stop": stops.measure,
    "overshoot": overshoot.measure,
    "simulate": simulated.small,
    "size": simulated.sizes,
    "tree": trees.measure,
    "heartbeat": heartbeats.measure,
    "perilog": perilog.measure,
    "flux": flux.measure,
}
MARKS = re.compile(r"(<!-- bench -->\n).*?(<!-- end bench -->\n)", re.DOTALL)


def table(rows: Sequence[Row], where: str) -> str:
    """The rows as Markdown, with the machine that they are of."""
    lines = [f"Measured on: {where}.", "", "| what | measured | goal |", "|---|---|---|"]
    for what, group in groupby(rows, lambda row: row.what):
        measured, goals = zip(*(row.shown() for row in group), strict=True)
        lines.append(f"| {what} | {', '.join(measured)} | {', '.join(goal for goal in goals if goal)} |")
    return "\n".join(lines) + "\n"


def main(argv: list[str]) -> int:
    """Measure, and print or write."""
    parser = argparse.ArgumentParser("python -m tests.bench", description="Speed and memory, against goals and peers.")
    parser.add_argument("--quick", action="store_true", help="fewer runs, smaller sizes")
    parser.add_argument("--only", action="append", choices=tuple(ITEMS), help="may be given several times")
    parser.add_argument("--stops", type=int, help="stops of the overshoot bench; default: 1000, or 20 with --quick")
    parser.add_argument("--runs", type=int, default=10, help="runs of everything else; default: %(default)s")
    parser.add_argument("--json", action="store_true", help="JSON instead of the table")
    parser.add_argument("--update", metavar="FILE", type=Path, help="put the table between the marks of that page")
    given = parser.parse_args(argv)
    options = Options(given.runs, given.stops or (20 if given.quick else 1000), given.quick)
    page = None if given.update is None else given.update.read_text(encoding="utf-8")
    if page is not None and not MARKS.search(page):
        parser.error(f"{given.update} has no <!-- bench --> and <!-- end bench -->")
    rows = [row for name in given.only or ITEMS for row in ITEMS[name](options)]
    text = table(rows, machine())
    if given.json:
        print(json.dumps({"machine": machine(), "rows": [row._asdict() for row in rows]}, indent=2))
    else:
        print(text, end="")
    if page is not None:
        given.update.write_text(MARKS.sub(lambda mark: mark[1] + text + mark[2], page), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
