"""What a job is called: from any spelling of its id to one unit name that is safe everywhere. Pure.

Only what *is* a job id gets through, and it gets through in one spelling, `f` and base58 digits. So no name needs to
be escaped, none is a glob, a path or an option, and two spellings of one job mean one unit (SYSTEMD.md 102–108).
"""

from __future__ import annotations

from brokerctl.ids import BASE58, f58

KINDS = ("prolog", "epilog", "housekeeping")

# A job id is an unsigned number of 64 bits (RFC 19), so no spelling of one is long.
_LIMIT = 1 << 64
_LENGTH_MAX = 32
_DECIMAL, _HEXADECIMAL = "0123456789", "0123456789abcdef"


def job_number(raw: bytes) -> int:
    """The number of a job id as Flux spells it: `ƒ39f`, `f39f`, decimal, or `0x` and hexadecimal (RFC 19).

    ValueError says what is wrong with anything else.
    """
    text = raw.decode(errors="replace")
    if len(text) <= _LENGTH_MAX:
        if text[:1] in {"ƒ", "f"}:
            digits, alphabet = text[1:], BASE58
        elif text[:2].lower() == "0x":
            digits, alphabet = text[2:].lower(), _HEXADECIMAL
        else:
            digits, alphabet = text, _DECIMAL
        number = 0
        for digit in digits:
            value = alphabet.find(digit)
            if value < 0:
                break
            number = number * len(alphabet) + value
        else:
            if digits and number < _LIMIT:
                return number
    raise ValueError(f"{text[:_LENGTH_MAX]!r} is no job id; expected ƒ or f with base58 digits, a decimal, or 0x…")


def instance(number: int) -> str:
    """The instance name of a job, `f39firM4HrF`, as Flux's own helpers name it (f58plain)."""
    return f"f{f58(number)[1:]}"


def unit(kind: str, number: int) -> str:
    """`flux-epilog@f39firM4HrF.service`; the suffix is always there, for `x.target` alone means another unit."""
    return f"flux-{kind}@{instance(number)}.service"
