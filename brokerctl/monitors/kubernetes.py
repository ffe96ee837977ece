"""Workers in containers, from inside of their pod: the kubelet's probes read the same heartbeat files.

The kubelet ends a container whose liveness probe fails, keeps work from one that is not ready, and enforces its limits;
here nothing is ended. docs/heartbeat.md has the manifest.
"""

from __future__ import annotations

import os

from brokerctl.monitors import beatfile
from brokerctl.monitors.contract import EXTERNAL, Capability, Health


class KubernetesMonitor:
    """The heartbeat files of a directory that the containers of a pod share.

    Without `shareProcessNamespace` they don't see each other's processes: then only beats count (not `shared_pids`).
    """

    name = "kubernetes"
    capabilities: frozenset[Capability] = EXTERNAL

    def __init__(self, folder: str | os.PathLike[str], *, shared_pids: bool = False) -> None:
        self._folder = folder
        self._shared_pids = shared_pids

    def look(self) -> list[Health]:
        """How each worker is; OSError where the directory can't be read."""
        paths = beatfile.files(self._folder)
        return [health(beatfile.read(path, shared_pids=self._shared_pids)) for path in paths]

    def stop(self, worker: str) -> bool:  # noqa: ARG002 - the kubelet's part
        """Not from here."""
        return False


def health(reading: beatfile.Reading) -> Health:
    """What a heartbeat file says, as a monitor tells it."""
    name, beat = os.path.basename(reading.path), reading.beat  # noqa: PTH119 - a name
    if beat is None:
        return Health(name, "gone", ready=False, life="", text=reading.text)
    return Health(name, beatfile.condition(reading), reading.ready, beat.guid, reading.text)
