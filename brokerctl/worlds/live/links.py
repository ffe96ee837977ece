"""The links of a live broker to its neighbours in the tree: a UNIX socket that its children connect to, and its own
connection to its parent's.

Everything is bounded and nothing blocks. What ends, hangs or is nonsense becomes an event of the rules that all worlds
share (`worlds.losses`); heartbeats are empty lines that no trace has.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from brokerctl.errors import ControlError
from brokerctl.records import AnyEvent, Contacted, Exec, Hello, Lost, Message, Received, Responsive, Torpid
from brokerctl.worlds import losses
from brokerctl.worlds.live import wire
from brokerctl.worlds.live.control_server import listen, peer_uid, wait_writable
from brokerctl.worlds.live.loop import READ, WRITE
from brokerctl.worlds.live.wire import NonsenseError, Splitter

if TYPE_CHECKING:
    from brokerctl.model.tree import Tree
    from brokerctl.settings import Settings
    from brokerctl.worlds.live.loop import Loop, Timer

CHUNK = 64 << 10
# A parent that is not there yet is tried again after these.
RETRY_NS, RETRY_MAX_NS = 5_000_000, 200_000_000
# Who does not say who it is.
UNKNOWN_MAX = 32
UNKNOWN_NS = 10_000_000_000
# A neighbour that takes nothing any more; two of the longest messages.
BACKLOG_MAX = 2 * wire.LINE_MAX
# After the last message to a neighbour: it is taken within this time, or never. A broker's end is not delayed by more.
LAST_WORDS_NS = 500_000_000
HEARTBEAT_MIN_NS = 10_000_000
WARNINGS_MAX = 100
ACCEPTED_A_TURN = 8


class Link:
    """One connection; `peer` is -1 until it has said who it is."""

    __slots__ = ("ending", "heard_ns", "known", "outgoing", "peer", "socket", "splitter", "timer", "torpid")

    def __init__(self, connection: socket.socket | None, peer: int) -> None:
        self.socket = connection
        self.peer = peer
        self.splitter = Splitter()
        self.outgoing = bytearray()
        self.heard_ns = time.monotonic_ns()
        self.known = False  # its first line has come
        self.ending = False  # nothing is heard any more; what was sent still goes out
        self.torpid = False
        self.timer: Timer | None = None  # what silence, or the end of patience, leads to


class Links:
    """All links of one rank. `post` gets what happens on them, `complain` a line about nonsense.

    `joined` is called once, when the parent has answered.
    """

    def __init__(
        self,
        loop: Loop,
        rank: int,
        tree: Tree,
        settings: Settings,
        *,
        post: Callable[[AnyEvent], None],
        complain: Callable[[str], None],
        joined: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._rank = rank
        self._parent = tree.parents[rank]
        self._settings = settings
        self._post = post
        self._complain = complain
        self._joined = joined
        self._below = {child: frozenset(tree.subtree(child)) for child in tree.children[rank]}
        self._own = frozenset((rank, *(below for ranks in self._below.values() for below in ranks)))
        self._links: dict[int, Link] = {}  # by neighbour
        self._unknown: list[Link] = []
        self._ending: list[Link] = []
        self._over: set[int] = set()  # hung up, or told as lost: nothing of them is told any more
        self._greeted: set[int] = set()  # children that said hello in this life
        self._runs: set[str] = set()
        self._warnings = 0
        self._boot_ns = time.monotonic_ns()
        self._listener: socket.socket | None = None
        self._path: Path | None = None
        self._retry_ns = RETRY_NS

    def open(self, path: Path, parent_path: Path | None) -> None:
        """Listen where there are children, and begin to connect to the parent; ControlError where that can't be."""
        if self._below:
            # Under its name only when it listens: nobody is ever refused by a parent that is about to be there.
            draft = path.with_name(f"{path.name}.new")
            with suppress(FileNotFoundError):
                draft.unlink()
            self._listener = listen(draft)
            self._path = path
            try:
                draft.rename(path)
            except OSError as error:
                self._listener.close()
                raise ControlError(f"{path}: cannot listen: {error.strerror}") from None
            self._loop.watch(self._listener.fileno(), READ, self._acceptable)
        if parent_path is not None:
            self._links[self._parent] = Link(None, self._parent)
            self._connect(parent_path)
        limits = [ns for ns in (self._settings.heartbeat_timeout_ns, self._settings.torpid_max_ns) if ns is not None]
        # Often enough that whoever has the shortest patience is never left without one.
        period_ns = min([self._settings.heartbeat_period_ns, *(ns // 3 for ns in limits)])
        self._beat(max(period_ns, HEARTBEAT_MIN_NS))

    # ---- the broker's side

    def send(self, neighbour: int, message: Message) -> None:
        """Hand a message to a neighbour; who is gone gets nothing."""
        link = self._links.get(neighbour)
        if link is None:
            return
        link.outgoing += wire.line(message)
        if len(link.outgoing) > BACKLOG_MAX:
            self._nonsense(link, f"it takes nothing: {len(link.outgoing) >> 20} MiB wait for it")
        else:
            self._flush(link)

    def hangup(self, neighbour: int) -> None:
        """Close the link after what was sent; nothing of it is told any more."""
        self._over.add(neighbour)
        link = self._links.pop(neighbour, None)
        if link is not None:
            self._end(link)

    def cut(self) -> None:
        """The link to the parent breaks (a fault that tests ask for)."""
        link = self._links.get(self._parent)
        if link is not None and link.socket is not None:
            with suppress(OSError):
                link.socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close everything, after a moment for what was sent."""
        if self._listener is not None and self._path is not None:
            self._loop.unwatch(self._listener.fileno())
            self._listener.close()
            with suppress(OSError):
                self._path.unlink()
        links = [*self._links.values(), *self._ending]
        deadline_ns = time.monotonic_ns() + LAST_WORDS_NS
        while unread := [link for link in links if link.outgoing and link.socket is not None]:
            left_ns = deadline_ns - time.monotonic_ns()
            if left_ns <= 0:
                break
            wait_writable([link.socket for link in unread if link.socket is not None], left_ns)
            for link in unread:
                self._flush(link)
        for link in (*links, *self._unknown):
            self._close(link)

    # ---- connecting

    def _connect(self, path: Path) -> None:
        link = self._links.get(self._parent)
        if link is None:
            return  # the broker doesn't want it any more
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.setblocking(False)
        try:
            connection.connect(str(path))
        except OSError:
            # It is not there yet, or busy. JOIN has no bound, so this goes on as long as the broker does.
            connection.close()
            self._retry_ns, delay_ns = min(self._retry_ns * 2, RETRY_MAX_NS), self._retry_ns
            self._loop.after(delay_ns, lambda: self._connect(path))
            return
        link.socket = connection
        link.outgoing[:0] = wire.first_line(self._rank)
        link.heard_ns = time.monotonic_ns()
        if self._is_stranger(link):
            self._gone(link)
            return
        self._watch_silence(link, losses.silence_ns(self._settings))
        self._flush(link)

    def _acceptable(self, _events: int) -> None:
        assert self._listener is not None
        for _ in range(ACCEPTED_A_TURN):
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return  # nobody, or no descriptor: whoever waits is accepted later
            connection.setblocking(False)
            self._welcome(Link(connection, -1))

    def _welcome(self, link: Link) -> None:
        assert link.socket is not None
        self._unknown.append(link)
        if self._is_stranger(link):
            self._close(link)
        elif len(self._unknown) > UNKNOWN_MAX + len(self._below):
            self._warn("too many connections of nobody known; the last one is dropped")
            self._close(link)
        else:
            link.timer = self._loop.after(UNKNOWN_NS, lambda: self._nonsense(link, "it does not say who it is"))
            self._watch(link)

    def _is_stranger(self, link: Link) -> bool:
        assert link.socket is not None
        uid = peer_uid(link.socket)
        if uid in {0, os.geteuid()}:
            return False
        self._warn(f"a connection of uid {uid} is dropped; expected the broker's user or root")
        return True

    def _introduced(self, link: Link, rank: int) -> None:
        """The first line has come."""
        link.known = True
        link.splitter.limit = wire.LINE_MAX
        if link.peer == self._parent:
            if rank != self._parent:
                raise NonsenseError(f"rank {rank} in place of the parent, rank {self._parent}")
            self._joined()
            return
        if rank not in self._below:
            raise NonsenseError(f"rank {rank}, which is no child of this one")
        if rank in self._links or rank in self._over:
            raise NonsenseError(f"rank {rank} for a second time")
        if link.timer is not None:
            link.timer.cancel()
        self._unknown.remove(link)
        link.peer = rank
        self._links[rank] = link
        link.outgoing += wire.first_line(self._rank)
        self._watch_silence(link, self._settings.torpid_max_ns)
        self._flush(link)

    # ---- reading

    def _ready(self, link: Link, events: int) -> None:
        if events & WRITE:
            self._flush(link)
        if events & READ and link.socket is not None:
            self._read(link)

    def _read(self, link: Link) -> None:
        assert link.socket is not None
        try:
            data = link.socket.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._gone(link)
            return
        if link.ending:
            return  # read and forgotten, so that its own words don't hold it up
        link.heard_ns = time.monotonic_ns()
        if link.torpid:
            link.torpid = False
            self._post(Responsive(link.peer))
        try:
            for line in link.splitter.feed(data):
                self._take(link, line)
        except NonsenseError as error:
            self._nonsense(link, str(error))

    def _take(self, link: Link, line: bytes) -> None:
        if not link.known:
            self._introduced(link, wire.parse_first(line))
            return
        if not line:
            return
        message = wire.parse(line)
        if link.peer == self._parent:
            wire.check_parent(message, self._own)
            if isinstance(message, Exec):
                if message.run in self._runs:
                    raise NonsenseError("a run for a second time")
                self._runs.add(message.run)
        else:
            wire.check_child(message, self._below[link.peer])
            if isinstance(message, Hello):
                self._greeted.add(link.peer)
            elif link.peer not in self._greeted:
                # It said hello to an earlier life of this rank (FLUX.md 88).
                self._post(Contacted(link.peer))
                return
        self._post(Received(link.peer, message))

    def _nonsense(self, link: Link, why: str) -> None:
        who = "a connection" if link.peer < 0 else f"rank {link.peer}"
        self._warn(f"{who} is dropped: {why}")
        self._gone(link)

    def _warn(self, text: str) -> None:
        if self._warnings < WARNINGS_MAX:
            self._warnings += 1
            self._complain(f"tbon: {text}")

    # ---- losses

    def _gone(self, link: Link) -> None:
        """The connection has ended; who was connected is told as lost in its time."""
        self._close(link)
        peer = link.peer
        if link.ending or peer < 0 or self._links.get(peer) is not link:
            return
        del self._links[peer]
        if peer == self._parent:
            delay_ns = losses.parent_ns(self._settings)
        else:
            delay_ns = losses.child_ns(self._settings, time.monotonic_ns() - self._boot_ns)
        if delay_ns == 0:
            self._lose(peer, silent=False)
        elif delay_ns is not None:
            self._loop.after(delay_ns, lambda: self._lose(peer, silent=False))

    def _lose(self, peer: int, *, silent: bool) -> None:
        if peer not in self._over:
            self._over.add(peer)
            self._post(Lost(peer, losses.why(self._settings, silent=silent)))

    def parted(self, peer: int) -> None:
        """The neighbour has said that it is over: the end of its connection tells nothing new."""
        self._over.add(peer)

    def _watch_silence(self, link: Link, limit_ns: int | None) -> None:
        if limit_ns is not None:
            link.timer = self._loop.at(link.heard_ns + limit_ns, lambda: self._silent(link, limit_ns))

    def _silent(self, link: Link, limit_ns: int) -> None:
        silent_ns = time.monotonic_ns() - link.heard_ns
        if self._links.get(link.peer) is not link:
            return
        if link.torpid or silent_ns < limit_ns:
            link.timer = self._loop.after(
                limit_ns if link.torpid else limit_ns - silent_ns, lambda: self._silent(link, limit_ns)
            )
        elif link.peer == self._parent:
            del self._links[link.peer]
            self._close(link)
            self._lose(link.peer, silent=True)
        else:
            link.torpid = True
            self._post(Torpid(link.peer, silent_ns))
            link.timer = self._loop.after(limit_ns, lambda: self._silent(link, limit_ns))

    def _beat(self, period_ns: int) -> None:
        for link in tuple(self._links.values()):
            if link.known and not link.outgoing:
                link.outgoing += wire.HEARTBEAT
                self._flush(link)
        self._loop.after(period_ns, lambda: self._beat(period_ns))

    # ---- writing

    def _end(self, link: Link) -> None:
        if link.socket is None:
            return
        link.ending = True
        self._ending.append(link)
        if link.timer is not None:
            link.timer.cancel()
        link.timer = self._loop.after(LAST_WORDS_NS, lambda: self._close(link))
        self._flush(link)

    def _flush(self, link: Link) -> None:
        if link.socket is None:
            return
        try:
            sent = link.socket.send(link.outgoing) if link.outgoing else 0
        except BlockingIOError:
            sent = 0
        except OSError:
            # Its end is told by reading, after what it said before.
            sent = len(link.outgoing)
        del link.outgoing[:sent]
        if link.ending and not link.outgoing:
            self._close(link)
        else:
            self._watch(link)

    def _watch(self, link: Link) -> None:
        assert link.socket is not None
        events = READ | (WRITE if link.outgoing else 0)
        self._loop.watch(link.socket.fileno(), events, lambda ready: self._ready(link, ready))

    def _close(self, link: Link) -> None:
        if link.timer is not None:
            link.timer.cancel()
        for links in (self._unknown, self._ending):
            if link in links:
                links.remove(link)
        if link.socket is not None:
            self._loop.unwatch(link.socket.fileno())
            link.socket.close()
            link.socket = None
