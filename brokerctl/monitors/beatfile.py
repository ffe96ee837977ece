"""Reading heartbeat files (`brokerctl.heartbeat` writes them): what one says of its worker now.

Anybody may have written the file, and its pid may be another process's by now: nothing in it is believed before it was
checked, and whoever signals that pid checks again (`monitors.process`).
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable
from typing import Literal, NamedTuple

from brokerctl.durations import as_short
from brokerctl.heartbeat import FORMAT
from brokerctl.kernel import proc
from brokerctl.monitors.contract import Condition

Verdict = Literal[
    "alive", "late", "stopping", "gone", "another process", "an earlier boot", "garbage", "missing"
]  # fmt: skip
State = Literal["starting", "ready", "working", "stopping"]

SIZE_MAX = 8192
_STATES: tuple[State, ...] = ("starting", "ready", "working", "stopping")
_NUMBERS = {"pid": 1 << 22, "start_ticks": 1 << 63, "beat_ns": 1 << 63, "limit_ns": 1 << 75}
_TEXTS = ("guid", "boot", "state", "status")


class Beat(NamedTuple):
    """What a heartbeat file says; `heartbeat.Heartbeat` explains it. `start_ticks` is in clock ticks since boot."""

    pid: int
    start_ticks: int
    guid: str
    boot: str
    beat_ns: int
    limit_ns: int
    state: State
    status: str


class Reading(NamedTuple):
    """What was found: `beat` is None where the file could not be read; `text` says it in one line for people.

    `uid` is the owner of the file.
    """

    path: str
    verdict: Verdict
    text: str
    beat: Beat | None = None
    age_ns: int = 0
    uid: int = -1

    @property
    def ready(self) -> bool:
        """It works, and takes more."""
        return self.verdict == "alive" and self.beat is not None and self.beat.state in {"ready", "working"}


def parse(data: bytes) -> Beat | None:
    """The fields of a heartbeat file; None where it is none."""
    try:
        lines = data.decode().split("\n")
    except UnicodeDecodeError:
        return None
    found = dict(line.partition("=")[::2] for line in lines[1:])
    numbers = {}
    for name, limit in _NUMBERS.items():
        word = found.get(name, "")
        if not (word.isascii() and word.isdigit() and len(word) <= 23) or int(word) >= limit:
            return None
        numbers[name] = int(word)
    state = next((state for state in _STATES if state == found.get("state")), None)
    if lines[0] != FORMAT or state is None or not numbers["pid"] or any(name not in found for name in _TEXTS):
        return None
    return Beat(**numbers, guid=_printable(found["guid"]), boot=found["boot"], state=state,
                status=_printable(found["status"]))  # fmt: skip


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text)


def judge(
    beat: Beat,
    now_ns: int,
    boot: str,
    look: Callable[[int], proc.Stat | None] | None,
    max_age_ns: int | None = None,
) -> tuple[Verdict, str]:
    """What a beat means now, and why. `look` tells what a pid is now; without it only the beat counts.

    `max_age_ns` takes the place of the worker's own limit, but not while it works on something long.
    """
    if beat.boot != boot:
        return "an earlier boot", "it was written before this machine was booted"
    if look is not None and (lost := _lost(beat, look(beat.pid))) is not None:
        return lost
    age_ns = now_ns - beat.beat_ns
    if age_ns < 0:
        return "garbage", "its last beat lies in the future"
    if beat.state == "stopping":
        return "stopping", beat.status or "Stopping"
    limit_ns = beat.limit_ns
    if max_age_ns is not None and beat.state != "working":
        limit_ns = max_age_ns
    # Who starts has no loop yet that could turn: how long that may take is a startup probe's, or the manager's.
    if age_ns > limit_ns and (beat.state != "starting" or max_age_ns is not None):
        return "late", f"its last beat was {as_short(age_ns)} ago; expected within {as_short(limit_ns)}"
    return "alive", beat.status or f"{beat.state}, its last beat was {as_short(age_ns)} ago"


def _lost(beat: Beat, found: proc.Stat | None) -> tuple[Verdict, str] | None:
    """Why its pid is not the worker any more, if it is not."""
    if found is None or found.state in "ZX":
        return "gone", f"pid {beat.pid} is no more"
    if found.start_ticks != beat.start_ticks:
        return "another process", f"pid {beat.pid} is {_printable(found.comm)} now, which began at another time"
    return None


def condition(reading: Reading) -> Condition:
    """The verdict in a monitor's words."""
    match reading.verdict:
        case "alive" if reading.beat is not None and reading.beat.state == "starting":
            return "starting"
        case "alive" | "late" | "stopping" as verdict:
            return verdict
        case _:
            return "gone"


def read(path: str | os.PathLike[str], *, max_age_ns: int | None = None, shared_pids: bool = True) -> Reading:
    """Read and judge a heartbeat file; never fails.

    Where its worker is in another pid namespace (not `shared_pids`), its pid says nothing here, and only its beat does.
    """
    name = os.fspath(path)
    data, uid, problem = _load(name)
    if data is None:
        return Reading(name, "missing" if problem == os.strerror(errno.ENOENT) else "garbage", problem)
    beat = parse(data)
    if beat is None:
        return Reading(name, "garbage", "it is no heartbeat file")
    now_ns = time.monotonic_ns()
    verdict, text = judge(beat, now_ns, boot_id(), proc.stat if shared_pids else None, max_age_ns)
    return Reading(name, verdict, text, beat, max(0, now_ns - beat.beat_ns), uid)


def _load(path: str) -> tuple[bytes | None, int, str]:
    """Its bytes and its owner, or why there are none.

    A link, a FIFO or a device is no heartbeat file, and must not hold us up.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        return None, -1, error.strerror or "cannot be opened"
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            return None, -1, "is no regular file"
        data = os.read(fd, SIZE_MAX + 1)
    except OSError as error:
        return None, -1, error.strerror or "cannot be read"
    finally:
        os.close(fd)
    return (data, found.st_uid, "") if len(data) <= SIZE_MAX else (None, -1, "is too long")


def boot_id() -> str:
    """The id of this machine's boot; empty where it can't be told."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:  # noqa: PTH123 - lean
            return file.read().strip()
    except OSError:
        return ""


def files(folder: str | os.PathLike[str]) -> list[str]:
    """The heartbeat files of a directory, by name; drafts (hidden) are none. OSError where it can't be read."""
    return sorted(entry.path for entry in os.scandir(folder) if not entry.name.startswith(".") and not entry.is_dir())
