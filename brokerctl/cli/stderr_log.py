"""The broker's log on stderr: Flux's format with `<N>` for a service manager or a file, times and colours for a person.

Whoever reads stderr must never hold the broker up: what it doesn't take at once is kept, up to a limit, and offered
again; beyond that lines are dropped and counted. A reader that has gone is forgotten.
"""

from __future__ import annotations

import os
import select
import time
from collections import deque
from typing import TYPE_CHECKING

from brokerctl.cli.shown import shown
from brokerctl.logs.fluxlog import Entry, entry

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from brokerctl.records import Line

INFO, WARNING, ERR = 6, 4, 3
# poll(2) says that a pipe is writable when PIPE_BUF bytes fit in: a write of that many then doesn't block.
PIECE = 4096
KEPT_BYTES_MAX = 256 << 10
# At the end a slow reader gets a moment to take the rest; a stopped one must not hold the exit up.
LAST_WAIT_S = 0.2

RED, YELLOW, DIM, PLAIN = "\x1b[31m", "\x1b[33m", "\x1b[2m", "\x1b[0m"


class StderrLog:
    """Writes what Flux would log for each line of a trace, INFO and worse, to a descriptor."""

    def __init__(
        self, hosts: Sequence[str], fd: int = 2, *, level: int = INFO, env: Mapping[str, str] | None = None
    ) -> None:
        self._hosts = hosts
        self._fd = fd
        self._level = level
        env = os.environ if env is None else env
        self._person = os.isatty(fd)
        self._colour = self._person and not env.get("NO_COLOR") and env.get("TERM", "") != "dumb"
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)
        self._kept: deque[bytes] = deque()
        self._kept_bytes = 0
        self._dropped = 0
        self._gone = False

    def __call__(self, line: Line) -> None:
        """Log the line, if it has a text."""
        found = entry(line, self._hosts)
        if found is not None and found.level <= self._level:
            self.write(found)

    def write(self, found: Entry) -> None:
        """Log this; it is kept or dropped where the reader doesn't take it."""
        text = self._as_person(found) if self._person else str(found)
        self.pass_on(text.encode(errors="backslashreplace") + b"\n", found.rank)

    def pass_on(self, data: bytes, rank: int = 0) -> None:
        """Write bytes as they are, on the same terms."""
        if self._gone:
            return
        self._drain()
        if self._kept_bytes > KEPT_BYTES_MAX:
            self._dropped += 1
            return
        if self._dropped:
            lost = Entry(WARNING, "broker", rank, f"{self._dropped} lines were not logged: nobody read them")
            self._dropped = 0
            self._keep(f"{self._as_person(lost) if self._person else lost}\n".encode())
        self._keep(data)
        self._drain()

    def _keep(self, data: bytes) -> None:
        self._kept.extend(data[at : at + PIECE] for at in range(0, len(data), PIECE))
        self._kept_bytes += len(data)

    def _drain(self, wait_ms: int = 0) -> None:
        try:
            while self._kept and self._poll.poll(wait_ms):
                written = os.write(self._fd, self._kept[0])
                self._kept_bytes -= written
                if written == len(self._kept[0]):
                    self._kept.popleft()
                else:
                    self._kept[0] = self._kept[0][written:]
        except BlockingIOError:
            return  # somebody made it non-blocking, and it is full
        except OSError:
            self._gone = True  # EPIPE, EIO: nobody will ever read it
            self._kept.clear()

    def close(self) -> None:
        """Offer what is left for a moment; the descriptor stays the caller's."""
        end = time.monotonic() + LAST_WAIT_S
        while self._kept and (left := end - time.monotonic()) > 0:
            self._drain(int(left * 1000) + 1)

    def _as_person(self, found: Entry) -> str:
        now = time.time()
        clock = time.strftime("%H:%M:%S", time.localtime(now)) + f".{int(now % 1 * 1000):03}"
        colour = RED if found.level <= ERR else YELLOW if found.level == WARNING else ""
        rows = []
        for text in found.text.split("\n"):
            who = found.component if len(self._hosts) == 1 else f"{found.component}[{found.rank}]"
            if self._colour:
                rows.append(f"{DIM}{clock} {who}{PLAIN}  {colour}{shown(text)}{PLAIN if colour else ''}")
            else:
                rows.append(f"{clock} {who}  {shown(text)}")
        return "\n".join(rows)
