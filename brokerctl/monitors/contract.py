"""What a monitor is: it tells how its workers are, and can stop one; what it is capable of, others do not.

Nothing here restarts a worker: that is the service manager's part. What is done about a dead one is one callback.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, Protocol

# What somebody else does, so that whoever tends the workers need not: end one that is late (external-liveness), keep
# work from one that is not ready (external-readiness), end one that takes too much (external-resource-limits). Of
# isolated-processes nothing is left when one ends: each has a control group, or a container.
Capability = Literal[
    "external-liveness", "external-readiness", "external-resource-limits", "isolated-processes"
]  # fmt: skip
EXTERNAL: frozenset[Capability] = frozenset(
    {"external-liveness", "external-readiness", "external-resource-limits", "isolated-processes"}
)
Condition = Literal["starting", "alive", "late", "swollen", "stopping", "gone"]


class Health(NamedTuple):
    """How a worker is. `life` names this life of it: after a restart it is another. `text` is for people."""

    worker: str
    condition: Condition
    ready: bool
    life: str
    text: str
    memory: int | None = None


class Monitor(Protocol):
    """One way of watching workers."""

    name: str
    capabilities: frozenset[Capability]

    def look(self) -> list[Health]:
        """How each worker is now; must not wait."""

    def stop(self, worker: str) -> bool:
        """Begin to stop a worker; False where that can't be done from here. `look` tells when it is gone."""


class Tender:
    """Looks after the workers of a monitor: stops those that nobody else would, tells each death once.

    `dead(health)` is called when a life of a worker has ended, for whatever reason; not for one that never was seen.
    """

    def __init__(self, monitor: Monitor, dead: Callable[[Health], None]) -> None:
        self._monitor = monitor
        self._dead = dead
        self._seen: dict[str, Health] = {}  # the last life of each worker
        self._told: dict[str, str] = {}  # the life of each whose death was told last
        self._stopped: dict[str, str] = {}  # the life of each that was told to stop last

    def turn(self) -> list[Health]:
        """Look once, and do what has to be done; returns what was seen."""
        found = self._monitor.look()
        for health in found:
            before = self._seen.get(health.worker, health)
            if health.life != before.life:
                text = health.text if health.condition == "gone" else "another life has taken its place"
                self._end(before._replace(condition="gone", ready=False, text=text))
            if health.life:
                self._seen[health.worker] = health
            if health.condition == "gone":
                self._end(health)
            elif self._is_ours_to_end(health) and self._stopped.get(health.worker) != health.life:
                self._stopped[health.worker] = health.life
                self._monitor.stop(health.worker)
        return found

    def _is_ours_to_end(self, health: Health) -> bool:
        if health.condition == "late":
            return "external-liveness" not in self._monitor.capabilities
        return health.condition == "swollen" and "external-resource-limits" not in self._monitor.capabilities

    def _end(self, health: Health) -> None:
        if health.life and self._told.get(health.worker) != health.life:
            self._told[health.worker] = health.life
            self._dead(health)
