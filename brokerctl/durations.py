"""RFC 23 durations (Flux Standard Duration): integers of nanoseconds inside, text at the edges.

`45`, `1.5m`, `200ms`, `1h`, `2d`, and `none` (also `inf`, `infinity`) for no limit, which is `None` here.
"""

from __future__ import annotations

from decimal import Decimal, DecimalException

NS = 1
US = 1_000
MS = 1_000_000
S = 1_000_000_000
MINUTE = 60 * S
HOUR = 60 * MINUTE
DAY = 24 * HOUR

_UNITS = {"ns": NS, "us": US, "ms": MS, "s": S, "m": MINUTE, "h": HOUR, "d": DAY}
_UNLIMITED = frozenset({"none", "inf", "infinity"})
_FIRST = frozenset("0123456789.")
_NUMBER = _FIRST | frozenset("e+-")

# A century: more is a mistake, and a limit keeps sums of durations far from 2**63.
LIMIT_NS = 36_525 * DAY


def parse(text: str) -> int | None:
    """Nanoseconds of an RFC 23 duration; None for `none`. ValueError says what was expected."""
    word = text.strip().lower()
    if word in _UNLIMITED:
        return None
    number = word.rstrip("abcdefghijklmnopqrstuvwxyz")
    unit = word[len(number) :] or "s"
    scale = _UNITS.get(unit)
    # Decimal would read more than that: spaces, signs, underscores, other scripts' digits.
    if scale is None or number[:1] not in _FIRST or not _NUMBER.issuperset(number):
        raise ValueError(_expected(text))
    try:
        value_ns = Decimal(number) * scale
    except DecimalException:
        raise ValueError(_expected(text)) from None
    if value_ns > LIMIT_NS:
        raise ValueError(f"{text!r} is longer than a century")
    return int(value_ns)


def finite(text: str) -> int:
    """As `parse`, of a duration that has an end; ValueError for `none`, too."""
    value_ns = parse(text)
    if value_ns is None:
        raise ValueError(f"{text!r} is not possible here; expected a duration")
    return value_ns


def _expected(text: str) -> str:
    return f"{text!r} is no duration; expected a number with ms, s, m, h or d, or none"


def as_fsd(ns: int) -> str:
    """The time spent in a state as Flux logs it: `75.5444ms`, `3.00303s`, `1.00001m` (FLUX.md 2)."""
    seconds = ns / S
    if ns < 100 * MS:
        return f"{seconds * 1e3:.6g}ms"
    if ns < MINUTE:
        return f"{seconds:.6g}s"
    if ns < HOUR:
        return f"{seconds / 60:.6g}m"
    if ns < DAY:
        return f"{seconds / 3600:.6g}h"
    return f"{seconds / 86400:.6g}d"


def as_text(ns: int | None) -> str:
    """The shortest exact text that `parse` reads back: `none`, `45s`, `1.5s`, `5m`, `20ms`."""
    if ns is None:
        return "none"
    if ns == 0:
        return "0s"
    for unit in ("d", "h", "m"):
        if ns % _UNITS[unit] == 0:
            return f"{ns // _UNITS[unit]}{unit}"
    unit = "s" if ns >= S else "ms"
    return f"{(Decimal(ns) / _UNITS[unit]).normalize():f}{unit}"


def as_short(ns: int) -> str:
    """For people: three digits and a unit, `2.4s`, `45s`, `5m3s`, `120ms`."""
    if round(ns / MS) < 1000:
        return f"{round(ns / MS)}ms"
    if round(ns / S, 1) < 10:
        return f"{round(ns / S, 1)}s"
    if round(ns / S) < 120:
        return f"{round(ns / S)}s"
    minutes, seconds = divmod(round(ns / S), 60)
    if minutes < 120:
        return f"{minutes}m{seconds}s" if seconds else f"{minutes}m"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes}m" if minutes else f"{hours}h"
