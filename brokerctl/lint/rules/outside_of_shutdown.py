"""A service that a reboot does not stop in order."""

from __future__ import annotations

from collections.abc import Iterator

from brokerctl.lint.rule import Hit, rule
from brokerctl.lint.subject import Subject

# Mounts, and what acts like one, stop for the second of them.
_SHUTDOWN = frozenset({"shutdown.target", "umount.target"})


@rule(
    "warning",
    why=(
        "without the default dependencies nothing stops it at shutdown: it is killed with the rest at the "
        "very end, after DefaultTimeoutStopSec="
    ),
    source="systemd.service(5), systemd#31288",
    mend="add Conflicts=shutdown.target and Before=shutdown.target",
)
def check(unit: Subject) -> Iterator[Hit]:
    stops = unit.broker is not None or unit.commands("ExecStop")
    ordered = _SHUTDOWN & set(unit.words("Conflicts"))
    if stops and not unit.value("DefaultDependencies", "Unit") and not ordered:
        yield Hit(unit.last("DefaultDependencies", "Unit"), "DefaultDependencies=no without Conflicts=shutdown.target")
