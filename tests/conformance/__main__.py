"""`make conformance`: the table, one row a recorded run."""

from __future__ import annotations

import sys
from collections import Counter

from brokerctl.report.sides import side_by_side
from tests.conformance import pairs


def main() -> int:
    """Print it; 1 where a row differs."""
    counts, compared = Counter[str](), 0
    differences = []
    for row in pairs.rows():
        counts[row.verdict] += 1
        compared += row.compared
        print(f"{row.verdict:<16} {row.name:<48} {row.compared or '':>5}  {row.text}".rstrip(), flush=True)
        if row.difference is not None:
            differences.append(row)
    for row in differences:
        print(f"\n{row.name}: rank {row.difference.rank}, {row.difference.component}")
        print(side_by_side(row.difference, ("recorded", "simulated")), end="")
    total = sum(counts.values())
    shown = ", ".join(f"{counts[verdict]} {verdict}" for verdict in ("equal", "differs", "not expressible"))
    print(f"\n{shown}; {total} recorded runs, {compared:,} things compared")
    return 1 if counts["differs"] else 0


if __name__ == "__main__":
    sys.exit(main())
