"""Which processes belong to main's service, beside main and us; who of them holds CLEANUP, and what they have written.

The core reads this itself, from /proc and the unit's cgroup: it needs nobody's answer for it.
"""

from __future__ import annotations

import os
import time

from brokerctl.kernel import pidfd, proc
from brokerctl.kernel.cgroup import Cgroup, folder_of
from brokerctl.records.stops import Holder, Holders, Written
from brokerctl.stop.target import Aim

# What belongs to a job is Flux's own to end: task, prolog, epilog, housekeeping (FLUX.md 103).
_OF_A_JOB = b"FLUX_JOB_ID="
# More than this is no cleanup action, and a look must end.
HOLDERS_MAX = 1000


def members(aim: Aim) -> list[int]:
    """Living processes of main's unit, or, outside of a unit, its descendants; without main and without us.

    Our own helper and site actions are in our session, and systemd gives each ExecStop one of its own (SYSTEMD.md 21).
    """
    folder = folder_of(aim.pid) if aim.unit else None
    found = Cgroup(folder).members() if folder is not None else descendants(aim.pid)
    ours = os.getsid(0)
    result = []
    for pid in found:
        at = proc.stat(pid)
        if at is not None and at.state not in "ZX" and pid != aim.pid and at.session != ours:
            result.append(pid)
    return result


def descendants(pid: int) -> list[int]:
    """All that descend from a process and whose parents live; those of its threads as well."""
    children: dict[int, list[int]] = {}
    for each in proc.pids():
        at = proc.stat(each)
        if at is not None:
            children.setdefault(at.ppid, []).append(each)
    found, todo = [], [pid]
    while todo:
        mine = children.get(todo.pop(), [])
        found += mine
        todo += mine
    return found


def holders(aim: Aim, since_ns: int) -> Holders:
    """Those that hold CLEANUP: started since then (CLOCK_MONOTONIC), in a process group of their own, and of no job."""
    main = proc.stat(aim.pid)
    if main is None:
        return Holders()
    found = []
    for pid in members(aim):
        at = proc.stat(pid)
        if at is None or at.pgrp == main.pgrp or _started_ns(at) < since_ns:
            continue
        if any(entry.startswith(_OF_A_JOB) for entry in proc.environ(pid).split(b"\0")):
            continue
        found.append(Holder(pid, at.start_ticks, proc.command(pid)))
    return Holders(tuple(found[:HOLDERS_MAX]))


def _started_ns(at: proc.Stat) -> int:
    return time.monotonic_ns() - proc.age_ns(at)


def kill(pid: int, started: int, signum: int) -> None:
    """Signal a process that was listed, if the number still means it."""
    fd = pidfd.open_pid(pid)
    if fd is None:
        return
    try:
        at = proc.stat(pid)
        if at is not None and at.start_ticks == started:
            pidfd.send(fd, signum)
    finally:
        os.close(fd)


def written(aim: Aim) -> Written:
    """What main and its processes have written so far."""
    counts = [proc.written(pid) for pid in (aim.pid, *members(aim))]
    return Written(sum(anywhere for anywhere, _ in counts), sum(storage for _, storage in counts))
