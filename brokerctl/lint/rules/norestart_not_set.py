"""A restart policy that undoes an orderly shutdown."""

from __future__ import annotations

import os
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
    if broker is None or restart not in {"always", "on-success"}:
        return
    # A configuration of another machine may well set it.
    elsewhere = broker.kind == "brokerctl" and broker.config_path and not os.path.isfile(broker.config_path)  # noqa: PTH113
    unset = broker.settings.exit_norestart is None and broker.attribute("broker.exit-norestart") is None
    if unset and not elsewhere:
        yield Hit(unit.last("Restart"), f"Restart={restart}, and the broker has no broker.exit-norestart")
