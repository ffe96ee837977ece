"""A setting that is misspelt, or stands in a section where systemd does not read it."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

from brokerctl.lint.rule import Hit, rule
from brokerctl.lint.subject import Subject
from brokerctl.unit import keys

_NAMES = sorted({key for _, key in keys.KEYS} | set(keys.EXEC))
_NEAR = 0.87


@rule(
    "warning",
    why="systemd ignores a key that it does not know, with a line in the journal that nobody reads",
    source="systemd.unit(5)",
    mend="spell it as the manual does, in the section that it belongs to",
)
def check(unit: Subject) -> Iterator[Hit]:
    for setting in unit.settings():
        where = (setting.section, setting.key)
        if setting.section not in {"Unit", "Service"} or where in keys.KEYS:
            continue
        home = next((section for section, key in keys.KEYS if key == setting.key), None)
        if setting.key in keys.EXEC:
            home = "Service"
        if home and home != setting.section:
            yield Hit(setting.at, f"{setting.key}= in [{setting.section}] is ignored; it belongs into [{home}]")
        elif not home and (near := get_close_matches(setting.key, _NAMES, 1, _NEAR)):
            yield Hit(setting.at, f"{setting.key}= is no setting; {near[0]}= is")
