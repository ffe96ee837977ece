"""Formatting of rank sets and host lists (RFC 22 idsets, RFC 29 hostlists).

Parsing of what users write is ClusterShell's, at the edges; these two run on the stop path and in every log
line.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers take it for true; `typing` takes 10 ms to import
if TYPE_CHECKING:
    from collections.abc import Iterable

# Longer numbers are part of a name, not a count of hosts; int() refuses very long ones.
DIGITS_MAX = 18
# The digits of a job id (RFC 19).
BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"


def f58(number: int) -> str:
    """`ƒXoU5aX`: a job id as Flux shows it (RFC 19)."""
    digits = ""
    while True:
        number, digit = divmod(number, 58)
        digits = BASE58[digit] + digits
        if not number:
            return f"ƒ{digits}"


def idset(ids: Iterable[int]) -> str:
    """`0-2,5` of any iterable of ranks (RFC 22, without brackets, as Flux logs it)."""
    return _ranges(sorted(set(ids)), 1)


def parse_idset(text: str) -> list[int]:
    """The ranks of an RFC 22 idset, `0-2,5` with or without brackets; ValueError says what was expected."""
    ranks: list[int] = []
    for part in text.strip().removeprefix("[").removesuffix("]").split(","):
        first, dash, last = part.partition("-")
        if not (first.isascii() and first.isdigit()) or (dash and not (last.isascii() and last.isdigit())):
            raise ValueError(f"{text!r} is no idset; expected something like 0-2,5")
        low, high = int(first), int(last or first)
        if high < low or high - low > 1 << 24:
            raise ValueError(f"{text!r} is no idset; {part} is no range")
        ranks.extend(range(low, high + 1))
    return ranks


def hostlist(hosts: Iterable[str]) -> str:
    """`picl[0-2,7],login` of hosts in their order; equal names are kept, as Flux does (RFC 29)."""
    groups: list[tuple[str, int, list[int]]] = []  # prefix, width, numbers
    for host in hosts:
        prefix = host.rstrip("0123456789")
        digits = host[len(prefix) :]
        if not digits or len(digits) > DIGITS_MAX:
            groups.append((host, 0, []))
            continue
        padded = digits[0] == "0" and len(digits) > 1
        if groups and groups[-1][0] == prefix:
            width, numbers = groups[-1][1:]
            if numbers and (len(digits) == width if width > 1 else not padded):
                numbers.append(int(digits))
                continue
        groups.append((prefix, len(digits) if padded else 1, [int(digits)]))
    return ",".join(_group(*group) for group in groups)


def _group(prefix: str, width: int, numbers: list[int]) -> str:
    brackets = "{}[{}]" if len(numbers) > 1 else "{}{}"
    return brackets.format(prefix, _ranges(numbers, width))


def _ranges(numbers: Iterable[int], width: int) -> str:
    """The numbers in their order, padded to a width, those that follow each other as a range."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ",".join(
        f"{first:0{width}d}" if first == last else f"{first:0{width}d}-{last:0{width}d}" for first, last in spans
    )
