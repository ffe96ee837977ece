"""A code for "stay down" that also reads as success."""

from __future__ import annotations

from collections.abc import Iterator

from brokerctl.lint.rule import Hit, rule
from brokerctl.lint.subject import Subject


@rule(
    "warning",
    why=(
        "a failed rc1 and a failed cleanup after flux shutdown end with the same code: the unit is then "
        "inactive, not failed, and nobody looks"
    ),
    source="FLUX.md 38, 39, 109",
    mend="take the drop-in of brokerctl units, whose ExecStopPost= tells; or the code out of SuccessExitStatus=",
)
def check(unit: Subject) -> Iterator[Hit]:
    broker = unit.broker
    code = broker.settings.exit_norestart if broker else None
    if code is None or code not in unit.settings_record.success_exit_status.codes or code == 0:
        return
    if unit.wrapper(key="ExecStopPost") is None:
        yield Hit(unit.last("SuccessExitStatus"), f"exit {code} reads as success, also after a failed rc1 or cleanup")
