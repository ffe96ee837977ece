"""Heartbeats: a worker says that it is up, that its work loop turns, and that it stops; who watches need not be known.

    from brokerctl.heartbeat import S, Heartbeat

    heart = Heartbeat()
    …                                  # whatever must be there before the first message
    heart.ready()
    while (message := queue.get()) is not None:
        heart.beat()                   # from the loop that does the work: it proves progress, not existence
        with heart.working(300 * S):   # one long message
            handle(message)
    heart.stopping("the queue was closed")

It tells the service manager (sd_notify(3)) where NOTIFY_SOCKET says so, and writes a heartbeat file where an argument
or BROKERCTL_HEARTBEAT_FILE says so; both, either or neither. Never call `beat` from a helper thread: that would go on
beating for a loop that hangs. This file needs nothing but the standard library, and imports next to nothing of it.
"""

from __future__ import annotations

import os
from _thread import RLock
from time import monotonic_ns

TYPE_CHECKING = False  # typing's own costs half an interpreter's start
if TYPE_CHECKING:
    from collections.abc import Mapping
    from socket import socket
    from types import TracebackType
    from typing import Self

MS = 1_000_000
S = 1_000_000_000

# systemd drops a longer datagram as a whole (SYSTEMD.md 48).
MESSAGE_MAX = 4096
# A manager that doesn't read gets this long to make room for a message; then the message is lost, and the work goes on.
SEND_PATIENCE_S = 0.05
# Two in a row may be late or lost, and the third still comes in time (sd_watchdog_enabled(3) asks for half at least).
BEATS_PER_LIMIT = 4
# How long a worker may be silent where nobody says: Kubernetes' liveness probe gives up after 30 s, systemd's own
# units have 3 minutes.
LIMIT_NS = 60 * S
FILE_VARIABLE = "BROKERCTL_HEARTBEAT_FILE"
FORMAT = "brokerctl-heartbeat 1"  # the first line of a heartbeat file
STATUS_MAX = 1000

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_NEVER_NS = 1 << 63


class Heartbeat:
    """What one worker process tells of itself. All methods may be called from any thread, and from signal handlers.

    `file` is the heartbeat file, else $BROKERCTL_HEARTBEAT_FILE; that variable is taken out of the environment, so that
    no child takes the file for its own. `limit_ns` is how long the worker may be silent, if its manager (WATCHDOG_USEC)
    doesn't say. `guid` names this life of the worker, else a random one does. In a child that was forked all methods do
    nothing: who beats for a parent proves nothing.

    OSError if the file can't be written at first; what fails later leaves its text in `failed`, and the work goes on.
    """

    __slots__ = (
        "_base_ns", "_beat_ns", "_changes", "_due_ns", "_extended_ns", "_file", "_head", "_limits", "_lock", "_pid",
        "_socket", "_state", "_status", "_status_due_ns", "_status_told", "_watched", "failed",
    )  # fmt: skip

    def __init__(self, file: str | os.PathLike[str] | None = None, *, limit_ns: int = LIMIT_NS, guid: str = "") -> None:
        if limit_ns <= 0:
            raise ValueError(f"limit_ns: {limit_ns} is no time; expected more than 0")
        self._pid = os.getpid()
        self._lock = RLock()  # a signal handler may say `stopping` in the middle of a beat
        told_ns = watchdog_limit_ns(os.environ, self._pid)
        self._watched = told_ns is not None
        self._base_ns = limit_ns if told_ns is None else told_ns
        self._limits: list[int] = []
        self._state = "starting"
        self._status = self._status_told = ""
        self._beat_ns = monotonic_ns()
        self._due_ns = self._status_due_ns = self._extended_ns = self._changes = 0
        self.failed = ""
        self._socket = _connect(os.environ.get("NOTIFY_SOCKET", ""))
        told = os.environ.pop(FILE_VARIABLE, "")
        named = told if file is None else os.fspath(file)
        self._file = os.path.abspath(named) if named else ""  # noqa: PTH100 - lean
        self._head = _head(self._pid, guid or os.urandom(16).hex()) if named else ""
        if self._file:
            try:
                self._write()
            except OSError:
                self.close()
                raise

    # ---- what a worker says

    def ready(self) -> None:
        """It is up: from now on its beats are expected. Said once; later calls do nothing."""
        if self._is_ours():
            with self._lock:
                if self._state == "starting":
                    self._state = "ready"
                    # A beat too: whoever can't know otherwise learns at once that there will be more.
                    self._tell("READY=1\nWATCHDOG=1" if self._watched else "READY=1", beats=True)

    def beat(self) -> None:
        """Its work loop has turned. However often it is called, a quarter of the limit lies between two messages."""
        if monotonic_ns() >= self._due_ns:
            self._send_beat()

    def stopping(self, reason: str = "") -> None:
        """It ends, of its own accord or because it was told to. From now on nobody waits for beats.

        systemd takes it as the beginning of a stop, and kills after TimeoutStopSec (SYSTEMD.md 44). In a stop that it
        began itself its watchdog rests until something beats, and bites then as ever: so it is ended, and left alone.
        """
        if self._is_ours():
            with self._lock:
                if self._state != "stopping":
                    self._state = "stopping"
                    self._status = self._status_told = _shown(f"Stopping: {reason}" if reason else "Stopping")
                    lulled = "WATCHDOG_USEC=0\n" if self._watched else ""
                    self._watched = False
                    self._tell(f"STOPPING=1\n{lulled}STATUS={self._status}")

    def status(self, text: str) -> None:
        """What it does now, in one line for people. Told at most once a quarter of the limit; the last text wins."""
        if self._is_ours():
            with self._lock:
                self._status = _shown(text)
                if monotonic_ns() >= self._status_due_ns:
                    self._tell(self._news())

    def working(self, limit_ns: int) -> _Working:
        """A context manager: what is done in it may take that long without a beat. It never narrows the limit."""
        if limit_ns <= 0:
            raise ValueError(f"limit_ns: {limit_ns} is no time; expected more than 0")
        return _Working(self, limit_ns)

    def extend(self, duration_ns: int) -> None:
        """Ask for that much time from now, for its start or stop; between those, for the next beat (SYSTEMD.md 38)."""
        if duration_ns <= 0:
            raise ValueError(f"duration_ns: {duration_ns} is no time; expected more than 0")
        if self._is_ours():
            with self._lock:
                self._extended_ns = max(self._extended_ns, monotonic_ns() + duration_ns)
                self._tell(f"EXTEND_TIMEOUT_USEC={max(1, duration_ns // 1000)}")

    def close(self) -> None:
        """Close the socket; the file stays, and says what was said last."""
        if self._socket is not None:
            self._socket[0].close()
            self._socket = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stopping("" if kind is None else kind.__name__)
        self.close()

    # ---- how it is told

    def _is_ours(self) -> bool:
        """Not in a forked child, where another thread may even hold the lock for ever."""
        if os.getpid() == self._pid:
            return True
        self._due_ns = _NEVER_NS
        return False

    def _limit_ns(self) -> int:
        return max(self._limits, default=self._base_ns)

    def _interval_ns(self) -> int:
        return max(MS, self._limit_ns() // BEATS_PER_LIMIT)

    def _send_beat(self) -> None:
        if self._is_ours():
            with self._lock:
                if monotonic_ns() >= self._due_ns:  # else another thread was faster
                    news = self._news()
                    watched = "WATCHDOG=1" if self._watched else ""
                    self._tell(f"{watched}\n{news}" if watched and news else watched or news, beats=True)

    def _widen(self, limit_ns: int) -> None:
        """Enter `working`. systemd counts anew from this message (SYSTEMD.md 84)."""
        if self._is_ours():
            with self._lock:
                self._limits.append(max(limit_ns, self._base_ns))
                self._tell_limit()

    def _restore(self, limit_ns: int) -> None:
        if self._is_ours():
            with self._lock:
                self._limits.remove(max(limit_ns, self._base_ns))
                self._tell_limit()

    def _tell_limit(self) -> None:
        # Without a watchdog the message would start one (SYSTEMD.md 84).
        self._tell(f"WATCHDOG_USEC={self._limit_ns() // 1000}\nWATCHDOG=1" if self._watched else "", beats=True)

    def _news(self) -> str:
        """The status, if it was not told yet."""
        if self._status == self._status_told:
            return ""
        self._status_told = self._status
        self._status_due_ns = monotonic_ns() + self._interval_ns()
        return f"STATUS={self._status}"

    def _tell(self, text: str, *, beats: bool = False) -> None:
        """To the manager, and into the file."""
        self._changes += 1
        if beats:
            self._beat_ns = monotonic_ns()
            self._due_ns = self._beat_ns + self._interval_ns()
        if text and self._socket is not None:
            channel, address = self._socket
            try:
                channel.sendto(encode(text), address)
            except OSError as error:
                self.failed = f"cannot notify: {error.strerror or error}"
        if self._file:
            try:
                self._write()
            except OSError as error:
                self.failed = f"cannot write {self._file}: {error.strerror}"

    def _write(self) -> None:
        """Put a new file in the place of the old one, so that no reader ever sees half of it."""
        folder, name = os.path.split(self._file)
        while True:
            changes = self._changes
            draft = f"{folder}/.{name}.{self._pid}.{changes}"
            replace_file(self._file, draft, self._text().encode(errors="backslashreplace"))
            # A signal handler may have said more meanwhile, and its file was older than this one.
            if changes == self._changes:
                return

    def _text(self) -> str:
        limit_ns = max(self._limit_ns(), self._extended_ns - self._beat_ns)
        state = "working" if self._limits and self._state == "ready" else self._state
        return f"{self._head}beat_ns={self._beat_ns}\nlimit_ns={limit_ns}\nstate={state}\nstatus={self._status}\n"


class _Working:
    """`Heartbeat.working`."""

    __slots__ = ("_heart", "_limit_ns")

    def __init__(self, heart: Heartbeat, limit_ns: int) -> None:
        self._heart = heart
        self._limit_ns = limit_ns

    def __enter__(self) -> None:
        self._heart._widen(self._limit_ns)  # noqa: SLF001 - one thing in two classes

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._heart._restore(self._limit_ns)  # noqa: SLF001


# ---- the service manager's side of the protocol


def watchdog_limit_ns(env: Mapping[str, str], pid: int) -> int | None:
    """How long that process may be silent; None where no watchdog waits for it (sd_watchdog_enabled(3))."""
    usec, whose = env.get("WATCHDOG_USEC", ""), env.get("WATCHDOG_PID", "")
    if not _is_number(usec) or int(usec) == 0 or (whose and (not _is_number(whose) or int(whose) != pid)):
        return None
    return int(usec) * 1000


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 20


def encode(text: str) -> bytes:
    """One datagram: UTF-8; a STATUS is one line; what is too long is cut between characters."""
    if text.startswith("STATUS="):
        text = _one_line(text)
    data = text.encode(errors="backslashreplace")
    if len(data) > MESSAGE_MAX:
        data = data[:MESSAGE_MAX].decode(errors="ignore").encode()
    return data


def _one_line(text: str) -> str:
    return text.replace("\n", " ").replace("\0", " ")


def _shown(text: str) -> str:
    return _one_line(text)[:STATUS_MAX]


def _connect(address: str) -> tuple[socket, str] | None:
    """A socket, and where to send; a socket that is connected would not find a manager that was restarted."""
    if not address:
        return None
    import socket

    channel = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    channel.settimeout(SEND_PATIENCE_S)
    return channel, f"\0{address[1:]}" if address[0] == "@" else address


# ---- the file


def _head(pid: int, guid: str) -> str:
    """What stays the same as long as this process lives."""
    with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - lean
        start_ticks = file.read().rpartition(b")")[2].split()[19].decode()  # proc_pid_stat(5): field 22
    with open(_BOOT_ID) as file:  # noqa: PTH123 - lean
        boot = file.read().strip()
    return f"{FORMAT}\npid={pid}\nstart_ticks={start_ticks}\nguid={_one_line(guid)}\nboot={boot}\n"


def replace_file(path: str, draft: str, data: bytes) -> None:
    """Put a new file of mode 0644, whatever the umask, in the place of the old one; OSError where that fails.

    The draft is a name beside it; what a killed process has left by that name is removed, and no link is followed.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        fd = os.open(draft, flags, 0o644)
    except FileExistsError:
        os.unlink(draft)  # noqa: PTH108 - lean
        fd = os.open(draft, flags, 0o644)
    try:
        try:
            os.fchmod(fd, 0o644)
            while data:  # a disk that is nearly full takes a part, and says why not the rest
                data = data[os.write(fd, data) :]
        finally:
            os.close(fd)
        os.replace(draft, path)  # noqa: PTH105 - lean
    except OSError:
        os.unlink(draft)  # noqa: PTH108 - lean
        raise
