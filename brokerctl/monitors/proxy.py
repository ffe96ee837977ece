"""`heartbeat exec`: runs a command that may bring no heartbeat, and tells its manager what can be known of it.

The command gets a socket of its own (NOTIFY_SOCKET) and WATCHDOG_USEC; what it says there, or what a process of its
group says, goes on to the real manager and into the heartbeat file. As long as it never beats, beats are made up from
its being there: neither dead nor stopped. That proves that it runs, not that it works, and is told as just that. From
its first own beat on, only its own count.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from brokerctl.heartbeat import BEATS_PER_LIMIT, FILE_VARIABLE, LIMIT_NS, MS, Heartbeat, watchdog_limit_ns
from brokerctl.kernel import pidfd, proc, reap
from brokerctl.kernel.notify import Receiver
from brokerctl.kernel.spawn import NOT_EXECUTABLE, NOT_FOUND, Child, spawn
from brokerctl.kernel.terminal import own_terminal, take_terminal
from brokerctl.worlds.live.loop import READ, Loop

FORWARDED = (
    signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGABRT,
    signal.SIGCONT, signal.SIGWINCH,
)  # fmt: skip
STOPPING = frozenset({signal.SIGINT, signal.SIGTERM})
PROVES = "it says nothing itself: this proves that it runs, not that it works"
_USEC_NS = 1000


class Proxy:
    """One command, from its start to its end. `interval_ns` is how often it is looked at, and beats are made up."""

    def __init__(
        self, argv: Sequence[str], environment: Mapping[str, str], file: str | None, interval_ns: int | None
    ) -> None:
        self._argv = list(argv)
        self._environment = environment
        limit_ns = watchdog_limit_ns(environment, os.getpid()) or LIMIT_NS
        self._limit_ns = limit_ns if interval_ns is None else max(limit_ns, interval_ns * 2)
        self._interval_ns = interval_ns or max(MS, limit_ns // BEATS_PER_LIMIT)
        self._heart = Heartbeat(file, limit_ns=self._limit_ns)
        self._beats = False  # its own beats have been heard
        self._doubted = False
        self._status = 0
        self._working = ExitStack()

    def run(self) -> int:
        """Run it; its exit code, 128+N of signal N, 127 or 126 where it can't be started."""
        self._terminal = own_terminal()
        with Loop() as self._loop, self._heart:
            self._receiver = Receiver()
            try:
                self._loop.ignore(signal.SIGTTOU)
                self._loop.handle((*FORWARDED, signal.SIGCHLD))
                try:
                    self._child = self._start()
                except OSError as error:
                    print(f"brokerctl heartbeat: {self._argv[0]}: {error.strerror}", file=sys.stderr)
                    return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
                self._loop.on_signal = self._signalled
                self._loop.watch(self._receiver.fileno(), READ, lambda _events: self._heard())
                self._loop.watch(self._child.pidfd, READ, lambda _events: self._ended())
                self._loop.after(self._interval_ns, self._look)
                try:
                    self._loop.run()
                finally:
                    os.close(self._child.pidfd)
            finally:
                if self._terminal is not None:
                    take_terminal()  # also where it could not be started: it took it before that was known
                self._receiver.close()
        code = os.waitstatus_to_exitcode(self._status)
        return 128 - code if code < 0 else code

    def _start(self) -> Child:
        # What the manager told us is not meant for it: it speaks to us.
        env = {name: value for name, value in self._environment.items() if name not in {FILE_VARIABLE, "WATCHDOG_PID"}}
        env["NOTIFY_SOCKET"] = self._receiver.address
        env["WATCHDOG_USEC"] = str(self._limit_ns // _USEC_NS)
        return spawn(self._argv, env=env, stdin=0, stdout=1, stderr=2, terminal=self._terminal)

    # ---- what happens

    def _signalled(self, signum: int) -> None:
        if signum == signal.SIGCHLD:
            if self._terminal is not None and pidfd.stopped_by_terminal(self._child.pidfd):
                pidfd.send(self._child.pidfd, signal.SIGCONT)  # there is no job control here
            self._reap()
            return
        if signum in STOPPING:
            self._heart.stopping(signal.Signals(signum).name)
        pidfd.send(self._child.pidfd, signum)

    def _reap(self) -> None:
        """As PID 1 of a container it adopts."""
        if not reap.take_in(self._is_child):
            self._loop.after(0, self._reap)

    def _is_child(self, pid: int) -> bool:
        """Take in the end of the command, if the dead one is that."""
        if pid == self._child.pid:
            self._ended()
        return pid == self._child.pid

    def _ended(self) -> None:
        self._heard()
        status = pidfd.wait(self._child.pidfd)
        if status is not None:
            self._status = status
            self._loop.unwatch(self._child.pidfd)
            self._loop.stop()

    def _look(self) -> None:
        """It is there, or not: all that can be seen from outside."""
        self._loop.after(self._interval_ns, self._look)
        found = proc.stat(self._child.pid)
        if self._beats or found is None or found.state in "ZXTt":
            return
        if not self._doubted:
            self._doubted = True
            self._say(PROVES)
            self._heart.status(f"{self._argv[0]}: {PROVES}")
        self._heart.ready()
        self._heart.beat()

    # ---- what it says

    def _heard(self) -> None:
        for pid, text in self._receiver.receive():
            if pid == self._child.pid or self._is_in_group(pid):
                for line in text.split("\n"):
                    self._said(*line.partition("=")[::2])

    def _is_in_group(self, pid: int) -> bool:
        found = proc.stat(pid)
        return found is not None and found.pgrp == self._child.pid

    def _said(self, key: str, value: str) -> None:
        number = int(value) * _USEC_NS if value.isascii() and value.isdigit() and len(value) < 16 else 0
        match key:
            case "READY" if value == "1":
                self._heart.ready()
            case "WATCHDOG" if value == "1":
                if not self._beats:
                    self._beats = True
                    self._say("it beats: from now on only its own beats count")
                self._heart.beat()
            case "STOPPING" if value == "1":
                self._heart.stopping()
            case "STATUS":
                self._heart.status(value)
            case "EXTEND_TIMEOUT_USEC" if number:
                self._heart.extend(number)
            case "WATCHDOG_USEC" if number:
                self._widen(number)
            case _:
                pass

    def _widen(self, limit_ns: int) -> None:
        """It works on something long, or has done so."""
        before, self._working = self._working, ExitStack()
        if limit_ns > self._limit_ns:
            self._working.enter_context(self._heart.working(limit_ns))
        before.close()

    def _say(self, text: str) -> None:
        print(f"brokerctl heartbeat: {self._argv[0]} (pid {self._child.pid}): {text}", file=sys.stderr, flush=True)
