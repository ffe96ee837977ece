"""The leader's broker as the main process of a unit, in virtual time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from brokerctl.model.signals import FORWARDED, TERMINATING
from brokerctl.records import Booted, Restored, Signal

if TYPE_CHECKING:
    from brokerctl.worlds.sim.world import Life

SIGPIPE, SIGCONT, SIGSTOP = 13, 18, 19
# A broker handles these, or is not ended by them (FLUX.md 33); it dies of others.
_SURVIVED = TERMINATING | FORWARDED | {SIGPIPE}


class Leader:
    """Rank 0, frozen until the unit has started it."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._started = False
        self._held: set[str] = set()  # `stopped` by SIGSTOP, `frozen` by the freezer
        life.agenda.push(0, 0, Booted())
        for key, value in life.stored.items():
            life.agenda.push(0, 0, Restored(key, value))
        life.agenda.freeze(0)

    def start(self) -> None:
        """Its first life, or another one."""
        self._held.clear()
        if self._started:
            self._life.restart(0)
        else:
            self._started = True
            self._life.agenda.thaw(0)

    def signal(self, signum: int) -> None:
        """Handle it, be stopped or continued by it, or die of it."""
        life = self._life
        if signum in _SURVIVED:
            life.agenda.push(0, 0, Signal(signum))
        elif signum in {SIGSTOP, SIGCONT}:
            self._hold("stopped", on=signum == SIGSTOP)
        elif life.lives(0):
            life.agenda.thaw(0)  # SIGKILL ends a stopped one, too
            life.agenda.push(0, 0, lambda: life.crash(0, signum))
            self._held.clear()

    def freeze(self, *, frozen: bool) -> None:
        """The control group's freezer."""
        self._hold("frozen", on=frozen)

    def _hold(self, why: str, *, on: bool) -> None:
        """Keep it from running, or let it run if nothing else keeps it."""
        life, held = self._life, bool(self._held)
        if on:
            self._held.add(why)
            life.freeze(0)
        else:
            self._held.discard(why)
            if held and not self._held:
                life.thaw(0)

    def processes(self) -> int:
        """Its actions, and what they have left."""
        return self._life.processes.count(0)

    def kill_processes(self, signum: int) -> None:
        """All of those get the signal."""
        self._life.processes.signal_all(0, signum)
