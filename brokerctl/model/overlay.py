"""A rank's place in the tree: who its children are, what it tells them, and when it may go (FLUX.md 4–8).

Messages go to neighbours only. A parent tells each of its states to the children that said hello; a child reports the
ranks of its subtree that came online, says goodbye when it is done, and waits for the answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from brokerctl.ids import hostlist, idset
from brokerctl.model.lifecycle import State
from brokerctl.records import (
    AnyMessage,
    ConfigGet,
    ConfigIs,
    Goodbye,
    GoodbyeOk,
    Hello,
    Online,
    Send,
    StateIs,
)

if TYPE_CHECKING:
    from brokerctl.model.node import Node

INFO = 6


class Overlay:
    """Neighbours of one rank. `peers` are the children that are connected; `parent_state` is the last one told."""

    __slots__ = ("_node", "_online", "_reporting", "parent", "parent_state", "peers")

    def __init__(self, node: Node) -> None:
        self._node = node
        self.parent = node.tree.parents[node.rank]
        self.parent_state = ""
        self.peers: set[int] = set()
        self._online: set[int] = set()  # the leader: all that are online; a follower: what it has not reported yet
        self._reporting = False

    # ---- towards the parent

    def join(self) -> None:
        """Say hello; the parent answers with its state."""
        self._send(self.parent, Hello())

    def get_config(self) -> None:
        """Ask for the configuration; `ConfigIs` comes back."""
        self._send(self.parent, ConfigGet())

    def say_goodbye(self) -> None:
        """Ask to go; `GoodbyeOk` comes back."""
        self._send(self.parent, Goodbye())

    def report_online(self, ranks: tuple[int, ...]) -> None:
        """These ranks have reached QUORUM: told upwards in batches, to the leader's count."""
        self._online.update(ranks)
        if not self._reporting:
            self._reporting = True
            self._node.arm("online", self._node.settings.online_batch_ns, self._report)

    def _report(self) -> None:
        self._reporting = False
        node = self._node
        ranks = tuple(sorted(self._online))
        if node.rank:
            self._online.clear()
            self._send(self.parent, Online(ranks))
            return
        hosts = hostlist([node.tree.host(rank) for rank in ranks])
        node.log("broker", INFO, f"online: {hosts} (ranks {idset(ranks)})")
        if len(ranks) == node.tree.size:
            node.broker.quorum_full()

    def missing(self) -> list[int]:
        """The ranks that the leader has not heard of as online."""
        return [rank for rank in range(self._node.tree.size) if rank not in self._online]

    # ---- towards the children

    def tell_state(self, state: State) -> None:
        """Tell the children which state this broker is in now."""
        for peer in sorted(self.peers):
            self._send(peer, StateIs(str(state)))

    def describe(self, ranks: list[int]) -> str:
        """`picl[1-2] (rank 1-2)`."""
        return f"{hostlist([self._node.tree.host(rank) for rank in ranks])} (rank {idset(ranks)})"

    def describe_peers(self) -> str:
        """`2 peers: picl[1-2] (rank 1-2)`: the children that hold this broker."""
        peers = sorted(self.peers)
        return f"{len(peers)} peers: {self.describe(peers)}"

    # ---- what neighbours say

    def received(self, peer: int, message: AnyMessage) -> None:
        """A neighbour's message."""
        node = self._node
        match message:
            case Hello():
                self.peers.add(peer)
                self._send(peer, StateIs(str(node.broker.state)))
            case StateIs(state):
                self.parent_state = state
                node.broker.parent_changed(State(state))
            case ConfigGet():
                self._send(peer, ConfigIs())
            case ConfigIs():
                node.broker.config_synced()
            case Online(ranks):
                self.report_online(ranks)
            case Goodbye():
                self._send(peer, GoodbyeOk())
                self._gone(peer)
            case GoodbyeOk():
                node.broker.goodbye_answered()
            case _:
                raise AssertionError(message)

    def lost(self, peer: int, _why: str) -> None:
        """A neighbour's connection ended without goodbye."""
        if peer != self.parent:
            self._gone(peer)

    def _gone(self, peer: int) -> None:
        self.peers.discard(peer)
        if not self.peers:
            self._node.broker.children_gone()

    def _send(self, neighbour: int, message: AnyMessage) -> None:
        self._node.emit(Send(neighbour, message))
