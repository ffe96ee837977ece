"""broker.exit-norestart that the unit restarts after all."""

from __future__ import annotations

from collections.abc import Iterator

from brokerctl.lint.rule import Hit, rule
from brokerctl.lint.subject import Subject


@rule(
    "error",
    why="flux shutdown ends with that code, and systemd starts the broker again that was just shut down",
    source="SYSTEMD.md 86, FLUX.md 39",
    mend="add the code to RestartPreventExitStatus=",
)
def check(unit: Subject) -> Iterator[Hit]:
    broker = unit.broker
    code = broker.settings.exit_norestart if broker else None
    restart = unit.value("Restart")
    if broker is None or code is None or restart not in {"always", "on-failure"}:
        return
    record = unit.settings_record
    fine = restart == "on-failure" and code in record.success_exit_status.codes
    if code not in record.restart_prevent_exit_status.codes and not fine:
        text = f"Restart={restart} starts again what exit {code} should keep down"
        yield Hit(broker.at("broker.exit-norestart"), text, f"set RestartPreventExitStatus={code}")
