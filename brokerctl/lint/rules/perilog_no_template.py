"""A unit that all jobs share."""

from __future__ import annotations

from collections.abc import Iterator

from brokerctl.lint.rule import Hit, rule
from brokerctl.lint.subject import Subject


@rule(
    "error",
    why=(
        "a second job's start joins the run of the first: its own script never runs, and the first job's "
        "environment holds"
    ),
    source="SYSTEMD.md 92, 116, flux-core#6040",
    mend="make it a template: one instance a job",
)
def check(unit: Subject) -> Iterator[Hit]:
    if unit.role and not unit.template and unit.kind == "service":
        yield Hit(None, f"{unit.name} is no template: jobs on one node would share a run of it")
