"""Whether two traces tell the same: the same sequence per rank and component, whatever the times (DESIGN 2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from brokerctl.records import Arm, Fired, Line, Record
from brokerctl.trace import Story, as_told, component

_MISSING = "nothing more"


def story(lines: Iterable[Line]) -> Story:
    """What a trace tells, by rank and component, without times and means. Reminders tell nothing."""
    told: Story = {}
    reminders: dict[tuple[int, str], bool] = {}
    for line in lines:
        what = line.what
        if isinstance(what, Arm):
            reminders[line.rank, what.timer] = what.reminder
        elif isinstance(what, Fired) and reminders.get((line.rank, what.timer), False):
            continue
        record = as_told(what)
        if record is not None:
            told.setdefault((line.rank, component(what)), []).append(record)
    return told


def first_difference(one: Iterable[Line], two: Iterable[Line]) -> str | None:
    """The first thing that one trace tells and the other doesn't, in one line; None where they are equal."""
    return differ(story(one), story(two))


def differ(one: Mapping[tuple[int, str], list[Record]], two: Mapping[tuple[int, str], list[Record]]) -> str | None:
    """`first_difference` of two stories."""
    for rank, name in sorted({*one, *two}):
        ones, twos = one.get((rank, name), []), two.get((rank, name), [])
        if ones == twos:
            continue
        index = next((i for i, (a, b) in enumerate(zip(ones, twos, strict=False)) if a != b), min(len(ones), len(twos)))
        return f"rank {rank}, {name}, {index}: {_shown(ones, index)} against {_shown(twos, index)}"
    return None


def _shown(records: list[Record], index: int) -> str:
    return msgspec.json.encode(records[index]).decode() if index < len(records) else _MISSING
