"""The links of a live broker to its neighbours in the tree.

Children connect to its UNIX socket, and it connects to its parent's. Everything is bounded. What ends, hangs or is
nonsense becomes an event, by rules that all worlds share (`worlds.losses`); heartbeats are empty lines that no trace
has.
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
from brokerctl.records import (
    AnyEvent,
    Contacted,
    Disconnect,
    Exec,
    GoodbyeOk,
    Hello,
    Lost,
    Message,
    Received,
    Responsive,
    Torpid,
)
from brokerctl.worlds import losses
from brokerctl.worlds.live import wire
from brokerctl.worlds.live.control_server import ACCEPT_PAUSE_NS, listen, peer_uid, wait_writable
from brokerctl.worlds.live.link import Link
from brokerctl.worlds.live.loop import READ
from brokerctl.worlds.live.rundir import DRAFT
from brokerctl.worlds.live.wire import NonsenseError

if TYPE_CHECKING:
    from brokerctl.model.tree import Tree
    from brokerctl.settings import Settings
    from brokerctl.worlds.live.loop import Loop, Timer

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
        self._losing: dict[int, Timer] = {}  # neighbours whose loss is told later
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
            draft = path.with_name(DRAFT)
            with suppress(FileNotFoundError):
                draft.unlink()
            self._listener = listen(draft)
            self._path = path
            self._watch_listener()
            try:
                draft.rename(path)
            except OSError as error:
                raise ControlError(f"{path}: cannot listen: {error.strerror}") from None
        if parent_path is not None:
            self._links[self._parent] = Link(self._loop, self, self._parent)
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
        link.write(wire.line(message))
        if len(link.outgoing) > BACKLOG_MAX:
            self.nonsense(link, f"it takes nothing: {len(link.outgoing) >> 20} MiB wait for it")

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
                link.flush()
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
        except ConnectionRefusedError:
            # Its socket gets its name when it listens already: it was there, and is dead.
            connection.close()
            self.gone(link)
            return
        except OSError:
            # It is not there yet, or busy. JOIN has no bound, so this goes on as long as the broker does.
            connection.close()
            self._retry_ns, delay_ns = min(self._retry_ns * 2, RETRY_MAX_NS), self._retry_ns
            self._loop.after(delay_ns, lambda: self._connect(path))
            return
        link.attach(connection)
        if self._is_stranger(connection):
            self.gone(link)
            return
        self._watch_silence(link, losses.silence_ns(self._settings))
        link.outgoing[:0] = wire.first_line(self._rank)
        link.flush()

    def _watch_listener(self) -> None:
        assert self._listener is not None
        self._loop.watch(self._listener.fileno(), READ, self._acceptable)

    def _acceptable(self, _events: int) -> None:
        assert self._listener is not None
        for _ in range(ACCEPTED_A_TURN):
            try:
                connection, _ = self._listener.accept()
            except BlockingIOError:
                return
            except OSError:
                # No descriptor is left, most likely: whoever waits is accepted later.
                self._loop.unwatch(self._listener.fileno())
                self._loop.after(ACCEPT_PAUSE_NS, self._watch_listener)
                return
            connection.setblocking(False)
            self._welcome(connection)

    def _welcome(self, connection: socket.socket) -> None:
        link = Link(self._loop, self)
        link.attach(connection)
        self._unknown.append(link)
        if self._is_stranger(connection):
            self._close(link)
        elif len(self._unknown) > UNKNOWN_MAX + len(self._below):
            self._warn("too many connections of nobody known; the last one is dropped")
            self._close(link)
        else:
            link.set_timer(self._loop.after(UNKNOWN_NS, lambda: self.nonsense(link, "it does not say who it is")))

    def _is_stranger(self, connection: socket.socket) -> bool:
        uid = peer_uid(connection)
        if uid in {0, os.geteuid()}:
            return False
        self._warn(f"a connection of uid {uid} is dropped; expected the broker's user or root")
        return True

    def _introduced(self, link: Link, rank: int) -> None:
        """The first line has come."""
        link.known = True
        if link.peer == self._parent:
            if rank != self._parent:
                raise NonsenseError(f"rank {rank} in place of the parent, rank {self._parent}")
            self._joined()
            return
        if rank not in self._below:
            raise NonsenseError(f"rank {rank}, which is no child of this one")
        if rank in self._links:
            raise NonsenseError(f"rank {rank} for a second time")
        if rank in self._losing:
            self._losing.pop(rank).cancel()
            self._lose(rank, silent=False)
        self._over.discard(rank)  # a new life of that rank
        self._greeted.discard(rank)
        self._unknown.remove(link)
        link.peer = rank
        self._links[rank] = link
        if link.timer is not None:
            link.timer.cancel()
        self._watch_silence(link, self._settings.torpid_max_ns)
        link.write(wire.first_line(self._rank))

    # ---- reading

    def heard(self, link: Link) -> None:
        """Something has come: who was torpid is not any more."""
        if link.torpid:
            link.torpid = False
            self._post(Responsive(link.peer))

    def take(self, link: Link, line: bytes) -> None:
        """A line has come; what it says is checked, and told."""
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
            elif isinstance(message, GoodbyeOk | Disconnect):
                self._over.add(link.peer)  # that it ends is told by this, and by nothing that comes later
        else:
            wire.check_child(message, self._below[link.peer])
            if isinstance(message, Hello):
                self._greeted.add(link.peer)
            elif link.peer not in self._greeted:
                # It said hello to an earlier life of this rank (FLUX.md 88).
                self._post(Contacted(link.peer))
                return
        self._post(Received(link.peer, message))

    def nonsense(self, link: Link, why: str) -> None:
        """Drop whoever says what no neighbour says."""
        who = "a connection" if link.peer < 0 else f"rank {link.peer}"
        self._warn(f"{who} is dropped: {why}")
        self.gone(link)

    def _warn(self, text: str) -> None:
        if self._warnings < WARNINGS_MAX:
            self._warnings += 1
            self._complain(f"tbon: {text}")

    # ---- losses

    def gone(self, link: Link) -> None:
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
            self._losing[peer] = self._loop.after(delay_ns, lambda: self._lose(peer, silent=False))

    def _lose(self, peer: int, *, silent: bool) -> None:
        self._losing.pop(peer, None)
        if peer not in self._over:
            self._over.add(peer)
            self._post(Lost(peer, losses.why(self._settings, silent=silent)))

    def _watch_silence(self, link: Link, limit_ns: int | None) -> None:
        if limit_ns is not None:
            link.set_timer(self._loop.at(link.heard_ns + limit_ns, lambda: self._silent(link, limit_ns)))

    def _silent(self, link: Link, limit_ns: int) -> None:
        silent_ns = time.monotonic_ns() - link.heard_ns
        if self._links.get(link.peer) is not link:
            return
        if link.torpid or silent_ns < limit_ns:
            wait_ns = limit_ns if link.torpid else limit_ns - silent_ns
            link.set_timer(self._loop.after(wait_ns, lambda: self._silent(link, limit_ns)))
        elif link.peer == self._parent:
            del self._links[link.peer]
            self._close(link)
            self._lose(link.peer, silent=True)
        else:
            link.torpid = True
            self._post(Torpid(link.peer, silent_ns))
            link.set_timer(self._loop.after(limit_ns, lambda: self._silent(link, limit_ns)))

    def _beat(self, period_ns: int) -> None:
        for link in tuple(self._links.values()):
            if link.known and not link.outgoing:
                link.write(wire.HEARTBEAT)
        self._loop.after(period_ns, lambda: self._beat(period_ns))

    def _end(self, link: Link) -> None:
        if link.socket is None:
            return
        link.ending = True
        self._ending = [other for other in self._ending if other.socket is not None]
        self._ending.append(link)
        link.set_timer(self._loop.after(LAST_WORDS_NS, lambda: self._close(link)))
        link.flush()

    def _close(self, link: Link) -> None:
        for links in (self._unknown, self._ending):
            if link in links:
                links.remove(link)
        link.close()
