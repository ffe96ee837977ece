"""Which ranks the leader was told of as lost or shed: the lines of rank 0 say it."""

from __future__ import annotations

from brokerctl.model.lifecycle import State
from brokerctl.model.tree import Tree
from brokerctl.records import Disconnect, Goodbye, Hello, Line, Lost, Moved, Offline, Online, Received, Send


class Losses:
    """Reads the leader's lines of a run. A child's loss counts for its whole subtree but for who had left before."""

    wants: frozenset[type] = frozenset({Received, Lost, Send, Moved})

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._connected: set[int] = set()
        self._gone: set[int] = set()
        self.lost: set[int] = set()

    def see(self, line: Line) -> None:
        """The next line of the run."""
        what = line.what
        if line.rank:
            return
        if isinstance(what, Received):
            self._received(what)
        elif isinstance(what, Lost):
            self._cut(what.peer)
        elif isinstance(what, Send) and isinstance(what.message, Disconnect):
            self._cut(what.neighbour)
        elif isinstance(what, Moved) and what.old == State.LOAD_BUILTINS:  # a new life knows nobody
            self._connected, self._gone = set(), set()

    def _received(self, what: Received) -> None:
        message = what.message
        if isinstance(message, Hello):
            self._connected.add(what.peer)
            self._gone.discard(what.peer)
        elif isinstance(message, Goodbye) and what.peer in self._connected:
            self._connected.discard(what.peer)
            self._gone.update(self._tree.subtree(what.peer))
        elif isinstance(message, Online):
            self._gone.difference_update(message.ranks)
        elif isinstance(message, Offline):
            if message.why != "left":
                self.lost.update(message.ranks)
            self._gone.update(message.ranks)

    def _cut(self, peer: int) -> None:
        if peer in self._connected:
            ranks = set(self._tree.subtree(peer)) - self._gone
            self.lost |= ranks
            self._gone |= ranks
            self._connected.discard(peer)
