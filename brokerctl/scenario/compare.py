"""Whether two traces tell the same: the same sequence per rank and component, whatever the times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from brokerctl.records import Arm, Fired, Line
from brokerctl.report.sides import Difference, Said, shown
from brokerctl.trace import as_told, component

# By rank and component: what it tells, with times from the first line on.
Stories = dict[tuple[int, str], list[Said]]


def story(lines: Iterable[Line]) -> Stories:
    """What a trace tells, without means. Reminders tell nothing."""
    told: Stories = {}
    reminders: dict[tuple[int, str], bool] = {}
    begun_ns: int | None = None
    for line in lines:
        if begun_ns is None:
            begun_ns = line.t_ns
        what = line.what
        if isinstance(what, Arm):
            reminders[line.rank, what.timer] = what.reminder
        elif isinstance(what, Fired) and reminders.get((line.rank, what.timer), False):
            continue
        record = as_told(what)
        if record is not None:
            told.setdefault((line.rank, component(what)), []).append(Said(line.t_ns - begun_ns, line.rank, record))
    return told


def first_difference(one: Iterable[Line], two: Iterable[Line]) -> str | None:
    """The first thing that one trace tells and the other doesn't, in one line; None where they are equal."""
    found = differ(story(one), story(two))
    return None if found is None else in_one_line(found)


def differ(one: Mapping[tuple[int, str], list[Said]], two: Mapping[tuple[int, str], list[Said]]) -> Difference | None:
    """Where two stories part: of all components that differ, the one that does so first."""
    found = [_parting(key, one.get(key, []), two.get(key, [])) for key in sorted({*one, *two})]
    return min((each for each in found if each is not None), key=_when, default=None)


def _parting(key: tuple[int, str], ones: Sequence[Said], twos: Sequence[Said]) -> Difference | None:
    common = min(len(ones), len(twos))
    index = next((i for i in range(common) if ones[i].what != twos[i].what), common)
    if index == len(ones) == len(twos):
        return None
    return Difference(key[0], key[1], index, tuple(ones), tuple(twos))


def _when(difference: Difference) -> int:
    at = difference.index
    return min(said[at].t_ns for said in (difference.ones, difference.twos) if at < len(said))


def in_one_line(found: Difference) -> str:
    """`rank 0, model, 3: … against …`."""
    one, two = (shown(found.at(side), as_json=True) for side in (found.ones, found.twos))
    return f"rank {found.rank}, {found.component}, {found.index}: {one} against {two}"


def count(told: Mapping[tuple[int, str], Sequence[Said]]) -> int:
    """How many things were told."""
    return sum(map(len, told.values()))
