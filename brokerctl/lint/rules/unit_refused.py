"""A service that systemd refuses to load."""

from __future__ import annotations

from collections.abc import Iterator

from brokerctl.lint.rule import Hit, rule
from brokerctl.lint.subject import Subject


@rule(
    "error",
    why="systemd refuses such a service as a whole, and says so only when it is started",
    source="systemd.service(5)",
    mend="systemd-analyze verify says it as systemd does",
)
def check(unit: Subject) -> Iterator[Hit]:
    if unit.kind != "service" or not unit.complete or any(problem.fatal for problem in unit.problems):
        return
    kind = _type(unit)
    yield from _commands(unit, kind)
    yield from _settings(unit, kind)


def _type(unit: Subject) -> str:
    """What systemd takes it for where it does not say."""
    if unit.last("Type") is None:
        if unit.last("BusName") is not None:
            return "dbus"
        if not unit.commands("ExecStart"):
            return "oneshot"
    kind: str = unit.value("Type")
    return kind


def _commands(unit: Subject, kind: str) -> Iterator[Hit]:
    starts = unit.commands("ExecStart")
    action = unit.last("SuccessAction", "Unit")
    ends = action is not None and action.value != "none"
    if not (starts or ends or unit.commands("ExecStop")):
        yield Hit(None, "neither ExecStart= nor ExecStop=: refused", "add ExecStart=")
    elif kind != "oneshot" and not starts:
        yield Hit(None, f"no ExecStart= is refused with Type={kind}", "add ExecStart=, or set Type=oneshot")
    elif kind != "oneshot" and len(starts) > 1:
        text = f"more than one ExecStart= is refused with Type={kind}"
        yield Hit(starts[1], text, "empty the list first (ExecStart=), or set Type=oneshot")
    elif not (starts or ends or unit.value("RemainAfterExit")):
        yield Hit(None, "ExecStop= alone is refused", "set RemainAfterExit=yes, or add ExecStart=")


def _settings(unit: Subject, kind: str) -> Iterator[Hit]:
    record = unit.settings_record
    if kind == "oneshot" and record.restart in {"always", "on-success"}:
        text = f"Restart={record.restart} is refused with Type=oneshot"
        yield Hit(unit.last("Restart"), text, "set Restart=on-failure, or remove it")
    if kind == "oneshot" and record.exit_type == "cgroup":
        yield Hit(unit.last("ExitType"), "ExitType=cgroup is refused with Type=oneshot", "remove ExitType=")
    if kind == "dbus" and unit.last("BusName") is None:
        yield Hit(unit.last("Type"), "Type=dbus is refused without a name on the bus", "add BusName=")
    if unit.last("PAMName") is not None and record.kill_mode in {"process", "none"}:
        yield Hit(unit.last("KillMode"), f"KillMode={record.kill_mode} is refused with PAMName=", "set KillMode=mixed")
