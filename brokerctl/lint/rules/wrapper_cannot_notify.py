"""An ExecStop wrapper that systemd does not listen to."""

from __future__ import annotations

from collections.abc import Iterator

from brokerctl.lint.rule import Hit, rule
from brokerctl.lint.subject import Subject


@rule(
    "warning",
    why="the wrapper can neither say what it waits for nor move the deadline while the dump is written",
    source="SYSTEMD.md 35, 37, P7, P8",
    mend="set NotifyAccess=exec",
)
def check(unit: Subject) -> Iterator[Hit]:
    wrapper = unit.wrapper()
    if wrapper is not None and unit.value("NotifyAccess") not in {"exec", "all"}:
        access = unit.settings_record.notify_access
        found = unit.last("NotifyAccess") or wrapper
        yield Hit(found, f"NotifyAccess={access}: messages of the ExecStop process are dropped")
