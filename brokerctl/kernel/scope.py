"""Signalling a run: its process group, or all that descends from it.

Who belongs to a run: the members of its cgroup, where we have one; else its process group and every process that
carries its cookie. An orphan that was adopted by us and threw its environment away still belongs to the run whose group
it is in.
A process that was found by its number is opened as a pidfd and looked at again before it gets a signal: the number may
have been given to another one meanwhile.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Callable
from typing import Literal

from brokerctl.kernel import pidfd, proc
from brokerctl.kernel.cgroup import Cgroup

# New processes may be born while the others are signalled. A fork bomb outruns any number of rounds; the next rung of a
# ladder, or cgroup.kill, is the answer to that.
ROUNDS_MAX = 16
_ROUND_S = 0.002  # SIGKILL takes effect in about a millisecond


class Family:
    """The processes of one run: `pid` is its main process and process group."""

    __slots__ = ("cgroup", "cookie", "pid", "pidfd")

    def __init__(self, pid: int, main_pidfd: int, cookie: bytes, cgroup: Cgroup | None = None) -> None:
        self.pid = pid
        self.pidfd: int | None = main_pidfd  # None when the main process has been reaped
        self.cookie = cookie
        self.cgroup = cgroup

    def owns(self, pid: int) -> bool:
        """Whether a process belongs to the run now. Dead ones that wait to be reaped don't."""
        environ = proc.environ(pid)
        if proc.has_cookie(environ, self.cookie):
            return True
        if proc.has_cookie(environ, b""):
            return False  # of another run, whose number ours was once
        found = proc.stat(pid)
        if found is None or found.state in "ZX":
            return False
        return found.ppid == os.getpid() and found.pgrp == self.pid

    def members(self) -> list[int]:
        """All living processes of the run."""
        if self.cgroup is not None:
            return [pid for pid in self.cgroup.members() if _lives(pid)]
        found = set(proc.carriers(self.cookie))
        found.update(pid for pid in proc.children() if pid not in found and self.owns(pid))
        return sorted(found)

    def kill(self, signum: int, scope: Literal["group", "all"]) -> int:
        """Signal it; 0, or the errno: ESRCH where nobody was reached."""
        if scope == "group":
            return self._kill_group(signum)
        if self.cgroup is not None and signum == signal.SIGKILL:
            reached = bool(self.cgroup.members())
            if self.cgroup.kill():
                return 0 if reached else errno.ESRCH
        grouped = self.pidfd is not None
        results = [self._kill_group(signum)] if grouped else []
        return _verdict(results + self._kill_others(signum, skip_group=grouped and results[0] == 0))

    def kill_at_once(self, signum: int) -> bool:
        """Signal the process group while its number is ours; who is elsewhere is `kill_elsewhere`'s.

        Finding those takes milliseconds, in which the ones that are about to die would wait for our processor.
        """
        return self.cgroup is None and self.pidfd is not None and self._kill_group(signum) == 0

    def kill_elsewhere(self, signum: int) -> None:
        """Signal what has left the process group."""
        self._kill_others(signum, skip_group=True)

    def _kill_others(self, signum: int, *, skip_group: bool) -> list[int]:
        results: list[int] = []
        seen: set[tuple[int, int]] = set()
        for _ in range(ROUNDS_MAX):
            fresh = self._fresh(seen, skip_group=skip_group)
            if not fresh:
                break
            results.extend(self._kill_one(pid, signum) for pid in fresh)
        return results

    def _kill_group(self, signum: int) -> int:
        """To the process group; the number is ours as long as the main process isn't reaped."""
        if self.pidfd is not None:
            try:
                os.killpg(self.pid, signum)
            except OSError as error:
                # It may have moved to another group of its session.
                return pidfd.send(self.pidfd, signum) if error.errno == errno.ESRCH else error.errno or errno.EPERM
            return 0
        # Once the group is empty its number may be anybody's: signal one by one those who are known to be ours.
        mates = [pid for pid in self.members() if _group(pid) == self.pid]
        return _verdict([self._kill_one(pid, signum) for pid in mates])

    def _fresh(self, seen: set[tuple[int, int]], *, skip_group: bool) -> list[int]:
        """Members that weren't seen in an earlier round, by number and start; seen ones are added."""
        fresh = []
        for pid in self.members():
            found = proc.stat(pid)
            if found is None or (pid, found.start_ticks) in seen:
                continue
            seen.add((pid, found.start_ticks))
            if not (skip_group and found.pgrp == self.pid):
                fresh.append(pid)
        return fresh

    def _kill_one(self, pid: int, signum: int) -> int:
        if pid == self.pid and self.pidfd is not None:
            return pidfd.send(self.pidfd, signum)
        fd = pidfd.open_pid(pid)
        if fd is None:
            return errno.ESRCH
        try:
            belongs = self.cgroup.holds(pid) if self.cgroup is not None else self.owns(pid)
            return pidfd.send(fd, signum) if belongs else errno.ESRCH
        finally:
            os.close(fd)


def kill_carriers(
    cookie: bytes, limit_ns: int, reached: Callable[[int, str], None] = lambda _pid, _what: None
) -> list[int]:
    """SIGKILL whoever carries that cookie, until nobody is found or the time is over; returns who is left then.

    `reached(pid, command)` is called once for each that a signal was sent to.
    """
    end_ns = time.monotonic_ns() + limit_ns
    told: set[int] = set()
    while pids := proc.carriers(cookie):
        if time.monotonic_ns() > end_ns:
            return pids
        for pid in pids:
            fd = pidfd.open_pid(pid)
            if fd is None:
                continue
            try:
                what = proc.command(pid)
                if proc.carries(pid, cookie) and pidfd.send(fd, signal.SIGKILL) == 0 and pid not in told:
                    told.add(pid)
                    reached(pid, what)
            finally:
                os.close(fd)
        time.sleep(_ROUND_S)
    return []


def _verdict(results: list[int]) -> int:
    """0 if anybody was reached, else the errno that says more than ESRCH, if any."""
    if 0 in results:
        return 0
    return next((result for result in results if result != errno.ESRCH), errno.ESRCH)


def _lives(pid: int) -> bool:
    found = proc.stat(pid)
    return found is not None and found.state not in "ZX"


def _group(pid: int) -> int:
    found = proc.stat(pid)
    return found.pgrp if found is not None else 0
