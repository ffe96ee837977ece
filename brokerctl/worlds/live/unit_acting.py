"""What a puppet does as a process of a systemd unit: it notifies, signals the unit's main process, waits for its end.

It tells its world, by lines of JSON in a FIFO, that it has begun, with the environment of its hook, what it says, and
which signals it gets: the manager's own log does not tell these.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import time
from typing import TYPE_CHECKING

from brokerctl.kernel import pidfd
from brokerctl.kernel.spawn import spawn
from brokerctl.model.puppet import Hit
from brokerctl.worlds.live.actor import IN_UNIT, WAIT_MAX_S

if TYPE_CHECKING:
    from brokerctl.kernel.spawn import Child
    from brokerctl.model.puppet import Puppet

# Set by the world for each process of the unit.
RUN, UNIT_NAME = "BROKERCTL_UNIT_RUN", "BROKERCTL_UNIT_NAME"
OTHERS = "others"
# What depends on what has happened to the unit (systemd.exec(5)).
HOOK = ("MAINPID", "SERVICE_RESULT", "EXIT_CODE", "EXIT_STATUS", "NOTIFY_SOCKET")
# The manager looks at the sender of a message when it reads it: within milliseconds (SYSTEMD.md 49, 50).
CHILD_LIVES_S = 0.2


class UnitActing:
    """The part of a process in a unit, or of its child; its loop takes the signals of `taken`."""

    def __init__(self, taken: frozenset[int], *, leaf: bool = False) -> None:
        # SIGCONT works all the same; taken, it is known to have come.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCONT})
        self.taken = taken | {signal.SIGCONT}
        self._run = OTHERS if leaf else os.environ[RUN]
        self._reports = os.open(os.environ[IN_UNIT], os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._address = os.environ.get("NOTIFY_SOCKET", "")
        self._main = int(os.environ.get("MAINPID") or 0)
        if not leaf:
            self._report(what="began", environment={name: os.environ[name] for name in HOOK if name in os.environ})

    def _report(self, **fields: object) -> None:
        line = {"t_ns": time.monotonic_ns(), "run": self._run, **fields}
        with contextlib.suppress(OSError):  # its world has gone: nobody wants to know
            os.write(self._reports, json.dumps(line).encode() + b"\n")

    def signalled(self, got: signal.struct_siginfo) -> bool:
        """It got a signal; whether that means anything to a puppet."""
        self._report(what="signal", signum=got.si_signo, sender=got.si_pid)
        if got.si_signo == signal.SIGCONT:
            return False
        # What continued a stopped process came with what ends it.
        if (more := signal.sigtimedwait({signal.SIGCONT}, 0)) is not None:
            self._report(what="signal", signum=more.si_signo, sender=more.si_pid)
        return True

    def live_as_leaf(self, end_ns: int | None, ignored: frozenset[int]) -> int:
        """Live until a signal ends it that it does not ignore, or its time does; the wait status."""
        while end_ns is None or time.monotonic_ns() < end_ns:
            wait_s = WAIT_MAX_S if end_ns is None else (end_ns - time.monotonic_ns()) / 1e9
            got = signal.sigtimedwait(self.taken, max(0, min(wait_s, WAIT_MAX_S)))
            if got is not None and self.signalled(got) and got.si_signo not in ignored:
                return got.si_signo
        return 0

    def turn(self, puppet: Puppet) -> None:
        """Do what the puppet has done."""
        acts, puppet.acts = puppet.acts, []
        for act in acts:
            if isinstance(act, Hit):
                if self._main:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(self._main, act.signum)
            else:
                self._report(what="said", text=act.text, child=act.child)
                if not act.child:
                    self._say(act.text)
                elif os.fork() == 0:
                    self._say(act.text)
                    time.sleep(CHILD_LIVES_S)
                    os._exit(0)

    def _say(self, text: str) -> None:
        if not self._address:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock, contextlib.suppress(OSError):
            sock.sendto(text.encode(errors="surrogateescape"), self._address)  # whatever it is: facts are about that


class UnitAsking:
    """It waits for something: `main-gone`, or for the end of its own `systemctl VERB`."""

    def __init__(self, asks: tuple[str, ...]) -> None:
        self.prints: list[tuple[str, str]] = []
        self.rc = 0
        self._fd: int | None = None
        self._client: Child | None = None
        what, *words = asks
        if what == "systemctl":
            self._client = spawn(["systemctl", *words, os.environ[UNIT_NAME]], env=dict(os.environ))
            self._fd = self._client.pidfd
        elif main := int(os.environ.get("MAINPID") or 0):
            self._fd = pidfd.open_pid(main)

    def answered(self, wait_s: float) -> bool:
        """Whether the answer has come within this time."""
        if self._fd is None:
            return True
        if not select.select([self._fd], [], [], wait_s)[0]:
            return False
        if self._client is not None:
            status = pidfd.wait(self._fd)
            self.rc = 0 if status is None else os.waitstatus_to_exitcode(status) & 0xFF
        os.close(self._fd)
        return True
