"""The broker's side of the control socket: JSON lines, one request a connection.

    → {"brokerctl": 1, "ask": "status"}            or shutdown, follow; cleanup-push with "words": ["…"]
    ← {"brokerctl": 1, …}                          the answer, or {"brokerctl": 1, "error": "…"}
    ← {"log": "…", "level": 6}                     after shutdown and follow: what is logged, INFO and worse
    ← {"exit": 129}                                at the end

A client that is slow, silent, hostile or gone costs nobody anything but itself: everything is bounded, nothing blocks.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from brokerctl.errors import ControlError
from brokerctl.worlds.live.loop import READ, WRITE

if TYPE_CHECKING:
    from brokerctl.worlds.live.loop import Loop, Timer

VERSION = 1
REQUEST_MAX = 64 << 10
WORDS_MAX = 1000
CLIENTS_MAX = 32
# A client that has not asked, or not read its answer, after this long is gone.
IDLE_NS = 10_000_000_000
# A follower that lags by more than this is cut off.
BACKLOG_MAX = 1 << 20
# At the end followers get this long to read the rest: the broker's exit is not theirs to delay.
LAST_WORDS_NS = 500_000_000
# When no descriptor is left for a client, accepting pauses for this long, instead of trying again at once for ever.
ACCEPT_PAUSE_NS = 1_000_000_000
ACCEPTED_A_TURN = 8

# `cut` breaks the link to the parent: a fault, for a broker that was started to be tested.
Ask = Literal[
    "status", "shutdown", "cleanup-push", "disconnect", "follow", "cut", "submit", "cancel", "cancel-running",
    "post-event", "hold", "release", "queue-stop", "acquire-mute", "queue-idle", "housekeeping-kill", "jobs",
    "wait-event",
]  # fmt: skip
WITH_WORDS = frozenset(
    {"cleanup-push", "disconnect", "cancel", "post-event", "hold", "release", "housekeeping-kill", "wait-event"}
)
# These are answered when their time has come, be it in days.
LATE = frozenset({"queue-idle", "wait-event"})


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a client asks; `words` is the command of a cleanup-push, or what a request about jobs is about.

    `text` is the job of a submit, or, of a process that a broker has started, the name of its run.
    """

    brokerctl: Literal[1]
    ask: Ask
    words: tuple[str, ...] = ()
    text: str = ""


class _Version(msgspec.Struct):
    """Any request, of which only the version matters yet."""

    brokerctl: Any = None


_decode_version = msgspec.json.Decoder(_Version).decode
_decode = msgspec.json.Decoder(Request).decode
_encode = msgspec.json.Encoder().encode


def parse_request(data: bytes) -> Request:
    """One line of a client; ControlError says in one line what is wrong with it."""
    if len(data) > REQUEST_MAX:
        raise ControlError(f"request longer than {REQUEST_MAX >> 10} KiB")
    try:
        version = _decode_version(data).brokerctl
        if version is not None and version != VERSION:
            raise ControlError(f"version {_shown(str(version), 20)}; expected {VERSION}")
        request = _decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ControlError(f"no request: {_shown(str(error), 200)}") from None
    wordy = request.ask in WITH_WORDS
    if wordy != bool(request.words):
        has = "without" if wordy else "with"
        raise ControlError(f"{request.ask} {has} words; expected them for {', '.join(sorted(WITH_WORDS))} alone")
    if len(request.words) > WORDS_MAX:
        raise ControlError(f"{len(request.words)} words; expected at most {WORDS_MAX}")
    if any("\0" in word for word in request.words):
        raise ControlError("a word has a NUL byte; no command can")
    return request


def _shown(text: str, limit: int) -> str:
    """A client's own words, fit for a line on somebody's terminal."""
    return "".join(char if char.isprintable() else "?" for char in text[:limit])


class Client:
    """One connection."""

    __slots__ = ("asked", "follows", "idle", "incoming", "last", "outgoing", "reading", "reply", "socket")

    def __init__(self, connection: socket.socket, reply: int) -> None:
        self.socket = connection
        self.reply = reply
        self.incoming = bytearray()
        self.outgoing = bytearray()
        self.asked = False
        self.follows = False
        self.last = False  # close when all is written
        self.reading = True
        self.idle: Timer | None = None


class ControlServer:
    """Serves the control socket of a rundir. `ask` is called with each request that is the model's to answer."""

    def __init__(self, loop: Loop, path: Path, ask: Callable[[Request, int], None]) -> None:
        self._loop = loop
        self._ask = ask
        self._path = path
        self._clients: dict[int, Client] = {}  # by reply
        self._replies = 0
        self._listener = listen(path)
        self._loop.watch(self._listener.fileno(), READ, self._acceptable)

    # ---- the broker's side

    def answer(self, reply: int, body: dict[str, Any]) -> None:
        """Send a model's answer; who asked may have gone."""
        client = self._clients.get(reply)
        if client is None:
            return
        if "error" in body or not client.follows:
            self._finish(client, {"brokerctl": VERSION, **body})
        else:
            self._send(client, {"brokerctl": VERSION, **body})

    def log(self, text: str, level: int) -> None:
        """Tell the followers what was logged."""
        for client in self._followers():
            self._send(client, {"log": text, "level": level})

    @property
    def followed(self) -> bool:
        """Whether anybody would read a log line."""
        return any(client.follows for client in self._clients.values())

    def close(self, code: int | None = None) -> None:
        """Tell the followers the exit code, give all a moment to read the rest, and remove the socket."""
        if self._listener.fileno() < 0:
            return  # it was closed before
        self._loop.unwatch(self._listener.fileno())
        self._listener.close()
        with suppress(OSError):
            self._path.unlink()
        if code is not None:
            for client in self._followers():
                self._finish(client, {"exit": code})
        deadline_ns = time.monotonic_ns() + LAST_WORDS_NS
        while unread := [client for client in self._clients.values() if client.outgoing]:
            left_ns = deadline_ns - time.monotonic_ns()
            if left_ns <= 0:
                break
            wait_writable([client.socket for client in unread], left_ns)
            for client in unread:
                self._flush(client)
        for client in tuple(self._clients.values()):
            self._drop(client)

    # ---- clients come

    def _acceptable(self, _events: int) -> None:
        for _ in range(ACCEPTED_A_TURN):
            try:
                connection, _ = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}:
                    self._pause()
                    return
                continue  # it has gone already
            connection.setblocking(False)
            self._welcome(connection)

    def _pause(self) -> None:
        self._loop.unwatch(self._listener.fileno())
        self._loop.after(ACCEPT_PAUSE_NS, lambda: self._loop.watch(self._listener.fileno(), READ, self._acceptable))

    def _welcome(self, connection: socket.socket) -> None:
        self._replies += 1
        client = Client(connection, self._replies)
        self._clients[client.reply] = client
        client.idle = self._loop.after(IDLE_NS, lambda: self._drop(client))
        uid = peer_uid(connection)
        if uid not in {0, os.geteuid()}:
            self._refuse(client, f"uid {uid} is not permitted; expected the broker's user or root")
        elif len(self._clients) > CLIENTS_MAX and not self._make_room():
            self._refuse(client, f"{CLIENTS_MAX} clients are connected already")
        else:
            self._watch(client)

    def _make_room(self) -> bool:
        """Drop those that have hung up behind a half-closed connection."""
        for client in tuple(self._clients.values()):
            if not client.reading and _hung_up(client.socket):
                self._drop(client)
        return len(self._clients) <= CLIENTS_MAX

    def _watch(self, client: Client) -> None:
        events = (READ if client.reading else 0) | (WRITE if client.outgoing else 0)
        if events:
            self._loop.watch(client.socket.fileno(), events, lambda ready: self._ready(client, ready))
        else:
            self._loop.unwatch(client.socket.fileno())

    def _ready(self, client: Client, events: int) -> None:
        if events & WRITE:
            self._flush(client)
        if events & READ and client.reply in self._clients:
            self._read(client)

    # ---- reading

    def _read(self, client: Client) -> None:
        try:
            data = client.socket.recv(REQUEST_MAX)
        except BlockingIOError:
            return
        except OSError:
            self._drop(client)
            return
        if not data:
            self._half_closed(client)
            return
        if client.asked:
            return  # one request a connection; more is read and forgotten
        client.incoming += data
        line, newline, _ = client.incoming.partition(b"\n")
        if newline or len(client.incoming) > REQUEST_MAX:
            self._take(client, bytes(line))

    def _half_closed(self, client: Client) -> None:
        if not client.asked and client.incoming:
            self._take(client, bytes(client.incoming))
        if client.reply not in self._clients:
            return
        if not client.asked or _hung_up(client.socket):
            self._drop(client)
            return
        client.reading = False
        self._watch(client)

    def _take(self, client: Client, line: bytes) -> None:
        client.asked = True
        client.incoming = bytearray()
        try:
            request = parse_request(line)
        except ControlError as error:
            self._refuse(client, str(error))
            return
        if request.ask in {"follow", "shutdown"}:
            client.follows = True
        if request.ask in LATE and client.idle is not None:
            client.idle.cancel()
            client.idle = None
        if request.ask == "follow":
            self.answer(client.reply, {})
        else:
            self._ask(request, client.reply)

    # ---- writing

    def _followers(self) -> list[Client]:
        return [client for client in self._clients.values() if client.follows and not client.last]

    def _refuse(self, client: Client, error: str) -> None:
        client.asked = True
        self._finish(client, {"brokerctl": VERSION, "error": error})

    def _finish(self, client: Client, body: dict[str, Any]) -> None:
        """Send the last line of a connection."""
        client.last = True
        self._send(client, body)

    def _send(self, client: Client, body: dict[str, Any]) -> None:
        client.outgoing += _encode(body) + b"\n"
        self._flush(client)
        if client.follows and not client.last and client.idle is not None:
            client.idle.cancel()
            client.idle = None
        if len(client.outgoing) > BACKLOG_MAX:
            self._drop(client)

    def _flush(self, client: Client) -> None:
        if client.reply not in self._clients:
            return
        try:
            sent = client.socket.send(client.outgoing) if client.outgoing else 0
        except BlockingIOError:
            sent = 0
        except OSError:
            self._drop(client)
            return
        del client.outgoing[:sent]
        if client.last and not client.outgoing:
            self._drop(client)
        else:
            self._watch(client)

    def _drop(self, client: Client) -> None:
        if self._clients.pop(client.reply, None) is None:
            return
        if client.idle is not None:
            client.idle.cancel()
        self._loop.unwatch(client.socket.fileno())
        client.socket.close()


def peer_uid(connection: socket.socket) -> int:
    """The user at the other end (unix(7), SO_PEERCRED)."""
    _, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return int(uid)


def listen(path: Path) -> socket.socket:
    """A listening socket that nobody else could ever connect to: the mask is there before the socket is."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    try:
        listener.bind(str(path))
        listener.listen(CLIENTS_MAX)
    except OSError as error:
        listener.close()
        raise ControlError(f"{path}: cannot listen: {error.strerror or error}") from None
    finally:
        os.umask(mask)
    listener.setblocking(False)
    return listener


def _hung_up(connection: socket.socket) -> bool:
    """Whether the peer has closed both directions."""
    poll = select.poll()
    poll.register(connection, 0)
    return any(events & select.POLLHUP for _, events in poll.poll(0))


def wait_writable(sockets: list[socket.socket], timeout_ns: int) -> None:
    """Wait until one of them takes something, or for this time."""
    poll = select.poll()
    for each in sockets:
        poll.register(each, select.POLLOUT)
    poll.poll(timeout_ns / 1e6)
