"""A service that systemd refuses to load."""

from __future__ import annotations

from collections.abc import Iterator

from brokerctl.lint.rule import Hit, rule
from brokerctl.lint.subject import Subject


@rule(
    "error",
    why="systemd refuses such a service as a whole, and says so only when it is started",
    source="systemd.service(5)",
    mend="see the text",
)
def check(unit: Subject) -> Iterator[Hit]:
    if unit.kind != "service" or not unit.complete or any(problem.fatal for problem in unit.problems):
        return
    record = unit.settings_record
    if record.type == "oneshot" and record.restart in {"always", "on-success"}:
        yield Hit(unit.last("Restart"), f"Restart={record.restart} is refused with Type=oneshot")
    if record.type != "oneshot" and len(record.exec_start) > 1:
        yield Hit(unit.commands("ExecStart")[1], f"more than one ExecStart= is refused with Type={record.type}")
    if not record.exec_start and not record.exec_stop and not unit.words("SuccessAction"):
        yield Hit(None, "neither ExecStart= nor ExecStop=: refused")
    if record.type != "oneshot" and not record.exec_start and record.exec_stop:
        yield Hit(None, f"no ExecStart= is refused with Type={record.type}")
