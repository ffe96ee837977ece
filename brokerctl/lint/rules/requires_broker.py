"""A unit that starts the broker again."""

from __future__ import annotations

from collections.abc import Iterator

from brokerctl.lint.rule import Hit, rule
from brokerctl.lint.subject import Subject


@rule(
    "warning",
    why="a service that requires or wants the broker and restarts pulls it up again after flux shutdown",
    source="flux-core#5072",
    mend="use BindsTo= with After=, which stops this one as well, or After= alone",
)
def check(unit: Subject) -> Iterator[Hit]:
    restart = unit.value("Restart")
    if restart == "no":
        return
    for setting in (*unit.entries("Requires", "Unit"), *unit.entries("Wants", "Unit")):
        if "flux.service" in setting.value.split():
            yield Hit(setting, f"{setting.key}=flux.service with Restart={restart}: a restart here starts Flux there")
