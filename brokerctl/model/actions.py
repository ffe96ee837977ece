"""An ordered list of commands: rc1, rc2, cleanup, rc3 (Flux: runat).

They run one after the other; a failing one does not stop the next; the list's code is the first nonzero one (FLUX.md
17). An abort ends the running action by the ladder and drops the rest, which never run nor are logged (FLUX.md 20);
essential ones still have their turn, each within a slice of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from brokerctl.durations import as_short
from brokerctl.model.run import ERR, RC_ABORTED

if TYPE_CHECKING:
    from brokerctl.model.desk import Desk
    from brokerctl.model.remote import RemoteRun
    from brokerctl.model.run import Run
    from brokerctl.model.workers import WorkerStop
    from brokerctl.settings import Action


class ActionList:
    """One list's life. `done(rc)` is called when nothing of it is left to run; `started(text)` before each action."""

    __slots__ = (
        "_action", "_desk", "_done", "_dropped", "_index", "_pending", "_run", "_started", "aborted", "culprit", "name",
        "rc",
    )  # fmt: skip

    def __init__(
        self,
        desk: Desk,
        name: str,
        actions: tuple[Action, ...],
        *,
        started: Callable[[str], None],
        done: Callable[[int], None],
    ) -> None:
        self._desk = desk
        self.name = name
        self._pending = list(actions)
        self._started = started
        self._done = done
        self._index = 0
        self._action: Action | None = None
        self._run: Run | RemoteRun | WorkerStop | None = None
        self._dropped: list[str] = []
        self.rc = 0
        self.culprit = ""
        self.aborted = False

    def __len__(self) -> int:
        return len(self._pending) + (self._run is not None)

    @property
    def running(self) -> Run | RemoteRun | WorkerStop | None:
        """The action that runs now."""
        return self._run

    def describe(self) -> str:
        """`cleanup.3 (flux queue idle --quiet)`: the running action."""
        if self._run is None or self._action is None:
            return self.name
        return f"{self._run.name} ({self._action.command.text})"

    def push(self, action: Action) -> None:
        """Put an action before all others; only as long as the list has not begun (FLUX.md 16; letter l)."""
        assert self._index == 0, "a running list can't be changed"
        assert self._run is None, "a running list can't be changed"
        self._pending.insert(0, action)

    def start(self) -> None:
        """Begin with the first action; a list without any is not started."""
        assert self._pending, f"{self.name} has no action to start"
        self._next()

    def abort(self, *, hurry: bool) -> None:
        """End the running action and drop the rest; with `hurry`, where that is under way, one rung further."""
        self.aborted = True
        self._drop()
        run, action = self._run, self._action
        assert run is not None, "only a running list is aborted"
        assert action is not None
        if action.essential:
            if action.timeout_ns is None:
                self._slice(run, self._desk.settings.essential_timeout_ns)
        elif hurry:
            run.hurry()
        else:
            run.abort()

    def _drop(self) -> None:
        kept = [action for action in self._pending if action.essential]
        self._dropped += [action.command.text for action in self._pending if not action.essential]
        self._pending = kept

    def _next(self) -> None:
        if not self._pending:
            self._finish()
            return
        action = self._pending.pop(0)
        self._started(action.command.text)
        name = f"stop.{action.worker}" if action.worker else f"{self.name}.{self._index}"
        self._index += not action.worker
        self._action = action
        run = self._run = self._desk.run_of(name, action, self._ended)
        limit_ns = action.timeout_ns
        if limit_ns is None and self.aborted:
            limit_ns = self._desk.settings.essential_timeout_ns
        if limit_ns is not None:
            self._slice(run, limit_ns)
        run.begin()

    def _slice(self, run: Run | RemoteRun | WorkerStop, limit_ns: int) -> None:
        if self._desk.is_armed(f"action {run.name}"):
            return

        def over() -> None:
            self._desk.log("broker", ERR, f"{run.name}: timed out after {as_short(limit_ns)}")
            run.abort()

        self._desk.arm(f"action {run.name}", limit_ns, over)

    def _ended(self, rc: int, _how: str) -> None:
        assert self._run is not None
        assert self._action is not None
        self._desk.cancel(f"action {self._run.name}")
        if rc and not self.rc:
            self.rc = rc
            self.culprit = f"{self._run.name}: {self._action.command.text}"
        self._run = None
        self._next()

    def _finish(self) -> None:
        if self._dropped:
            self.rc = self.rc or RC_ABORTED  # what was cut off never counts as success
            if self._desk.settings.explain:
                self._desk.log("broker", ERR, f"{self.name}: not run: {'; '.join(self._dropped)}")
        self._done(self.rc)
