"""Links between neighbours in virtual time, what breaks them, and when a loss would be noticed.

Heartbeats do not tick here: the moment at which a rank would miss one is computed, and the loss is delivered then.
FLUX.md 84–92, 105.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from brokerctl.worlds import losses

if TYPE_CHECKING:
    from brokerctl.settings import Settings

LINK_NS = 100_000  # a message to a neighbour: 0.1 ms


class Links:
    """The state of each rank's link to its parent; a link is named by the child.

    A closed link carries nothing any more. Its two ends learn it one by one: `child_knows`, `parent_knows`.
    """

    __slots__ = ("_settings", "child_knows", "closed", "half_open", "parent_knows", "parents", "slow")

    def __init__(self, parents: tuple[int, ...], settings: Settings) -> None:
        self.parents = parents
        self._settings = settings
        self.closed: set[int] = set()
        self.child_knows: set[int] = set()
        self.parent_knows: set[int] = set()
        self.half_open: dict[int, int] = {}  # since when
        self.slow: dict[int, int] = {}

    def between(self, rank: int, neighbour: int) -> int:
        """The link of two neighbours."""
        if self.parents[neighbour] == rank:
            return neighbour
        assert self.parents[rank] == neighbour, f"ranks {rank} and {neighbour} are no neighbours"
        return rank

    def learn(self, rank: int, link: int) -> bool:
        """That end of the link learns that it is over; False where it knew."""
        knows = self.child_knows if rank == link else self.parent_knows
        if link in knows:
            return False
        knows.add(link)
        self.closed.add(link)
        return True

    def reopen(self, link: int) -> None:
        """A new life at one end: the link carries again."""
        self.closed.discard(link)
        self.child_knows.discard(link)
        self.parent_knows.discard(link)

    def heal(self, link: int) -> None:
        """What was half-open or slow is as before; what an end knows as closed stays so."""
        self.half_open.pop(link, None)
        self.slow.pop(link, None)
        if link not in self.child_knows and link not in self.parent_knows:
            self.closed.discard(link)

    def delay_ns(self, link: int) -> int | None:
        """How long a message takes; None where it never arrives."""
        if link in self.closed or link in self.half_open:
            return None
        return LINK_NS + self.slow.get(link, 0)

    def child_loss_ns(self, now_ns: int) -> int:
        """How long until a parent notices that a child is gone."""
        return losses.child_ns(self._settings, now_ns) or LINK_NS

    def parent_loss_ns(self) -> int | None:
        """How long until a child notices that its parent is gone; None is never."""
        delay_ns = losses.parent_ns(self._settings)
        return LINK_NS if delay_ns == 0 else delay_ns

    def silence_ns(self) -> int | None:
        """How long until a child takes a silent parent for lost; None is never."""
        return losses.silence_ns(self._settings)

    def why(self, *, silent: bool) -> str:
        """How a rank that lost its parent says so."""
        return losses.why(self._settings, silent=silent)
