"""The asker's side of the control socket: one request, its answer, and perhaps lines that follow.

Everything that comes from the socket is bounded and checked; each way it can go wrong is a ControlError in one line.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from typing import TYPE_CHECKING, Any, Self

import msgspec

from brokerctl.errors import ControlError
from brokerctl.worlds.live.rundir import control_path

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

VERSION = 1
# A broker answers within a turn of its loop, in a few ms; one that needs longer is stopped or starved.
ANSWER_TIMEOUT_S = 5.0
ANSWER_SIZE_MAX = 1 << 20
REQUEST_SIZE_MAX = 64 << 10  # what the broker's side reads

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode


class Connection:
    """A connection to the broker of a rundir; a context manager."""

    def __init__(self, rundir: Path, timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        """Connect; ControlError says why there is nobody."""
        self._path = control_path(rundir)
        self._buffer = bytearray()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(timeout_s)
        self._timeout_s = timeout_s
        try:
            self._socket.connect(str(self._path))
        except OSError as error:
            self._socket.close()
            raise ControlError(_why(rundir, error)) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def fileno(self) -> int:
        """The socket's descriptor, for whoever polls."""
        return self._socket.fileno()

    def peer_pid(self) -> int:
        """The process that listens there (SO_PEERCRED, unix(7))."""
        pid: int = struct.unpack("3i", self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        return pid

    def send(self, ask: str, words: Sequence[str] = (), text: str = "") -> None:
        """Send the one request of this connection."""
        request: dict[str, Any] = {"brokerctl": VERSION, "ask": ask}
        if text:
            request["text"] = text
        if words:
            request["words"] = list(words)
        try:
            line = _encode(request) + b"\n"
        except UnicodeEncodeError:
            raise ControlError(f"{ask}: is not UTF-8; no request can hold it") from None
        if len(line) > REQUEST_SIZE_MAX:
            raise ControlError(f"{ask}: {len(line)} bytes are too long; expected at most {REQUEST_SIZE_MAX}")
        try:
            self._socket.sendall(line)
        except TimeoutError:
            raise ControlError(self._silent()) from None
        except (BrokenPipeError, ConnectionResetError):
            pass  # it closed already; what it said why is still to be read
        except OSError as error:
            raise ControlError(f"{self._path}: cannot send: {error.strerror}") from None

    def answer(self) -> dict[str, Any]:
        """The first line of the answer, without its version; ControlError where it is none."""
        body = self.read()
        if body is None:
            raise ControlError(f"{self._path}: the broker hung up without an answer")
        version = body.pop("brokerctl", None)
        if version is None:
            raise ControlError(f"{self._path}: what answers there is no broker: {_shown(body)}")
        if version != VERSION:
            raise ControlError(f"{self._path}: the broker speaks version {version!r}; expected {VERSION}")
        return body

    def follow(self) -> dict[str, Any] | None:
        """The next line after the answer, however long it takes; None when the broker hung up."""
        self._socket.settimeout(None)
        return self.read()

    def skip(self) -> bool:
        """Throw away what has come; False when the broker hung up. For whoever polls and reads the trace instead."""
        try:
            return bool(self._socket.recv(1 << 16))
        except OSError:
            return False

    def read(self) -> dict[str, Any] | None:
        """One line; None at the end. ControlError where it is late, too long or no JSON object."""
        while (end := self._buffer.find(b"\n")) < 0:
            if len(self._buffer) > ANSWER_SIZE_MAX:
                raise ControlError(f"{self._path}: an answer of more than {ANSWER_SIZE_MAX >> 20} MiB")
            try:
                data = self._socket.recv(1 << 16)
            except TimeoutError:
                raise ControlError(self._silent()) from None
            except ConnectionResetError:
                data = b""
            except OSError as error:
                raise ControlError(f"{self._path}: cannot read: {error.strerror}") from None
            if not data:
                if not self._buffer:
                    return None
                raise ControlError(f"{self._path}: the answer was cut off: {_shown(bytes(self._buffer))}")
            self._buffer += data
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        try:
            return _decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise ControlError(f"{self._path}: what answers there is no broker: {_shown(line)}") from None

    def _silent(self) -> str:
        return f"{self._path}: the broker does not answer within {self._timeout_s:g}s"


def ask(rundir: Path, what: str, words: Sequence[str] = (), timeout_s: float = ANSWER_TIMEOUT_S) -> dict[str, Any]:
    """One request and its answer; a refusal is an answer with `error`."""
    with Connection(rundir, timeout_s) as connection:
        connection.send(what, words)
        return connection.answer()


def _shown(what: object) -> str:
    text = repr(what)
    return text if len(text) <= 60 else f"{text[:60]}…"


def _why(rundir: Path, error: OSError) -> str:
    if error.errno == errno.EAGAIN:
        return f"{control_path(rundir)}: the broker is stopped or starved: others wait already to be let in"
    if error.errno == errno.ENOENT:
        where = "has no broker" if os.path.isdir(rundir) else "does not exist"  # noqa: PTH112 - one stat, lean
        return f"no broker is running: rundir {rundir} {where}"
    if error.errno == errno.ECONNREFUSED:
        return f"no broker is running: {control_path(rundir)} is left over from one that was killed"
    if error.errno in {errno.EACCES, errno.EPERM}:
        return f"{control_path(rundir)}: not permitted; expected the broker's user or root"
    return f"{control_path(rundir)}: cannot connect: {error.strerror}"
