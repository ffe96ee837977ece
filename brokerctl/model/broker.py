"""The broker of one rank: what is posted to the lifecycle, when, and what each state does on entry.

The table of transitions is `model.lifecycle`'s. Here stand the reasons of a stop, the signals in every state, the lists
of actions, the limits, the exit code and the messages to the service manager. FLUX.md B, C, D, I.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Literal

from brokerctl.model import ending
from brokerctl.model.actions import ActionList
from brokerctl.model.lifecycle import STOPPING, Event, Fire, State
from brokerctl.model.manager import Manager
from brokerctl.model.run import ERR
from brokerctl.model.workers import Workers
from brokerctl.records import Ignored, Moved, Served, Waiting

if TYPE_CHECKING:
    from brokerctl.model.node import Node
    from brokerctl.settings import Action

# Why a stop began. `done`: rc2 came to its end by itself. Only `signal` puts CLEANUP under its timeout (FLUX.md 25).
Reason = Literal["", "signal", "request", "parent", "failure", "done"]
# The lists of actions, in the order in which they run.
LISTS = ("rc1", "rc2", "cleanup", "rc3")


class Broker:
    """The lifecycle of one rank, and all that it decides."""

    __slots__ = (
        "_draining", "_fire", "_posted", "failed", "last_signal", "lists", "manager", "node", "orphaned", "panicked",
        "rc1_failed", "reason", "signalled", "since_ns", "state", "waits", "workers",
    )  # fmt: skip

    def __init__(self, node: Node, fire: Fire) -> None:
        self.node = node
        self._fire = fire
        self.state = State.LOAD_BUILTINS
        self.since_ns = 0
        self.reason: Reason = ""
        self.signalled = False  # a terminating signal asked for this stop, first or later
        self.manager = Manager(node, self)
        self.lists: dict[str, ActionList] = {}
        self.failed = 0  # the first nonzero code of rc1, rc2, cleanup, rc3 so far (FLUX.md 38)
        self._posted: list[Event] = []
        self._draining = False
        self.last_signal = (0, 0)  # its number, and when it came
        self.panicked = self.rc1_failed = self.orphaned = False
        self.waits = ""
        self.workers: Workers | None = None  # the leader's, from RUN on

    # ---- the lifecycle

    def boot(self) -> None:
        """The world is ready."""
        self.since_ns = self.node.now_ns
        settings = self.node.settings
        if self.node.rank == 0 and settings.cleanup:
            self._list("cleanup", settings.cleanup)
        self.post(Event.BUILTINS_SUCCESS)

    def post(self, event: Event) -> None:
        """Move, or ignore; what entering a state posts is taken in order, never inside of another transition."""
        self._posted.append(event)
        if self._draining:
            return
        self._draining = True
        while self._posted:
            self._take(self._posted.pop(0))
        self._draining = False

    def _take(self, event: Event) -> None:
        node, old = self.node, self.state
        new = self._fire(old, event)
        if new is None:
            node.emit(Ignored(event, old))
            return
        node.emit(Moved(event, old, new, node.now_ns - self.since_ns))
        if self.waits:
            node.emit(Served(f"rank {node.rank}", self.waits))
            self.waits = ""
        self.state, self.since_ns = new, node.now_ns
        if node.overlay.peers:
            node.overlay.tell_state(new)
        if node.settings.sd_notify:
            self.manager.entered(new)
        _ENTER[new](self)

    def wait(self, on: str) -> None:
        """Tell what this broker waits for, until its next state."""
        self.waits = on
        self.node.emit(Waiting(f"rank {self.node.rank}", on))

    # ---- states before RUN

    def _enter_join(self) -> None:
        if self.node.rank == 0:
            self.post(Event.PARENT_NONE)
        else:
            self.wait(f"rank {self.node.overlay.parent} (its parent) to be ready")
            self.node.overlay.join()

    def _enter_config_sync(self) -> None:
        if self.node.rank == 0:
            self.post(Event.SYNC_NONE)
            return
        limit_ns = self.node.settings.config_sync_timeout_ns
        if limit_ns is not None:
            self.node.arm("config-sync-timeout", limit_ns, lambda: self.post(Event.SYNC_FAIL))
        self.node.overlay.get_config()

    def config_synced(self) -> None:
        """The parent's configuration has come."""
        self.node.cancel("config-sync-timeout")
        self.post(Event.SYNC_SUCCESS)

    def parent_changed(self, state: State) -> None:
        """The parent told its state: what a follower starts, runs and stops by (FLUX.md 4, 6, 94)."""
        match self.state:
            case State.JOIN if state in {State.QUORUM, State.RUN}:
                self.post(Event.PARENT_READY)
            case State.JOIN if state in STOPPING:
                self.reason = "parent"
                self.post(Event.PARENT_FAIL)
            case State.QUORUM if state is State.RUN:
                self.post(Event.QUORUM_FULL)
            case State.QUORUM if state is State.SHUTDOWN:
                self.reason = "parent"
                self.post(Event.QUORUM_FAIL)
            case State.RUN if state is State.SHUTDOWN:
                self.reason = "parent"
                self.post(Event.SHUTDOWN)
            case State.INIT if state is State.SHUTDOWN:
                self._parent_stops_in_rc1()
            case _:
                pass

    def _parent_stops_in_rc1(self) -> None:
        if self.node.settings.abort_rc1_with_parent and "rc1" in self.lists:
            self.reason = "parent"
            self.lists["rc1"].abort(hurry=False)

    def parent_lost(self) -> None:
        """The parent is lost, or has disconnected this broker: it ends, and says so by its code (FLUX.md 40, 88)."""
        self.orphaned = True
        self.reason = self.reason or "parent"
        self.node.rexec.abort_local()
        match self.state:
            case State.CONFIG_SYNC:
                self.node.cancel("config-sync-timeout")
                self.post(Event.SYNC_FAIL)  # what was asked of it will never be answered
            case State.QUORUM:
                self.post(Event.QUORUM_FAIL)
            case State.GOODBYE:
                ending.goodbye_answered(self)
            case _:
                self.post(Event.PARENT_FAIL)
                if self.state is State.INIT:
                    self._parent_stops_in_rc1()

    def _enter_init(self) -> None:
        self.run_list("rc1", self.node.settings.rc1, Event.RC1_NONE)

    def _rc1_done(self, rc: int) -> None:
        if rc:
            self.rc1_failed = True
            self.reason = self.reason or "failure"
        self.post(Event.RC1_FAIL if rc else Event.RC1_SUCCESS)

    def _enter_quorum(self) -> None:
        node = self.node
        if node.rank == 0:
            if node.tree.size > 1:
                self.wait("quorum")
            self._remind_quorum()
        node.overlay.report_online((node.rank,))
        if node.overlay.parent_lost:
            self.post(Event.QUORUM_FAIL)
        elif node.overlay.parent_state == State.RUN:
            self.post(Event.QUORUM_FULL)
        elif node.overlay.parent_state == State.SHUTDOWN:
            self.reason = "parent"
            self.post(Event.QUORUM_FAIL)

    def _remind_quorum(self) -> None:
        every_ns = self.node.settings.quorum_warn_ns
        if every_ns is not None and self.node.tree.size > 1:
            self.node.arm("quorum-warn", every_ns, self._quorum_slow, reminder=True)

    def _quorum_slow(self) -> None:
        missing = self.node.tree.describe(self.node.overlay.missing())
        self.node.log("broker", ERR, f"quorum delayed: waiting for {missing}")
        self._remind_quorum()

    def quorum_full(self) -> None:
        """Every rank is online (told to the leader by its overlay)."""
        if self.state is State.QUORUM:
            self.post(Event.QUORUM_FULL)

    # ---- RUN, and what ends it

    def _enter_run(self) -> None:
        self.node.cancel("quorum-warn")
        if self.node.rank == 0 and self.node.settings.workers:
            self.workers = Workers(self.node, self, self._begin_rc2)
            self.workers.start()
        else:
            self._begin_rc2()

    def await_worker(self, name: str) -> None:
        """RUN goes on when that worker is ready; with no name, it is."""
        if self.waits:
            self.node.emit(Served(f"rank {self.node.rank}", self.waits))
            self.waits = ""
        if name:
            self.wait(f"{name} to be ready")

    def worker_ended(self, rc: int) -> None:
        """A required worker has ended: RUN ends, as at the end of rc2."""
        self.failed = self.failed or rc
        if self.state is State.RUN:
            self.stop_running("failure" if rc else "done", hurry=False)

    def _begin_rc2(self) -> None:
        if self.node.rank == 0:
            self.run_list("rc2", self.node.settings.rc2, Event.RC2_NONE)
        self.manager.running()
        if self.node.jobs is not None:
            self.node.jobs.runs()
        if "rc2" not in self.lists:
            self.wait("a signal or a request to stop" if self.node.rank == 0 else "its parent to stop")

    def _rc2_done(self, rc: int) -> None:
        self.reason = self.reason or ("failure" if rc else "done")
        self.post(Event.RC2_FAIL if rc else Event.RC2_SUCCESS)

    def stop_running(self, reason: Reason, *, hurry: bool) -> None:
        """End RUN: through rc2's end if there is one (FLUX.md 28)."""
        self.reason = self.reason or reason
        rc2 = self.lists.get("rc2")
        if rc2 is not None and rc2.running:
            rc2.abort(hurry=hurry)
        else:
            self.post(Event.SHUTDOWN)

    def request(self) -> None:
        """`flux shutdown` was asked for, and may be (FLUX.md 34)."""
        self.stop_running("request", hurry=False)

    def panic(self) -> None:
        """A part of the broker failed (FLUX.md 41)."""
        self.panicked = True
        self.reason = self.reason or "failure"
        self.post(Event.PANIC)

    # ---- CLEANUP

    def _enter_cleanup(self) -> None:
        for stop in self.workers.stops() if self.workers is not None else ():
            self.push_cleanup(stop)
        cleanup = self.lists.get("cleanup")
        if cleanup is None:
            self.post(Event.CLEANUP_NONE)
            return
        if self.signalled:
            self.arm_cleanup_timeout()
        cleanup.start()

    def arm_cleanup_timeout(self) -> None:
        """Put CLEANUP under its timeout, counted from now."""
        limit_ns = self.node.settings.cleanup_timeout_ns
        if limit_ns is not None:
            self.node.arm("cleanup-timeout", limit_ns, self._cleanup_timeout)

    def _cleanup_timeout(self) -> None:
        cleanup = self.lists["cleanup"]
        self.explain(ERR, f"cleanup-timeout: {cleanup.describe()} is aborted")
        cleanup.abort(hurry=False)

    def _cleanup_done(self, rc: int) -> None:
        self.node.cancel("cleanup-timeout")
        self.post(Event.CLEANUP_FAIL if rc else Event.CLEANUP_SUCCESS)

    # ---- lists

    def _list(self, name: str, actions: tuple[Action, ...]) -> ActionList:
        done: dict[str, Callable[[int], None]] = {
            "rc1": self._rc1_done,
            "rc2": self._rc2_done,
            "cleanup": self._cleanup_done,
            "rc3": partial(ending.rc3_done, self),
        }

        def ended(rc: int) -> None:
            self.failed = self.failed or rc
            done[name](rc)

        made = ActionList(self.node, name, actions, started=self.manager.action, done=ended)
        self.lists[name] = made
        return made

    def in_order(self) -> dict[str, ActionList]:
        """The lists that there are, in their order: cleanup may be made before rc2, by what is pushed to it."""
        return {name: self.lists[name] for name in LISTS if name in self.lists}

    def run_list(self, name: str, actions: tuple[Action, ...], none: Event) -> None:
        """Run a list of actions; without any, `none` is posted at once."""
        if actions:
            self._list(name, actions).start()
        else:
            self.post(none)

    def push_cleanup(self, action: Action) -> None:
        """One more cleanup action, before all others (FLUX.md 16)."""
        cleanup = self.lists.get("cleanup") or self._list("cleanup", ())
        cleanup.push(action)

    def explain(self, level: int, text: str) -> None:
        """A line that Flux does not have."""
        if self.node.settings.explain:
            self.node.log("broker", level, text)


_ENTER: dict[State, Callable[[Broker], None]] = {
    State.JOIN: Broker._enter_join,
    State.CONFIG_SYNC: Broker._enter_config_sync,
    State.INIT: Broker._enter_init,
    State.QUORUM: Broker._enter_quorum,
    State.RUN: Broker._enter_run,
    State.CLEANUP: Broker._enter_cleanup,
    State.SHUTDOWN: ending.enter_shutdown,
    State.FINALIZE: ending.enter_finalize,
    State.GOODBYE: ending.enter_goodbye,
    State.UNLOAD_BUILTINS: ending.enter_unload_builtins,
    State.EXIT: ending.enter_exit,
}
