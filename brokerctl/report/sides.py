"""Two stories side by side: what both tell, then where they part."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Sequence
from itertools import zip_longest

import msgspec

from brokerctl.durations import S
from brokerctl.logs.fluxlog import entry
from brokerctl.records import Effect, Event, JobEvent, Line, Record
from brokerctl.report.text import printable

_MISSING = "nothing more"
# What is shown of what both tell, and of what comes after they have parted.
BEFORE, AFTER = 3, 4
WIDTH_MIN = 80


class Said(msgspec.Struct, frozen=True, gc=False):
    """One thing that a rank tells, `t_ns` after the first of the run."""

    t_ns: int
    rank: int
    what: Record


class Difference(msgspec.Struct, frozen=True):
    """Where two stories part: what a component of a rank tells in both; the same before `index`."""

    rank: int
    component: str
    index: int
    ones: tuple[Said, ...]
    twos: tuple[Said, ...]

    def at(self, side: Sequence[Said]) -> Said | None:
        """What a side tells there; None where it tells nothing more."""
        return side[self.index] if self.index < len(side) else None


def shown(said: Said | None, *, as_json: bool = False) -> str:
    """One thing as the log has it, or an eventlog, else as a trace does; without durations."""
    if said is None:
        return _MISSING
    what = said.what
    if not as_json:
        if isinstance(what, JobEvent):
            words = " ".join(f"{key}={_json(value)}" for key, value in what.context.items())
            return f"{what.label} {what.name} {words}".rstrip()
        if isinstance(what, Effect):
            found = entry(Line(said.t_ns, said.rank, 0, ">", what), _Hosts())  # type: ignore[arg-type]
            if found is not None:
                return found.plain_head() + (found.text.rpartition(" ")[0] if hasattr(what, "held_ns") else found.text)
    name, rest = type(what).__name__, _json(what)
    return rest if as_json else f"{'< ' if isinstance(what, Event) else ''}{name} {_fields(what)}".rstrip()


class _Hosts(tuple[str, ...]):
    """Any rank's host, where only its number is known."""

    __slots__ = ()

    def __getitem__(self, rank: object) -> str:  # type: ignore[override]
        return f"rank{rank}"


def _fields(what: Record) -> str:
    return " ".join(f"{key}={_json(value)}" for key, value in msgspec.structs.asdict(what).items() if value != "")


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def side_by_side(found: Difference, titles: tuple[str, str], *, width: int = 0, colour: bool = False) -> str:
    """A table of both around the place where they part; `=` marks what both tell, `≠` what they don't."""
    half = (max(width or shutil.get_terminal_size((120, 24)).columns, WIDTH_MIN) - 5) // 2
    first, last = max(0, found.index - BEFORE), found.index + AFTER
    rows = [f"  {titles[0]:<{half}} {titles[1]}"]
    if first:
        rows.append(f"  … {first} equal before")
    pairs = zip_longest(found.ones[first:last], found.twos[first:last])
    for index, (one, two) in enumerate(pairs, first):
        same = one is not None and two is not None and one.what == two.what
        left, right = _cell(one, half), _cell(two, half)
        mark = "=" if same else "≠"
        for number, (a, b) in enumerate(zip_longest(left, right, fillvalue="")):
            row = f"{mark if number == 0 else ' '} {a:<{half}} {b}".rstrip()
            rows.append(f"\x1b[31m{row}\x1b[0m" if colour and index == found.index else row)
    return "".join(f"{row}\n" for row in rows)


def _cell(said: Said | None, width: int) -> list[str]:
    if said is None:
        return [f"{'':9} ({_MISSING})"]
    lines = textwrap.wrap(printable(shown(said)), width - 10, break_long_words=True, break_on_hyphens=False)
    return [f"{said.t_ns / S:9.3f} {text}" if not at else f"{'':9} {text}" for at, text in enumerate(lines or [""])]
