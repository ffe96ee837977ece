"""The journal of one life of a unit, read by journalctl.

What asks is lean: the rest of a program is imported while journalctl reads.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from brokerctl.durations import MS
from brokerctl.stop.errands import Command, Errand, Said

# A stop of a small instance is 20 lines; one that is flooded with messages (64 lines a node) still ends with these.
LINES_MAX = 2000
FIELDS = "MESSAGE,PRIORITY,SYSLOG_IDENTIFIER"
SYNC_NS, READ_NS = 500 * MS, 1500 * MS


class Entry(NamedTuple):
    """One entry; `who` is its SYSLOG_IDENTIFIER (`systemd` for what the manager says of the unit)."""

    who: str
    level: int
    text: str


# The last line that a broker logs; what it wrote before that is there, too.
_END = re.compile(r": [\w-]+->exit ")
# What was written last may not be there yet: then journald is asked to catch up, for a moment.
SYNC = Command(["journalctl", "--sync"], SYNC_NS)


def reading(invocation: str) -> Command:
    """Prints the last entries of a life: its processes', and the manager's about it."""
    argv = ["journalctl", "--no-pager", "--quiet", "--output=json", f"--output-fields={FIELDS}", f"--lines={LINES_MAX}"]
    return Command([*argv, f"_SYSTEMD_INVOCATION_ID={invocation}", "+", f"INVOCATION_ID={invocation}"], READ_NS)


def entries(invocation: str, *others: Command, manager: bool = False) -> Errand[tuple[list[Entry], list[Said]]]:
    """The entries of a life that has ended, and what other commands said that were asked beside it.

    Where the end of a broker is not among them, or the manager's last words matter too (`manager`), journald is asked
    to catch up, and they are read again. None, where systemd has given the life no id.
    """
    if not invocation:
        return [], (yield others)
    said, *answers = yield [reading(invocation), *others]
    found = read(said.text)
    if manager or not any(_END.search(entry.text) for entry in found):
        yield [SYNC]
        found = read((yield [reading(invocation)])[0].text)
    return found, answers


def read(text: str) -> list[Entry]:
    """The entries of `journalctl --output=json`; a message that is no text is a list of bytes."""
    import msgspec

    found = []
    for line in text.splitlines():
        try:
            fields: dict[str, Any] = msgspec.json.decode(line, type=dict[str, Any])
        except msgspec.MsgspecError:
            continue
        message, level = fields.get("MESSAGE"), str(fields.get("PRIORITY", "6"))
        if isinstance(message, list):
            message = bytes(byte for byte in message if isinstance(byte, int) and 0 <= byte < 256).decode(
                errors="replace"
            )
        if isinstance(message, str):
            who = str(fields.get("SYSLOG_IDENTIFIER", ""))
            found.append(Entry(who, int(level) if level.isdigit() else 6, message))
    return found
