"""A scenario's unit in a private systemd, as its world drives it: steps go in, lines come out."""

from __future__ import annotations

import os
import select
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from subprocess import PIPE
from typing import TYPE_CHECKING

from brokerctl.durations import HOUR, MS, S
from brokerctl.kernel.cgroup import Cgroup
from brokerctl.records import Booted
from brokerctl.records.units import MAIN, Populated, Returned, Systemctl
from brokerctl.worlds.contract import START_CLIENT, Deliver, SignalProcess
from brokerctl.worlds.systemd.observe import Observer
from brokerctl.worlds.systemd.private import SYSLOG

if TYPE_CHECKING:
    from pathlib import Path

    from brokerctl.records import Line
    from brokerctl.worlds.contract import Deed
    from brokerctl.worlds.systemd.private import PrivateSystemd
    from brokerctl.worlds.systemd.stage import UnitStage

CHUNK = 1 << 16
SO_TIMESTAMPNS = 35  # socket(7): each message of the log has the time at which it was sent
_TIMESPEC = struct.Struct("@ll")
# When the unit is down and nothing more is to be done, what is under way still comes: the last lines of a log.
LAST_WORDS_NS = S // 5
# Steps wait that long for processes that are just being started.
READY_LIMIT_NS = 10 * S
READY_POLL_NS = 10 * MS
FOREVER_NS = 1 * HOUR
_SHUTDOWN = ("start", "--job-mode=replace-irreversibly", "shutdown.target")


def open_log(path: Path) -> socket.socket:
    """A socket there for the entries of the journal."""
    log = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    log.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    log.bind(str(path))
    return log


def read_log(log: socket.socket) -> Iterator[tuple[int, bytes]]:
    """What has come, each with the time at which it was sent: that we read it late is not the unit's doing."""
    with suppress(BlockingIOError):
        while True:
            data, ancillary, _, _ = log.recvmsg(CHUNK, socket.CMSG_SPACE(_TIMESPEC.size))
            now_ns, age_ns = time.monotonic_ns(), 0
            for _level, _kind, stamp in ancillary:
                seconds, nanoseconds = _TIMESPEC.unpack(stamp)
                age_ns = time.time_ns() - (seconds * S + nanoseconds)
            yield now_ns - max(0, age_ns), data


class Service:
    """One unit, its manager's log and the clients that were started for it; `close` ends what it has started.

    Its world polls `poll`, and hands what is ready to `ready`.
    """

    def __init__(
        self, manager: PrivateSystemd, stage: UnitStage, poll: select.poll, sink: Callable[[Line], None]
    ) -> None:
        self.observer = Observer(stage.unit, stage.commands, sink)
        self._manager = manager
        self._stage = stage
        self._poll = poll
        self._clients: dict[int, tuple[int, subprocess.Popen[str]]] = {}  # by the descriptor of its process
        path = manager.path(SYSLOG)
        path.unlink(missing_ok=True)
        self._log = open_log(path)
        for fd in (self._log.fileno(), stage.reports):
            poll.register(fd, select.POLLIN)
        self._unready_ns = 0  # since when it is not
        self._group = Cgroup(str(manager.path(f"/sys/fs/cgroup/system.slice/{stage.unit}")))

    def close(self) -> None:
        """End what was started here; what is left of the unit, too."""
        for fd, (_, process) in self._clients.items():
            with process:
                os.killpg(process.pid, 9)
            os.close(fd)
        self._log.close()
        self._group.kill()

    def begin(self) -> None:
        """The manager is there, and starts the unit."""
        self.observer.tell(time.monotonic_ns(), Booted(), "<")
        self._systemctl(Systemctl("start", START_CLIENT))

    def is_over(self) -> bool:
        """The unit is down for good, and nobody waits for anything."""
        return self.observer.at_rest and not self._clients

    def is_ready(self) -> bool:
        """Whether what was started can answer for itself: on a busy machine an interpreter takes a while to start."""
        ready = self.observer.is_ready()
        self._unready_ns = 0 if ready else self._unready_ns or time.monotonic_ns()
        return ready or time.monotonic_ns() > self._unready_ns + READY_LIMIT_NS

    def next_ns(self) -> int:
        """When it wants to be called again, at the latest."""
        soon_ns = time.monotonic_ns() + (FOREVER_NS if self.observer.is_ready() else READY_POLL_NS)
        return min(soon_ns, self.observer.due() or soon_ns)

    def finish(self, now_ns: int) -> None:
        """Tell what is left of it."""
        left = len(self._group.members()) - len(self.observer.pids)
        self.observer.tell(now_ns, Populated(max(0, left)), "<")

    def pid_of_main(self) -> int:
        """The pid of its main process, as this process sees it; 0 where there is none."""
        inside = str(self.observer.pids.get(MAIN, 0))
        return next((pid for pid in self._group.members() if _inner(pid) == inside), 0)

    def ready(self, fds: set[int]) -> None:
        """Read what of these is its own."""
        self._read_reports()
        if self._log.fileno() in fds:
            for sent_ns, data in read_log(self._log):
                self._read_reports()  # who caused an entry of the log has told before
                self.observer.logged(sent_ns, data)
        for fd in fds & self._clients.keys():
            number, process = self._clients.pop(fd)
            self._poll.unregister(fd)
            os.close(fd)
            out, err = process.communicate()
            said = " ".join((err or out).split())
            self.observer.tell(time.monotonic_ns(), Returned(number, process.returncode, said))
        self.observer.catch_up(time.monotonic_ns())

    def _read_reports(self) -> None:
        with suppress(BlockingIOError):
            self.observer.reported(os.read(self._stage.reports, CHUNK))

    # ---- steps

    def do(self, deed: Deed) -> bool:
        """Do this to the unit; False where it is nothing of a unit."""
        match deed:
            case Deliver(_, Systemctl() as event):
                self._systemctl(event)
            case SignalProcess(whom, signum):
                self._signal(whom, signum)
            case _:
                return False
        return True

    def _systemctl(self, event: Systemctl) -> None:
        """Start a client, as an administrator would."""
        match event.verb:
            case "shutdown":
                words: tuple[str, ...] = _SHUTDOWN
            case "daemon-reload" | "cancel":
                words = (event.verb,)
            case "kill":
                words = ("kill", f"--kill-whom={event.whom}", f"--signal={event.signum}", self._stage.unit)
            case verb:
                words = (verb, self._stage.unit)
        self.observer.tell(time.monotonic_ns(), event, "<")
        process = self._manager.popen(["systemctl", *words], stdin=subprocess.DEVNULL, stdout=PIPE, stderr=PIPE)
        fd = os.pidfd_open(process.pid)
        self._clients[fd] = (event.client, process)
        self._poll.register(fd, select.POLLIN)

    def _signal(self, whom: str, signum: int) -> None:
        """Signal a process of the unit from outside."""
        pids = self.observer.pids
        pid = pids.get(MAIN, 0) if whom == "main" else next((pid for run, pid in pids.items() if run != MAIN), 0)
        if pid:
            self._manager.run(["kill", f"-{signum}", str(pid)], check=False)


def _inner(pid: int) -> str:
    """A process's number in the innermost namespace that it is in (proc_pid_status(5)); empty where it has gone."""
    try:
        with open(f"/proc/{pid}/status") as file:  # noqa: PTH123 - as all of /proc here
            return next((line.split()[-1] for line in file if line.startswith("NSpid:")), "")
    except OSError:
        return ""
