"""What the first helper asks a Flux broker before it is asked itself: what runs before the stop.

It takes time and decides nothing, so it is on its way while the core and the helper still import what they need. What
the broker does is asked when the core asks, never ahead: an old answer could send SIGTERM into a stop that has begun
meanwhile (FLUX.md 100).
"""

from __future__ import annotations

from collections.abc import Callable

from brokerctl.durations import S
from brokerctl.stop.errands import Command, Errand, Runner, Said
from brokerctl.stop.fluxcommand import FluxCommand
from brokerctl.stop.target import Aim

_WITHIN_NS = 2 * S

Then = Callable[[list[Said]], None]


class Ahead:
    """Its jobs and its job manager, asked at once; `then` is told when both have answered."""

    def __init__(self, aim: Aim) -> None:
        flux = FluxCommand.of(aim)
        self._commands = [flux.list_jobs(), flux.job_manager()]
        self._said: list[Said] | None = None
        self._waiting: list[Then] = []
        self.runner = Runner()
        self.runner.start(_ask(self._commands), _WITHIN_NS, self._answered)

    def then(self, do: Then) -> None:
        """Call it with the two answers, now if they are there."""
        if self._said is None:
            self._waiting.append(do)
        else:
            do(self._said)

    def _answered(self, said: list[Said] | None, why: str) -> None:
        self._said = [Said("", why)] * len(self._commands) if said is None else said
        for do in self._waiting:
            do(self._said)


def _ask(commands: list[Command]) -> Errand[list[Said]]:
    return (yield commands)
