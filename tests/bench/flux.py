"""A healthy stop of a real Flux in a private systemd, by systemd alone and with `brokerctl stop` in front of it."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from statistics import median

from brokerctl.worlds.systemd.private import PrivateSystemd, unsupported
from tests.bench.measure import Options, Row, progress
from tests.stop.real_flux import Instance

ITEM = "flux"
GOAL_MS = 200.0
WHAT = "a healthy stop of Flux as a unit, dump and all"
_SETTLE_S = 0.5


def measure(options: Options) -> list[Row]:
    """Both take turns, so that whatever else the machine does falls on both alike."""
    reason = unsupported() if shutil.which("flux") else "no flux on the PATH"
    if reason:
        print(f"bench: {ITEM} is left out: {reason}", file=sys.stderr)
        return []
    with tempfile.TemporaryDirectory(prefix="brokerctl-bench-") as place, PrivateSystemd([place]) as systemd:
        bare, wrapped = Instance(systemd), Instance(systemd)
        wrapped.wrap()
        ms: dict[Instance, list[float]] = {bare: [], wrapped: []}
        try:
            for nth in range(options.runs):
                for instance, times in ms.items():
                    progress(f"flux {nth + 1}/{options.runs}")
                    instance.start()
                    time.sleep(_SETTLE_S)
                    times.append(instance.stop() * 1e3)
        finally:
            bare.end()
            wrapped.end()
    progress("")
    alone = median(ms[bare])
    return [
        Row(ITEM, WHAT, "systemd alone", alone, "ms"),
        Row(ITEM, WHAT, "`brokerctl stop` and `--post` on top", median(ms[wrapped]) - alone, "ms", GOAL_MS),
    ]
