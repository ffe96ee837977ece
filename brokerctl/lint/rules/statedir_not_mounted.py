"""A broker whose state is on a file system that may be gone."""

from __future__ import annotations

from collections.abc import Iterator

from brokerctl.lint.rule import Hit, rule
from brokerctl.lint.subject import Subject


@rule(
    "warning",
    why="without the ordering a remote file system can be unmounted before rc3 has written the dump",
    source="systemd.unit(5) RequiresMountsFor=",
    mend="add RequiresMountsFor= with that directory",
)
def check(unit: Subject) -> Iterator[Hit]:
    found = unit.broker.attribute("statedir") if unit.broker else None
    if found is None or not found.value.startswith("/") or found.value.startswith(("/run/", "/var/lib/")):
        return
    covered = [word.rstrip("/") for word in unit.words("RequiresMountsFor")]
    ordered = "remote-fs.target" in unit.words("After")
    if not ordered and not any(found.value == path or found.value.startswith(f"{path}/") for path in covered):
        yield Hit(found.at, f"nothing keeps {found.value} mounted until the stop is over, if it is remote")
