"""A KillMode that signals the broker's own actions."""

from __future__ import annotations

from collections.abc import Iterator

from brokerctl.lint.rule import Hit, rule
from brokerctl.lint.subject import Subject


@rule(
    "error",
    why="SIGTERM goes to rc3 and to every cleanup action as well, beside the broker: they end in the middle",
    source="SYSTEMD.md 75, flux-core#2809",
    mend="set KillMode=mixed",
)
def check(unit: Subject) -> Iterator[Hit]:
    if unit.broker is not None and unit.value("KillMode") == "control-group":
        yield Hit(unit.last("KillMode"), "KillMode=control-group: cleanup actions and rc3 get SIGTERM too")
