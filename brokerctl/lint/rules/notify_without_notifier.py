"""Type=notify with a broker that says nothing."""

from __future__ import annotations

from collections.abc import Iterator

from brokerctl.lint.rule import Hit, rule
from brokerctl.lint.subject import Subject


@rule(
    "error",
    why="without READY=1 the start hangs until TimeoutStartSec=, and is then undone",
    source="flux-core#5326",
    mend="set broker.sd-notify=1",
)
def check(unit: Subject) -> Iterator[Hit]:
    broker = unit.broker
    if broker is not None and unit.value("Type") == "notify" and not broker.settings.sd_notify:
        yield Hit(unit.last("Type"), "Type=notify, but the broker has no broker.sd-notify=1")
