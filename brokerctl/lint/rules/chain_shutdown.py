"""A wait for peers that outlasts systemd's clock."""

from __future__ import annotations

from collections.abc import Iterator

from brokerctl.lint import chain
from brokerctl.lint.rule import Hit, rule
from brokerctl.lint.subject import Subject


@rule(
    "error",
    why=(
        "nothing moves the deadline while the broker waits for a stuck peer, so systemd kills it first: rc3 "
        "does not run, the dump is lost"
    ),
    source="FLUX.md letter p, 98, 106; SYSTEMD.md 38, 39",
    mend="let TimeoutStopSec= cover the sum, as the drop-in of brokerctl units does, or lower broker.shutdown-timeout",
)
def check(unit: Subject) -> Iterator[Hit]:
    row = chain.row(unit, "shutdown")
    if row is not None and row.verdict == "cut":
        yield Hit(row.at, chain.told(row))
