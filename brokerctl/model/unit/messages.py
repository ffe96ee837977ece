"""Messages of a service to its manager (sd_notify(3); SYSTEMD.md C, 82–85)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from brokerctl.durations import US
from brokerctl.model.unit.states import What
from brokerctl.records.units import Sender, StatusText

if TYPE_CHECKING:
    from brokerctl.model.unit.machine import Unit

MESSAGE_MAX = 4096
# Who is heard under each NotifyAccess= (SYSTEMD.md 35).
HEARD: dict[str, frozenset[Sender]] = {
    "none": frozenset(),
    "main": frozenset({"main"}),
    "exec": frozenset({"main", "control"}),
    "all": frozenset({"main", "control", "child"}),
}
_STATES = frozenset({"READY=1", "STOPPING=1"})
_NUMBER = re.compile(r"[0-9]{1,20}")
_USEC_MAX = (1 << 64) - 1
WARNING = 4


def received(unit: Unit, sender: Sender, text: str) -> None:
    """One datagram: whoever may not send, or sends too much, is not heard (35, 48).

    Of equal keys the first counts (47), but of READY=1 and STOPPING=1 the last.
    """
    access = unit.access()
    if sender == "outside":
        return
    if sender not in HEARD[access]:
        only = "reception is disabled" if access == "none" else f"reception only permitted for {_who(access)}"
        unit.log(WARNING, f"Got notification message from {sender}, but {only}")
        return
    if len(text.encode()) > MESSAGE_MAX:
        unit.log(WARNING, "Received notify message exceeded maximum size. Ignoring.")
        return
    assignments = text.split("\n")
    _state(unit, next((each for each in reversed(assignments) if each in _STATES), ""))
    told: dict[str, str] = {}
    for assignment in assignments:
        key, _, value = assignment.partition("=")
        told.setdefault(key, value)
    _apply(unit, told)


def _who(access: str) -> str:
    return "main PID" if access == "main" else "main PID and control PID"


def _state(unit: Unit, said: str) -> None:
    if said == "READY=1" and unit.settings.type == "notify":
        unit.stopping = False
        unit.happens(What.READY)
    elif said == "STOPPING=1":
        unit.stopping = True
        unit.happens(What.STOPPING)


def _apply(unit: Unit, told: dict[str, str]) -> None:
    if "STATUS" in told and told["STATUS"] != unit.status:
        unit.status = told["STATUS"]
        unit.emit(StatusText(unit.status))
    if "EXTEND_TIMEOUT_USEC" in told:
        usec = _usec(unit, "EXTEND_TIMEOUT_USEC", told["EXTEND_TIMEOUT_USEC"])
        if usec not in {None, 0, _USEC_MAX}:
            assert usec is not None
            unit.clocks.extend(usec * US)
    # After the extension, which a beat in the same message takes back.
    if told.get("WATCHDOG") == "1":
        unit.clocks.ping()
    elif told.get("WATCHDOG") == "trigger":
        unit.happens(What.WATCHDOG, "watchdog")
    if "WATCHDOG_USEC" in told:
        usec = _usec(unit, "WATCHDOG_USEC", told["WATCHDOG_USEC"])
        if usec is not None:
            unit.clocks.override(usec * US)


def _usec(unit: Unit, key: str, value: str) -> int | None:
    """Plain decimal, nothing else (SYSTEMD.md 41)."""
    if not _NUMBER.fullmatch(value) or int(value) > _USEC_MAX:
        unit.log(WARNING, f"Failed to parse {key}={value}")
        return None
    return int(value)
