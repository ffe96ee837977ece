"""Values as systemd reads them: time spans, booleans, signals, exit statuses (systemd.time(7), systemd.service(5)).

Each function raises ValueError, with what was expected, where systemd would say "Failed to parse … ignoring".
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable

from brokerctl.durations import DAY, HOUR, MINUTE, MS, US, S
from brokerctl.records.units import ExitStatuses

# The longest spelling first, as systemd tries them: `min` before `m`, `M` is a month.
_UNITS = {
    "seconds": S, "second": S, "sec": S, "s": S,
    "minutes": MINUTE, "minute": MINUTE, "min": MINUTE,
    "months": 2_629_800 * S, "month": 2_629_800 * S, "M": 2_629_800 * S,
    "msec": MS, "ms": MS, "m": MINUTE,
    "hours": HOUR, "hour": HOUR, "hr": HOUR, "h": HOUR,
    "days": DAY, "day": DAY, "d": DAY,
    "weeks": 7 * DAY, "week": 7 * DAY, "w": 7 * DAY,
    "years": 31_557_600 * S, "year": 31_557_600 * S, "y": 31_557_600 * S,
    "usec": US, "us": US, "μs": US, "µs": US,
}  # fmt: skip
_SPAN = re.compile(rf"[ \t\n\r]*\+?(\d+)(?:\.(\d+))?[ \t\n\r]*({'|'.join(_UNITS)})?", re.ASCII)
_USEC_MAX = 2**64 - 1
_TRUE = frozenset({"1", "yes", "y", "true", "t", "on"})
_FALSE = frozenset({"0", "no", "n", "false", "f", "off"})


def boolean(text: str) -> bool:
    """`yes`, `no`, and their other spellings."""
    word = text.lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise ValueError(f"{text!r} is no boolean; expected yes or no")


def span(text: str) -> int | None:
    """Nanoseconds of `90`, `1min 30s`, `1.5h`; None for `infinity`. Without a unit it is seconds."""
    if text.strip(" \t\n\r") == "infinity":
        return None
    total, end = 0, 0
    while end < len(text):
        if not text[end:].strip(" \t\n\r"):
            break
        match = _SPAN.match(text, end)
        if match is None or len(match[1]) > 20:
            end = 0
            break
        scale = _UNITS[match[3]] if match[3] else S
        fraction = (match[2] or "0")[:9]
        total += int(match[1]) * scale + int(fraction) * scale // 10 ** len(fraction)
        end = match.end()
    if not end or total // US > _USEC_MAX:
        raise ValueError(f"{text!r} is no time span; expected such as 90, 1min 30s or infinity")
    return total // US * US


def timeout(text: str) -> int | None:
    """A limit on starting or stopping: 0 is no limit either, an old habit that systemd keeps (SYSTEMD.md 33)."""
    return span(text) or None


def signal_number(text: str) -> int:
    """15 of `TERM`, `SIGTERM` or `15`."""
    word = text.removeprefix("SIG")
    if word.isascii() and word.isdigit() and len(word) <= 2 and 0 < int(word) <= signal.SIGRTMAX:
        return int(word)
    if (match := re.fullmatch(r"RTMIN(?:\+(\d{1,2}))?|RTMAX(?:-(\d{1,2}))?", word, re.ASCII)) is not None:
        up = word.startswith("RTMIN")
        number = signal.SIGRTMIN + int(match[1] or 0) if up else signal.SIGRTMAX - int(match[2] or 0)
        if signal.SIGRTMIN <= number <= signal.SIGRTMAX:
            return number
    found = signal.Signals.__members__.get(f"SIG{word}")
    if found is None or word.startswith("RT"):
        raise ValueError(f"{text!r} is no signal; expected a name such as SIGTERM")
    return int(found)


# sysexits(3) and systemd.exec(5), "Process exit codes": what SuccessExitStatus= calls by name.
_EXIT_NAMES = {
    "SUCCESS": 0, "FAILURE": 1, "INVALIDARGUMENT": 2, "NOTIMPLEMENTED": 3, "NOPERMISSION": 4, "NOTINSTALLED": 5,
    "NOTCONFIGURED": 6, "NOTRUNNING": 7, "USAGE": 64, "DATAERR": 65, "NOINPUT": 66, "NOUSER": 67, "NOHOST": 68,
    "UNAVAILABLE": 69, "SOFTWARE": 70, "OSERR": 71, "OSFILE": 72, "CANTCREAT": 73, "IOERR": 74, "TEMPFAIL": 75,
    "PROTOCOL": 76, "NOPERM": 77, "CONFIG": 78, "EXCEPTION": 255,
    "CHDIR": 200, "NICE": 201, "FDS": 202, "EXEC": 203, "MEMORY": 204, "LIMITS": 205, "OOM_ADJUST": 206,
    "SIGNAL_MASK": 207, "STDIN": 208, "STDOUT": 209, "CHROOT": 210, "IOPRIO": 211, "TIMERSLACK": 212,
    "SECUREBITS": 213, "SETSCHEDULER": 214, "CPUAFFINITY": 215, "GROUP": 216, "USER": 217, "CAPABILITIES": 218,
    "CGROUP": 219, "SETSID": 220, "CONFIRM": 221, "STDERR": 222, "PAM": 224, "NETWORK": 225, "NAMESPACE": 226,
    "NO_NEW_PRIVILEGES": 227, "SECCOMP": 228, "SELINUX_CONTEXT": 229, "PERSONALITY": 230, "APPARMOR": 231,
    "ADDRESS_FAMILIES": 232, "RUNTIME_DIRECTORY": 233, "CHOWN": 235, "SMACK_PROCESS_LABEL": 236, "KEYRING": 237,
    "STATE_DIRECTORY": 238, "CACHE_DIRECTORY": 239, "LOGS_DIRECTORY": 240, "CONFIGURATION_DIRECTORY": 241,
    "NUMA_POLICY": 242, "CREDENTIALS": 243, "BPF": 244,
}  # fmt: skip


class PartlyError(ValueError):
    """Raised where systemd ignores a part of a list; `value` is what it takes."""

    def __init__(self, text: str, value: object) -> None:
        super().__init__(text)
        self.value = value


def exit_statuses(text: str) -> ExitStatuses:
    """`42 TEMPFAIL SIGKILL`: codes, their names, and signals."""
    wrong = ""
    codes: set[int] = set()
    signals: set[int] = set()
    for word in text.split():
        if word.isascii() and word.isdigit() and len(word) <= 3 and int(word) <= 255:
            codes.add(int(word))
        elif word in _EXIT_NAMES:
            codes.add(_EXIT_NAMES[word])
        else:
            try:
                signals.add(signal_number(word))
            except ValueError:
                wrong = wrong or word
    found = ExitStatuses(tuple(sorted(codes)), tuple(sorted(signals)))
    if wrong:
        raise PartlyError(f"{wrong!r} is no exit status; expected 0 to 255, a name or a signal", found)
    return found


def one_of(*words: str) -> Callable[[str], str]:
    """A reader of a value that is one of these words."""

    def read(text: str) -> str:
        if text not in words:
            raise ValueError(f"{text!r} is not possible; expected {', '.join(words[:-1])} or {words[-1]}")
        return text

    return read
