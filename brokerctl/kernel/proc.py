"""Looking at other processes through /proc, without being fooled by numbers that are used again.

Every process that a broker starts carries a cookie in its environment, and so do all that descend from it, unless they
throw their environment away. The cookie is a list, because brokers nest: `BROKERCTL_RUN=OUTER:cleanup.0,INNER:rc1.2`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from typing import NamedTuple

COOKIE = "BROKERCTL_RUN"
_ENTRY = COOKIE.encode() + b"="
# The kernel's own limit on arguments and environment together is 6 MB (execve(2)).
_ENVIRON_MAX = 6 << 20
_CHUNK = 1 << 16
_COMMAND_SHOWN = 200
# Reading all descriptors of all processes takes long on a big machine; the answer is only a name in a message.
_HOLDER_PATIENCE_NS = 50_000_000


class Stat(NamedTuple):
    """What /proc/PID/stat says (proc(5)); `start_ticks` since boot, in clock ticks."""

    comm: str
    state: str
    ppid: int
    pgrp: int
    session: int
    start_ticks: int


class User(NamedTuple):
    """Whom a process runs as: user, group and supplementary groups, by number."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()


def _read(path: str, limit: int) -> bytes:
    """A file of /proc up to a limit; empty where it can't be read: not ours, or gone.

    Lists are told a page at a time, however much is asked for: only what is empty is the end.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        parts: list[bytes] = []
        size = 0
        while size < limit and (data := os.read(fd, _CHUNK)):
            parts.append(data)
            size += len(data)
        return b"".join(parts)
    except OSError:
        return b""
    finally:
        os.close(fd)


def parse_stat(data: bytes) -> Stat | None:
    """The fields of a stat file; the command in parentheses may itself hold spaces and parentheses."""
    head, closing, tail = data.rpartition(b")")
    fields = tail.split()
    if not closing or len(fields) < 20:
        return None
    comm = head.partition(b"(")[2].decode(errors="backslashreplace")
    state, ppid, pgrp, session = fields[:4]
    return Stat(comm, state.decode(), int(ppid), int(pgrp), int(session), int(fields[19]))


def stat(pid: int) -> Stat | None:
    """What a process is now; None if it has gone."""
    return parse_stat(_read(f"/proc/{pid}/stat", _CHUNK))


def credentials(pid: int) -> User | None:
    """Whom a process acts as: its effective user and group, and its supplementary groups; None if it has gone."""
    found: dict[str, list[int]] = {}
    for line in _read(f"/proc/{pid}/status", _CHUNK).decode(errors="replace").splitlines():
        name, _, value = line.partition(":")
        if name in {"Uid", "Gid", "Groups"}:
            found[name] = [int(word) for word in value.split()]
    if len(found) != 3:
        return None
    return User(found["Uid"][1], found["Gid"][1], tuple(found["Groups"]))  # real, effective, saved, file system


def words(pid: int) -> list[str]:
    """The argument list of a process; empty for a zombie, or one that has gone."""
    data = _read(f"/proc/{pid}/cmdline", _CHUNK)
    return [word.decode(errors="surrogateescape") for word in data.split(b"\0")[:-1]]


def written(pid: int) -> tuple[int, int]:
    """How many bytes a process has written anywhere, and to storage (proc_pid_io(5)); 0 where we may not know."""
    counts = dict(line.partition(b": ")[::2] for line in _read(f"/proc/{pid}/io", _CHUNK).splitlines())
    return int(counts.get(b"wchar", 0)), int(counts.get(b"write_bytes", 0))


def command(pid: int) -> str:
    """The command line for people, shortened; `[comm]` where there is none."""
    words = _read(f"/proc/{pid}/cmdline", _CHUNK).rstrip(b"\0").replace(b"\0", b" ")
    text = words.decode(errors="backslashreplace")
    if not text:
        found = stat(pid)
        return f"[{found.comm}]" if found is not None else "[gone]"
    text = "".join(char if char.isprintable() else "?" for char in text)
    return text if len(text) <= _COMMAND_SHOWN else text[: _COMMAND_SHOWN - 1] + "…"


def comm(pid: int) -> str:
    """The short name of a process, or `?`."""
    found = stat(pid)
    return found.comm if found is not None else "?"


def memory(pid: int) -> int:
    """The resident memory of a process in bytes; 0 if it has gone."""
    fields = _read(f"/proc/{pid}/statm", _CHUNK).split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") if len(fields) > 1 else 0


def age_ns(found: Stat) -> int:
    """How long ago a process was started."""
    start_ns = found.start_ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    return max(0, time.clock_gettime_ns(time.CLOCK_BOOTTIME) - start_ns)


# ---- cookies --------------------------------------------------------------------------------------------------------


def environ(pid: int) -> bytes:
    """The environment that a process was started with; empty for a zombie, or where we may not look."""
    return _read(f"/proc/{pid}/environ", _ENVIRON_MAX)


def has_cookie(environ: bytes, cookie: bytes) -> bool:
    """Whether an environment carries a run's cookie `BROKER:RUN`; for `BROKER` any of its runs', for nothing any."""
    if cookie not in environ:
        return False
    for entry in environ.split(b"\0"):
        if entry.startswith(_ENTRY):
            items = entry[len(_ENTRY) :].split(b",")
            return not cookie or any(item == cookie or item.startswith(cookie + b":") for item in items)
    return False


def carries(pid: int, cookie: bytes) -> bool:
    """Whether a process carries a cookie; a zombie carries nothing."""
    return has_cookie(environ(pid), cookie)


def pids() -> list[int]:
    """All processes that we may see."""
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - lean
    except OSError:
        return []


def carriers(cookie: bytes) -> list[int]:
    """All processes that carry a cookie, but this one: 4 to 10 µs for each process of the machine."""
    own = os.getpid()
    return [pid for pid in pids() if pid != own and carries(pid, cookie)]


def children() -> list[int]:
    """The children of this process, whoever bore them. One that is missed while another dies is seen the next time."""
    return children_of(os.getpid())


def children_of(pid: int) -> list[int]:
    """The children of a process with one thread."""
    data = _read(f"/proc/{pid}/task/{pid}/children", 1 << 20)
    return [int(word) for word in data.split()]


# ---- pipes ----------------------------------------------------------------------------------------------------------


def holder(inode: int, first: Iterable[int]) -> int | None:
    """A process that has this pipe open, looked for among `first`, then among all, within a bounded time."""
    target = f"pipe:[{inode}]"
    own = os.getpid()
    deadline_ns = time.monotonic_ns() + _HOLDER_PATIENCE_NS
    for pid in (*first, *pids()):
        if pid == own:
            continue
        if _has_open(pid, target):
            return pid
        if time.monotonic_ns() > deadline_ns:
            return None
    return None


def _has_open(pid: int, target: str) -> bool:
    folder = f"/proc/{pid}/fd"
    try:
        names = os.listdir(folder)  # noqa: PTH208 - lean
    except OSError:
        return False
    for name in names:
        try:
            if os.readlink(f"{folder}/{name}") == target:  # noqa: PTH115 - lean
                return True
        except OSError:
            continue
    return False
