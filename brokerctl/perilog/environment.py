"""Which of a caller's variables a script gets, and the file by which systemd hands them over. Pure, on bytes.

The scripts run as root and the variables come from outside, so names are allowed one by one, and no value can become
anything but that value (SYSTEMD.md 109–113, later findings).
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# What Flux and its IMP tell a prolog, an epilog or a housekeeping script.
ALLOWED = (
    "FLUX_JOB_ID", "FLUX_JOB_USERID", "FLUX_OWNER_USERID", "FLUX_JOB_RANKS", "FLUX_URI", "HOME", "USER",
)  # fmt: skip

# Never, whatever the settings say: they decide which programs, libraries and start-up files run as root …
_REFUSED_PREFIXES = ("LD_", "BASH_FUNC_", "PYTHON", "PERL5", "RUBY", "GIT_", "SYSTEMD_", "DBUS_")
_REFUSED_SUFFIXES = ("PATH", "PATH_PREPEND", "PATH_APPEND")  # PATH, FLUX_EXEC_PATH, GCONV_PATH, CDPATH, PYTHONPATH …
_REFUSED = {
    "FLUX_RC_EXTRA", "BASH_ENV", "ENV", "IFS", "PS4", "SHELL", "SHELLOPTS", "BASHOPTS", "PROMPT_COMMAND",
    "GLIBC_TUNABLES", "OPENSSL_CONF", "NODE_OPTIONS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS",
    # … and what systemd itself tells a service, which a file would beat (SYSTEMD.md 113).
    "NOTIFY_SOCKET", "MAINPID", "INVOCATION_ID", "JOURNAL_STREAM", "SERVICE_RESULT", "EXIT_CODE", "EXIT_STATUS",
    "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "WATCHDOG_USEC", "WATCHDOG_PID",
}  # fmt: skip

# `NAME=value` is one argument of execve(2): with its end at most 32 pages (SYSTEMD.md 112).
ENTRY_MAX = 131_071
# All together; execve(2) takes 2 MB with the usual stack limit, and systemd adds its own.
TOTAL_MAX = 1 << 20

_LETTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_")
_NAME = _LETTERS | frozenset("0123456789")
_ESCAPED = b'\\"$`'


def refusal(name: str) -> str:
    """Why a variable may never be handed over; empty where it may."""
    if not name or name[0] not in _LETTERS or not _NAME.issuperset(name):
        return "is no name of a variable"
    if name in _REFUSED or name.startswith(_REFUSED_PREFIXES) or name.endswith(_REFUSED_SUFFIXES):
        return "decides what is run as root, or belongs to systemd"
    return ""


def render(environ: Mapping[bytes, bytes], names: Iterable[str]) -> tuple[bytes, list[tuple[str, str]]]:
    """The environment file for these names, and those that can't be handed over, each with the reason."""
    lines: list[bytes] = []
    dropped: list[tuple[str, str]] = []
    total = 0
    for name in dict.fromkeys(names):
        key = name.encode()
        value = environ.get(key)
        if value is None:
            continue
        why = _unfit(value)
        size = len(key) + 1 + len(value)
        if not why and size > ENTRY_MAX:
            why = f"is longer than {ENTRY_MAX} bytes"
        if not why and total + size > TOTAL_MAX:
            why = f"would make the environment longer than {TOTAL_MAX} bytes"
        if why:
            dropped.append((name, why))
            continue
        total += size
        lines.append(key + b'="' + _quoted(value) + b'"\n')
    return b"".join(lines), dropped


def _quoted(value: bytes) -> bytes:
    """Exact for every value that systemd reads at all: a backslash before these four, all else raw (SYSTEMD.md 110)."""
    for char in _ESCAPED:  # the backslash is the first of them
        value = value.replace(bytes((char,)), bytes((ord("\\"), char)))
    return value


def _unfit(value: bytes) -> str:
    """One such value would make systemd ignore the whole file (SYSTEMD.md 111)."""
    if b"\0" in value:
        return "holds a NUL"
    if value.isascii():
        return ""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return "is not UTF-8"
    if any(0xFDD0 <= ord(char) <= 0xFDEF or ord(char) & 0xFFFE == 0xFFFE for char in text):
        return "holds a Unicode noncharacter"
    return ""
