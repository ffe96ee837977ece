"""NotifyAccess=all in a unit that runs a broker."""

from __future__ import annotations

from collections.abc import Iterator

from brokerctl.lint.rule import Hit, rule
from brokerctl.lint.subject import Subject


@rule(
    "warning",
    why=("every job script and every child may then move the deadline, feed the watchdog or name another main process"),
    source="SYSTEMD.md 35, 85",
    mend="set NotifyAccess=main; exec where an ExecStop line speaks to systemd",
)
def check(unit: Subject) -> Iterator[Hit]:
    if unit.broker is not None and unit.value("NotifyAccess") == "all":
        yield Hit(unit.last("NotifyAccess"), "NotifyAccess=all: every process of the unit may speak for the broker")
