"""A restart policy that undoes an orderly shutdown."""

from __future__ import annotations

from collections.abc import Iterator

from brokerctl.lint.rule import Hit, rule
from brokerctl.lint.subject import Subject


@rule(
    "error",
    why=(
        "flux shutdown and brokerctl shutdown end with 0 unless told otherwise, and Restart=always starts the "
        "broker again"
    ),
    source="SYSTEMD.md 86, 88, 121, P13",
    mend="set broker.exit-norestart=42 and RestartPreventExitStatus=42",
)
def check(unit: Subject) -> Iterator[Hit]:
    broker = unit.broker
    restart = unit.value("Restart")
    if broker is not None and restart in {"always", "on-success"} and broker.attribute("broker.exit-norestart") is None:
        yield Hit(unit.last("Restart"), f"Restart={restart}, and the broker has no broker.exit-norestart")
