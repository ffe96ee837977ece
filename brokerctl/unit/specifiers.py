"""`%i` and its like: what systemd puts in for them, as far as the unit's name tells (systemd.unit(5), "Specifiers").

What only the machine or the user tells (`%H`, `%u` …) is left as it stands.
"""

from __future__ import annotations

import re

_ESCAPED = re.compile(r"\\x([0-9a-fA-F]{2})")
_SPECIFIER = re.compile(r"%(.)", re.DOTALL)
# As PID 1 has them, the system manager.
_DIRECTORIES = {
    "t": "/run",
    "S": "/var/lib",
    "C": "/var/cache",
    "L": "/var/log",
    "E": "/etc",
    "T": "/tmp",  # noqa: S108
    "V": "/var/tmp",  # noqa: S108
}
# Those that have the instance with `-` and `\xNN` undone: it may hold any character at all.
UNESCAPED = "If"


def split_name(name: str) -> tuple[str, str | None]:
    """Prefix and instance of a unit's name; None where it is no template's, "" of the template itself."""
    stem = name.rpartition(".")[0] or name
    prefix, at, instance = stem.partition("@")
    return prefix, instance if at else None


def unescape(text: str) -> str:
    r"""What `systemd-escape --unescape` makes of it: `-` is `/`, `\xNN` a byte."""
    data = bytearray()
    end = 0
    for match in _ESCAPED.finditer(text):
        data += text[end : match.start()].replace("-", "/").encode(errors="surrogateescape")
        data.append(int(match[1], 16))
        end = match.end()
    data += text[end:].replace("-", "/").encode(errors="surrogateescape")
    return data.decode(errors="surrogateescape")


def expand(text: str, name: str) -> str:
    """The text with what `name` tells put in for its specifiers."""
    if "%" not in text:
        return text
    prefix, instance = split_name(name)
    last = prefix.rpartition("-")[2]
    of_path = unescape(instance or prefix)
    known = {
        "n": name,
        "N": name.rpartition(".")[0],
        "p": prefix,
        "P": unescape(prefix),
        "i": instance or "",
        "I": unescape(instance or ""),
        "j": last,
        "J": unescape(last),
        "f": "/" + of_path.strip("/"),
        "%": "%",
        **_DIRECTORIES,
    }
    return _SPECIFIER.sub(lambda match: known.get(match[1], match[0]), text)
