"""A rank's place in the tree: who its children are, what it tells them, who is lost, and when it may go.

Messages go to neighbours only. A parent tells each of its states to the children that said hello; a child reports the
ranks of its subtree that came online or went away, says goodbye when it is done, and waits for the answer. When a
connection ends, what was pending behind it fails with EHOSTUNREACH. FLUX.md 4–8, 10–12, H.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Literal

from brokerctl.durations import as_fsd
from brokerctl.ids import idset
from brokerctl.model import ending, eventwaits
from brokerctl.model.lifecycle import State
from brokerctl.model.run import CRIT, ERR, INFO
from brokerctl.model.words import EHOSTUNREACH, error_text
from brokerctl.records import (
    Abort,
    AnyMessage,
    ConfigGet,
    ConfigIs,
    Disconnect,
    EventThere,
    EventWanted,
    Exec,
    Forward,
    Goodbye,
    GoodbyeOk,
    Hangup,
    Hello,
    Message,
    Offline,
    Online,
    Results,
    Said,
    Send,
    Shed,
    ShellFailed,
    StateIs,
)

if TYPE_CHECKING:
    from brokerctl.model.node import Node

UNREACHABLE = error_text(EHOSTUNREACH)
# In these a rank that goes away is told upwards, and the leader says who is dead to Flux (FLUX.md 10).
_COUNTED = frozenset({State.INIT, State.QUORUM, State.RUN, State.CLEANUP})
# What children start, run and stop by (FLUX.md 4, 6); of other states they need not know.
_TOLD = frozenset({State.QUORUM, State.RUN, State.SHUTDOWN})
# The parent has said goodbye, or is not waited for any more.
_LET_GO = frozenset({State.UNLOAD_BUILTINS, State.EXIT})
DEAD_BATCH_NS = 100_000_000  # FLUX.md 10: ~0.1 s
_NOBODY: set[int] = set()

Why = Literal["left", "lost", "shed"]


class Overlay:
    """Neighbours of one rank. `peers` are the children that are connected; `parent_state` is the last one told."""

    __slots__ = (
        "_dead", "_gone", "_node", "_online", "_reporting", "lost_ranks", "parent", "parent_lost", "parent_state",
        "peers",
    )  # fmt: skip

    def __init__(self, node: Node) -> None:
        self._node = node
        self.parent = node.tree.parents[node.rank]
        self.parent_state = ""
        self.parent_lost = False
        # Most ranks are leaves: what they never need is shared, and replaced on first use.
        self.peers = _NOBODY
        self.lost_ranks = _NOBODY  # below this one: lost or shed
        self._gone = _NOBODY  # below this one: lost, shed, or left
        self._dead = _NOBODY  # the leader: gone, and not logged yet
        self._online = _NOBODY  # the leader: all that are online; a follower: what it has not reported yet
        self._reporting = False

    # ---- towards the parent

    def join(self) -> None:
        """Say hello; the parent answers with its state."""
        self._send(self.parent, Hello())

    def get_config(self) -> None:
        """Ask for the configuration; `ConfigIs` comes back."""
        self._send(self.parent, ConfigGet())

    def say_goodbye(self) -> bool:
        """Ask to go; `GoodbyeOk` comes back. False where the parent is known lost: nobody to ask (FLUX.md 88)."""
        if self.parent_lost:
            self._node.log("overlay", ERR, f"error sending overlay.goodbye: {UNREACHABLE}")
            return False
        self._send(self.parent, Goodbye())
        return True

    def to_parent(self, message: AnyMessage) -> None:
        """Send upwards; dropped where the parent is known lost."""
        if not self.parent_lost:
            self._send(self.parent, message)

    def report_online(self, ranks: Iterable[int]) -> None:
        """These ranks have reached QUORUM: told upwards in batches, to the leader's count.

        One that was gone is back, in a new life.
        """
        if self._gone:
            self._gone = self._gone.difference(ranks)
            self.lost_ranks = self.lost_ranks.difference(ranks)
            self._dead = self._dead.difference(ranks)
        if self._online is _NOBODY:
            self._online = set()
        self._online.update(ranks)
        if not self._reporting:
            self._reporting = True
            self._node.arm("online", self._node.settings.online_batch_ns, self._report)

    def _report(self) -> None:
        self._reporting = False
        node = self._node
        ranks = tuple(sorted(self._online - self._gone))
        if node.rank:
            self._online = _NOBODY
            self.to_parent(Online(ranks))
            return
        node.log("broker", INFO, f"online: {node.tree.hostlist(ranks)} (ranks {idset(ranks)})")
        quorum = node.settings.quorum
        if node.jobs is not None:
            node.jobs.online(ranks)
        if len(ranks) >= (node.tree.size if quorum is None else quorum):
            node.broker.quorum_full()

    def online(self) -> set[int]:
        """The ranks that the leader has heard of as online, and that are not gone."""
        return self._online - self._gone

    def missing(self) -> list[int]:
        """The ranks that the leader has not heard of as online."""
        return [rank for rank in range(self._node.tree.size) if rank not in self._online]

    # ---- towards the children

    def tell_state(self, state: State) -> None:
        """Tell the children which state this broker is in now, if it is one that they go by."""
        if state in _TOLD:
            message = StateIs(state)
            for peer in sorted(self.peers):
                self._send(peer, message)

    def describe_peers(self) -> str:
        """`2 peers: picl[1-2] (rank 1-2)`: the children that hold this broker."""
        return f"{len(self.peers)} peers: {self._node.tree.describe(sorted(self.peers))}"

    # ---- what neighbours say

    def received(self, peer: int, message: AnyMessage) -> None:
        """A neighbour's message."""
        if peer != self.parent and peer not in self.peers and not isinstance(message, Hello):
            return  # it was shed or lost: what was still on its way is not heard any more
        _RECEIVED[type(message)](self, peer, message)

    def _state_is(self, _peer: int, message: StateIs) -> None:
        self.parent_state = message.state
        self._node.broker.parent_changed(State(message.state))

    def _config_get(self, peer: int, _message: ConfigGet) -> None:
        self._send(peer, ConfigIs())

    def _config_is(self, _peer: int, _message: ConfigIs) -> None:
        self._node.broker.config_synced()

    def _arrived(self, _peer: int, message: Online) -> None:
        self.report_online(message.ranks)

    def _left(self, _peer: int, message: Offline) -> None:
        self._went(message.ranks, message.why)

    def _goodbye_ok(self, _peer: int, _message: GoodbyeOk) -> None:
        ending.goodbye_answered(self._node.broker)

    def _rexec(self, peer: int, message: AnyMessage) -> None:
        self._node.rexec.received(peer, message)

    def _event(self, _peer: int, message: EventWanted | EventThere) -> None:
        if isinstance(message, EventWanted):
            eventwaits.wanted(self._node, message)
        else:
            eventwaits.there(self._node, message)

    def _shed_below(self, _peer: int, message: Shed) -> None:
        self.disconnect(message.rank)

    def _hello(self, peer: int, _message: Hello) -> None:
        if peer in self.peers:  # a new life of it, before the loss of the last one was noticed
            named = self._named(peer)
            self._node.log("overlay", ERR, f"{named} reconnected after crash, dropping old connection state")
            self._cut(peer, "lost")
        if self.peers is _NOBODY:
            self.peers = set()
        self.peers.add(peer)
        self._send(peer, StateIs(self._node.broker.state))

    def _goodbye(self, peer: int, _message: Goodbye) -> None:
        node = self._node
        self._send(peer, GoodbyeOk())
        node.emit(Hangup(peer))
        self.peers.discard(peer)
        if node.broker.state in _COUNTED:
            self._went(tuple(node.tree.subtree(peer)), "left")
        self._forget(peer)

    # ---- losses

    def lost(self, peer: int, why: str) -> None:
        """A neighbour's connection ended without goodbye."""
        if peer == self.parent:
            self.parent_lost = True
            if self._node.broker.state in _LET_GO:
                return
            if self._node.broker.state is State.GOODBYE:
                self._node.broker.parent_lost()
            else:
                self._node.log("overlay", CRIT, f"disconnecting: {why}")
                self._orphaned()
        elif peer in self.peers:
            self._node.log("overlay", ERR, f"{self._named(peer)} failed{self._severed(peer)}")
            self._cut(peer, "lost")

    def contacted(self, peer: int) -> None:
        """A child of an earlier life was heard: it must start anew (FLUX.md 88)."""
        self._send(peer, Disconnect())
        self._node.emit(Hangup(peer))

    def torpid(self, peer: int, silent_ns: int) -> None:
        """A child is silent, and its connection stands: it is named, nothing else (FLUX.md 90)."""
        if peer in self.peers:
            host = self._node.tree.host(peer)
            self._node.log(
                "overlay", ERR, f"broker on {host} (rank {peer}) has been unresponsive for {as_fsd(silent_ns)}"
            )

    def responsive(self, peer: int) -> None:
        """A torpid child was heard again."""
        if peer in self.peers:
            self._node.log("overlay", ERR, f"broker on {self._node.tree.host(peer)} (rank {peer}) is responsive now")

    def disconnect(self, rank: int) -> None:
        """Disconnect that rank, here or further down (`flux overlay disconnect`, FLUX.md 89, 102)."""
        hop = self._node.tree.hop(self._node.rank, rank)
        if hop == rank and rank in self.peers:
            self._node.log("overlay", ERR, f"{self._named(rank)} disconnected by request{self._severed(rank)}")
            self._drop(rank)
        elif hop in self.peers:
            self._send(hop, Shed(rank))

    def shed(self) -> None:
        """The bound of SHUTDOWN is over: disconnect the children that still hold this broker."""
        for peer in sorted(self.peers):
            self._node.log("overlay", ERR, f"{self._named(peer)} is shed: it holds the shutdown{self._severed(peer)}")
            self._drop(peer)

    def _drop(self, peer: int) -> None:
        self._send(peer, Disconnect())
        self._node.emit(Hangup(peer))
        self._cut(peer, "shed")

    def _disconnected(self, _peer: int, _message: Disconnect) -> None:
        """The parent said that it is over (FLUX.md 88, 89)."""
        self.parent_lost = True
        self._node.log("overlay", CRIT, f"{self._named(self.parent)} sent disconnect control message")
        self._orphaned()

    def _orphaned(self) -> None:
        node = self._node
        node.log("config", CRIT, "parent update: overlay disconnect")
        node.log("broker", ERR, f"state-machine.monitor: {UNREACHABLE}")
        node.broker.parent_lost()  # last: where nothing is to be run, it may be its end

    def _cut(self, peer: int, why: Why) -> None:
        """What was pending behind that child fails; who is behind it is told upwards."""
        self.peers.discard(peer)
        self._went(tuple(rank for rank in self._node.tree.subtree(peer) if rank not in self._gone), why)
        self._forget(peer)

    def _forget(self, peer: int) -> None:
        self._node.rexec.lost(peer)  # what is pending to a rank fails in the moment in which it goes (FLUX.md 45)
        if not self.peers:
            ending.children_gone(self._node.broker)

    def _went(self, ranks: tuple[int, ...], why: Why) -> None:
        """Ranks below this one are gone: told upwards; the leader counts them, and logs those that were online."""
        node = self._node
        self._gone = self._gone.union(ranks)
        if why != "left":
            self.lost_ranks = self.lost_ranks.union(ranks)
        if node.jobs is not None:
            node.jobs.offline(ranks)
        if node.rank:
            self.to_parent(Offline(ranks, why))
        elif node.broker.state in _COUNTED:
            if not self._dead:
                node.arm("dead", DEAD_BATCH_NS, self._tell_dead)
            self._dead = self._dead.union(ranks)

    def _tell_dead(self) -> None:
        node = self._node
        dead = sorted(self._dead & self._online)
        self._online = self._online - self._dead
        self._dead = _NOBODY
        if dead and node.broker.state in {State.RUN, State.CLEANUP}:
            node.log("broker", ERR, f"dead to Flux: {node.tree.describe(dead)}")

    def _named(self, rank: int) -> str:
        return f"{self._node.tree.host(rank)} (rank {rank})"

    def _severed(self, peer: int) -> str:
        below = sum(rank not in self._gone for rank in self._node.tree.subtree(peer)) - 1
        return f" and severed contact with {below} other nodes" if below > 0 else ""

    def _send(self, neighbour: int, message: AnyMessage) -> None:
        self._node.emit(Send(neighbour, message))


_RECEIVED: dict[type[Message], Callable[..., None]] = {
    StateIs: Overlay._state_is,
    Hello: Overlay._hello,
    ConfigGet: Overlay._config_get,
    ConfigIs: Overlay._config_is,
    Online: Overlay._arrived,
    Offline: Overlay._left,
    Goodbye: Overlay._goodbye,
    GoodbyeOk: Overlay._goodbye_ok,
    Exec: Overlay._rexec,
    Abort: Overlay._rexec,
    Forward: Overlay._rexec,
    Results: Overlay._rexec,
    Said: Overlay._rexec,
    ShellFailed: Overlay._rexec,
    EventWanted: Overlay._event,
    EventThere: Overlay._event,
    Shed: Overlay._shed_below,
    Disconnect: Overlay._disconnected,
}
