"""broker.sd-stop-timeout that overflows."""

from __future__ import annotations

from collections.abc import Iterator

from brokerctl.durations import parse
from brokerctl.lint.rule import Hit, rule
from brokerctl.lint.subject import Subject
from brokerctl.settings import SD_STOP_TIMEOUT_MAX_NS
from brokerctl.unit.broker import Attribute


@rule(
    "error",
    why=(
        "Flux holds the extension as an int of microseconds: more than 2147 s wraps around, and systemd gets nonsense"
    ),
    source="SYSTEMD.md 41",
    mend="set it to 35m at most",
)
def check(unit: Subject) -> Iterator[Hit]:
    found = unit.broker.attribute("broker.sd-stop-timeout") if unit.broker else None
    if found is not None and overflows(found):
        yield Hit(found.at, f"broker.sd-stop-timeout={found.value} is more than 2147 s")


def overflows(attribute: Attribute) -> bool:
    """Whether it is a duration that Flux can't hold."""
    if attribute.name != "broker.sd-stop-timeout":
        return False
    try:
        value_ns = parse(attribute.value)
    except ValueError:
        return False
    return value_ns is not None and value_ns > SD_STOP_TIMEOUT_MAX_NS
