"""An epilog that nothing limits."""

from __future__ import annotations

from collections.abc import Iterator

from brokerctl.lint.rule import Hit, rule
from brokerctl.lint.subject import Subject


@rule(
    "warning",
    why="a hung script holds its job, its nodes and the stop of the instance until somebody comes",
    source="FLUX.md 67, flux-core#7786",
    mend="set timeout in [job-manager.epilog], or TimeoutStartSec= in the unit",
)
def check(unit: Subject) -> Iterator[Hit]:
    script = unit.flux.script(unit.role) if unit.flux else None
    if script is not None and script.timeout_ns is None and unit.settings_record.timeout_start_ns is None:
        yield Hit(None, f"neither {unit.flux.path if unit.flux else ''} nor the unit limits the {unit.role}")
