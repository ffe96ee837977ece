"""When a stop began and when it was over: what `within` and the verdict measure."""

from __future__ import annotations

from collections.abc import Callable

from brokerctl.model.lifecycle import STOPPING, State
from brokerctl.model.signals import TERMINATING
from brokerctl.records import Answer, Asked, Exit, Line, Moved, Signal


class StopClock:
    """Reads lines; times stay None until they are known.

    A stop begins with the leader's first terminating signal or granted request; one that nobody asked for
    (rc2 came to its end, rc1 failed) begins when the leader leaves for CLEANUP or SHUTDOWN. `on_stop` is called then.
    """

    wants: frozenset[type] = frozenset({Signal, Moved, Asked, Answer, Exit})

    def __init__(self, on_stop: Callable[[], None] | None = None) -> None:
        self._on_stop = on_stop
        self.begun_ns: int | None = None  # the run's first event
        self.stopped_ns: int | None = None
        self.exit_ns: int | None = None
        self._asked: dict[int, int] = {}  # reply → when; until the broker answers

    def see(self, line: Line) -> None:
        """The next line of the run."""
        if self.begun_ns is None:
            self.begun_ns = line.t_ns
        if line.rank:
            return
        what = line.what
        if isinstance(what, Moved) and what.old == State.LOAD_BUILTINS:
            self.stopped_ns = self.exit_ns = None  # a new life
        elif isinstance(what, Exit):
            self.exit_ns = line.t_ns
        elif self.stopped_ns is not None:
            return
        elif (isinstance(what, Signal) and what.signum in TERMINATING) or (
            isinstance(what, Moved) and what.new in STOPPING
        ):
            self._stopped(line.t_ns)
        elif isinstance(what, Asked) and what.what == "shutdown":
            self._asked[what.reply] = line.t_ns
        elif isinstance(what, Answer) and what.reply in self._asked and "error" not in what.body:
            self._stopped(self._asked[what.reply])

    def _stopped(self, t_ns: int) -> None:
        self.stopped_ns = t_ns
        if self._on_stop is not None:
            self._on_stop()

    @property
    def stop_ns(self) -> int | None:
        """How long the stop took."""
        if self.stopped_ns is None or self.exit_ns is None:
            return None
        return self.exit_ns - self.stopped_ns
