"""Workers as units of systemd: it ends a late one (WatchdogSec), bounds its memory (its cgroup), restarts it.

What it says of itself is asked for with one `systemctl show` for all of them. SYSTEMD.md F.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from brokerctl.errors import KernelError
from brokerctl.monitors.contract import EXTERNAL, Capability, Condition, Health

PROPERTIES = ("Id", "ActiveState", "SubState", "Result", "InvocationID", "MemoryCurrent", "StatusText", "Type")
# A manager that is reloaded, or whose machine thrashes, answers late.
ASK_LIMIT_S = 10.0
_CONDITIONS: dict[str, Condition] = {
    "active": "alive", "reloading": "alive", "activating": "starting", "deactivating": "stopping",
}  # fmt: skip
_RESULTS = {"watchdog": "its watchdog bit: it was late", "oom-kill": "it took too much memory, and was killed"}


class SystemdMonitor:
    """Watches units. `systemctl` is how to call it: another manager's (`--user`) may be meant."""

    name = "systemd"
    capabilities: frozenset[Capability] = EXTERNAL

    def __init__(self, units: Sequence[str], *, systemctl: Sequence[str] = ("systemctl",)) -> None:
        if any(unit.startswith("-") or not unit for unit in units):
            raise ValueError(f"{', '.join(units)!r}: no unit has such a name")
        self._units = tuple(units)
        self._systemctl = tuple(systemctl)

    def look(self) -> list[Health]:
        """How each unit is; KernelError where systemd doesn't answer."""
        if not self._units:
            return []
        text = self._call("show", f"--property={','.join(PROPERTIES)}", "--", *self._units)
        blocks = [dict(line.partition("=")[::2] for line in block.splitlines()) for block in text.split("\n\n")]
        if len(blocks) != len(self._units):
            raise KernelError(f"cannot read systemctl show: {len(blocks)} answers for {len(self._units)} units")
        return [health(unit, block) for unit, block in zip(self._units, blocks, strict=True)]

    def stop(self, worker: str) -> bool:
        """Queue its stop; systemd's limits apply."""
        self._call("stop", "--no-block", "--", worker)
        return True

    def _call(self, *words: str) -> str:
        command = [*self._systemctl, *words]
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, timeout=ASK_LIMIT_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            what = error.strerror if isinstance(error, OSError) else f"no answer within {ASK_LIMIT_S:.0f} s"
            raise KernelError(f"cannot ask systemd: {what}") from None
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip().splitlines()
            raise KernelError(f"systemctl {words[0]}: {said[-1] if said else f'exit code {done.returncode}'}")
        return done.stdout.decode(errors="replace").strip("\n")


def health(unit: str, found: dict[str, str]) -> Health:
    """One unit's properties, as a monitor tells them."""
    active, result = found.get("ActiveState", ""), found.get("Result", "")
    state = _CONDITIONS.get(active, "gone")
    # Killed by the watchdog and not gone yet (SYSTEMD.md 82).
    if state == "stopping" and result == "watchdog":
        state = "late"
    memory = found.get("MemoryCurrent", "")
    text = _RESULTS.get(result) or found.get("StatusText") or f"{active} ({found.get('SubState', '')}), {result}"
    return Health(
        unit, state, ready=active == "active", life=found.get("InvocationID", ""), text=text,
        memory=int(memory) if memory.isdigit() else None,
    )  # fmt: skip
