"""The broker of one rank: what is posted to the lifecycle, when, and what each state does on entry.

The table of transitions is `model.lifecycle`'s. Here stand the reasons of a stop, the signals in every state, the lists
of actions, the limits, the exit code and the messages to the service manager. FLUX.md B, C, D, I.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from brokerctl.model import bounds, jobstore
from brokerctl.model.actions import ActionList
from brokerctl.model.lifecycle import STOPPING, Event, Fire, State
from brokerctl.model.manager import Manager
from brokerctl.model.run import ERR
from brokerctl.records import Exit, Ignored, Moved, Served, Waiting

if TYPE_CHECKING:
    from brokerctl.model.node import Node
    from brokerctl.settings import Action

# Why a stop began. `done`: rc2 came to its end by itself. Only `signal` puts CLEANUP under its timeout (FLUX.md 25).
Reason = Literal["", "signal", "request", "parent", "failure", "done"]

RC_PANIC = 1  # FLUX.md 41


class Broker:
    """The lifecycle of one rank, and all that it decides."""

    __slots__ = (
        "_draining", "_fire", "_node", "_orphaned", "_panicked", "_posted", "_rc1_failed", "failed", "last_signal",
        "lists", "manager", "reason", "signalled", "since_ns", "state", "waits",
    )  # fmt: skip

    def __init__(self, node: Node, fire: Fire) -> None:
        self._node = node
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
        self._panicked = self._rc1_failed = self._orphaned = False
        self.waits = ""

    # ---- the lifecycle

    def boot(self) -> None:
        """The world is ready."""
        self.since_ns = self._node.now_ns
        settings = self._node.settings
        if self._node.rank == 0 and settings.cleanup:
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
        node, old = self._node, self.state
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

    def _wait(self, on: str) -> None:
        self.waits = on
        self._node.emit(Waiting(f"rank {self._node.rank}", on))

    # ---- states before RUN

    def _enter_join(self) -> None:
        if self._node.rank == 0:
            self.post(Event.PARENT_NONE)
        else:
            self._wait(f"rank {self._node.overlay.parent} (its parent) to be ready")
            self._node.overlay.join()

    def _enter_config_sync(self) -> None:
        if self._node.rank == 0:
            self.post(Event.SYNC_NONE)
            return
        limit_ns = self._node.settings.config_sync_timeout_ns
        if limit_ns is not None:
            self._node.arm("config-sync-timeout", limit_ns, lambda: self.post(Event.SYNC_FAIL))
        self._node.overlay.get_config()

    def config_synced(self) -> None:
        """The parent's configuration has come."""
        self._node.cancel("config-sync-timeout")
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
        if self._node.settings.abort_rc1_with_parent and "rc1" in self.lists:
            self.reason = "parent"
            self.lists["rc1"].abort(hurry=False)

    def parent_lost(self) -> None:
        """The parent is lost, or has disconnected this broker: it ends, and says so by its code (FLUX.md 40, 88)."""
        self._orphaned = True
        self.reason = self.reason or "parent"
        self._node.rexec.abort_local()
        match self.state:
            case State.CONFIG_SYNC:
                self._node.cancel("config-sync-timeout")
                self.post(Event.SYNC_FAIL)  # what was asked of it will never be answered
            case State.QUORUM:
                self.post(Event.QUORUM_FAIL)
            case State.GOODBYE:
                self.goodbye_answered()
            case _:
                self.post(Event.PARENT_FAIL)
                if self.state is State.INIT:
                    self._parent_stops_in_rc1()

    def _enter_init(self) -> None:
        self._run_list("rc1", self._node.settings.rc1, Event.RC1_NONE)

    def _rc1_done(self, rc: int) -> None:
        if rc:
            self._rc1_failed = True
            self.reason = self.reason or "failure"
        self.post(Event.RC1_FAIL if rc else Event.RC1_SUCCESS)

    def _enter_quorum(self) -> None:
        node = self._node
        if node.rank == 0:
            if node.tree.size > 1:
                self._wait("quorum")
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
        every_ns = self._node.settings.quorum_warn_ns
        if every_ns is not None and self._node.tree.size > 1:
            self._node.arm("quorum-warn", every_ns, self._quorum_slow, reminder=True)

    def _quorum_slow(self) -> None:
        missing = self._node.tree.describe(self._node.overlay.missing())
        self._node.log("broker", ERR, f"quorum delayed: waiting for {missing}")
        self._remind_quorum()

    def quorum_full(self) -> None:
        """Every rank is online (told to the leader by its overlay)."""
        if self.state is State.QUORUM:
            self.post(Event.QUORUM_FULL)

    # ---- RUN, and what ends it

    def _enter_run(self) -> None:
        self._node.cancel("quorum-warn")
        if self._node.rank == 0:
            self._run_list("rc2", self._node.settings.rc2, Event.RC2_NONE)
        self.manager.running()
        if self._node.jobs is not None:
            self._node.jobs.runs()
        if "rc2" not in self.lists:
            self._wait("a signal or a request to stop" if self._node.rank == 0 else "its parent to stop")

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
        self._panicked = True
        self.reason = self.reason or "failure"
        self.post(Event.PANIC)

    # ---- CLEANUP

    def _enter_cleanup(self) -> None:
        cleanup = self.lists.get("cleanup")
        if cleanup is None:
            self.post(Event.CLEANUP_NONE)
            return
        if self.signalled:
            self.arm_cleanup_timeout()
        cleanup.start()

    def arm_cleanup_timeout(self) -> None:
        """Put CLEANUP under its timeout, counted from now."""
        limit_ns = self._node.settings.cleanup_timeout_ns
        if limit_ns is not None:
            self._node.arm("cleanup-timeout", limit_ns, self._cleanup_timeout)

    def _cleanup_timeout(self) -> None:
        cleanup = self.lists["cleanup"]
        self.explain(ERR, f"cleanup-timeout: {cleanup.describe()} is aborted")
        cleanup.abort(hurry=False)

    def _cleanup_done(self, rc: int) -> None:
        self._node.cancel("cleanup-timeout")
        self.post(Event.CLEANUP_FAIL if rc else Event.CLEANUP_SUCCESS)

    # ---- SHUTDOWN

    def _enter_shutdown(self) -> None:
        node = self._node
        if not node.settings.shells_hang:
            node.rexec.end_tasks()
        node.cancel("quorum-warn")
        limit_ns = bounds.shutdown_ns(node.settings, node.tree, node.rank) if node.overlay.peers else None
        if node.rank == 0 and node.settings.shutdown_timeout_outlives_state:
            limit_ns = node.settings.shutdown_timeout_ns
        if limit_ns is not None:
            node.arm("shutdown-timeout", limit_ns, self._shutdown_timeout)
        if not node.overlay.peers:
            self.post(Event.CHILDREN_NONE)
            return
        self._wait(node.overlay.describe_peers())
        self._remind_shutdown()

    def _remind_shutdown(self) -> None:
        every_ns = self._node.settings.shutdown_warn_ns
        if every_ns is not None:
            self._node.arm("shutdown-warn", every_ns, self._shutdown_slow, reminder=True)

    def _shutdown_slow(self) -> None:
        self._node.log("broker", ERR, f"shutdown delayed: waiting for {self._node.overlay.describe_peers()}")
        self._remind_shutdown()

    def _shutdown_timeout(self) -> None:
        self._node.log("broker", ERR, "shutdown timeout")
        if self._node.settings.shed and self._node.overlay.peers:
            self._node.overlay.shed()  # the last one that is gone completes the children
        else:
            self.post(Event.CHILDREN_COMPLETE)

    def children_gone(self) -> None:
        """The last connected child said goodbye or was lost (FLUX.md 7)."""
        if self.state is State.SHUTDOWN:
            self.post(Event.CHILDREN_COMPLETE)

    # ---- FINALIZE

    def _enter_finalize(self) -> None:
        node = self._node
        node.cancel("shutdown-warn")
        if node.jobs is not None and node.settings.store_before_rc3:
            jobstore.store(node.jobs)
        if not node.settings.shutdown_timeout_outlives_state:
            node.cancel("shutdown-timeout")
        if self.signalled or self.reason == "parent":
            self.arm_finalize_timeout()
        self._run_list("rc3", node.settings.rc3, Event.RC3_NONE)

    def arm_finalize_timeout(self) -> None:
        """Put FINALIZE under its timeout, counted from now."""
        node = self._node
        limit_ns = bounds.finalize_budget_ns(node.settings, node.tree, node.rank)
        if limit_ns is not None and node.settings.rc3:
            node.arm("finalize-timeout", limit_ns, self._finalize_timeout)

    def _finalize_timeout(self) -> None:
        rc3 = self.lists["rc3"]
        self.explain(ERR, f"finalize-timeout: {rc3.describe()} is aborted; what it saves may be lost")
        rc3.abort(hurry=False)

    def _rc3_done(self, rc: int) -> None:
        self._node.cancel("finalize-timeout")
        self.post(Event.RC3_FAIL if rc else Event.RC3_SUCCESS)

    # ---- GOODBYE … EXIT

    def _unload_modules(self) -> None:
        """rc3 is over: the modules are gone, the job manager too; what it knew is kept if rc3 has succeeded."""
        node = self._node
        if node.settings.shells_hang:
            node.rexec.modules_unloaded()
        if node.jobs is not None:
            if "rc3" not in self.lists or not self.lists["rc3"].rc:
                jobstore.store(node.jobs)
            node.jobs.unload()

    def _enter_goodbye(self) -> None:
        self._unload_modules()
        if self._node.rank == 0:
            self.post(Event.GOODBYE)
            return
        node = self._node
        if not node.overlay.say_goodbye():
            self.post(Event.GOODBYE)
            return
        self._wait(f"rank {node.overlay.parent} (its parent) to say goodbye")
        node.arm("goodbye-timeout", node.settings.goodbye_timeout_ns, self._goodbye_timeout)

    def goodbye_answered(self) -> None:
        """The parent lets this broker go, or is not there any more."""
        self._node.cancel("goodbye-timeout")
        self.post(Event.GOODBYE)

    def _goodbye_timeout(self) -> None:
        limit_ns = self._node.settings.goodbye_timeout_ns
        self._node.log("broker", ERR, f"goodbye timeout after {limit_ns / 1e9:.1f}s")
        self.post(Event.GOODBYE)

    def _enter_unload_builtins(self) -> None:
        node = self._node
        if not node.rexec.running():
            self._unloaded()
            return
        node.arm("unload-timeout", node.settings.unload_timeout_ns, self._unload_timeout)
        node.rexec.stop(self._unloaded)

    def _unloaded(self) -> None:
        self._node.cancel("unload-timeout")
        if self._node.settings.unload_takes_ns:
            self._node.arm("unload", self._node.settings.unload_takes_ns, lambda: self.post(Event.BUILTINS_DONE))
        else:
            self.post(Event.BUILTINS_DONE)

    def _unload_timeout(self) -> None:
        self._node.log("broker", ERR, "rexec: subprocess server shutdown: Connection timed out")  # FLUX.md 55
        self._node.rexec.abandon()
        self.post(Event.BUILTINS_UNLOAD_FAIL)

    def _enter_exit(self) -> None:
        lost = sorted(self._node.overlay.lost_ranks)
        if lost and self._node.rank == 0:
            self.explain(ERR, f"stopped without {self._node.tree.describe(lost)}")
        code = self._exit_code()
        culprit = next((actions.culprit for actions in self.lists.values() if actions.culprit), "")
        if culprit:
            self.explain(ERR, f"exit code {code}: the first to fail was {culprit}")
        self._node.emit(Exit(code))

    def _exit_code(self) -> int:
        """FLUX.md 38–43: the first nonzero code of rc2, cleanup, rc3; or what the administrator asked for."""
        failed = self.failed or (1 if self._orphaned else 0)
        if not failed and self._node.overlay.lost_ranks and self._node.rank == 0:
            failed = self._node.settings.lost_exit_code
        if self._panicked:
            return RC_PANIC
        norestart = self._node.settings.exit_norestart
        if norestart is None or not (self.reason == "request" or self._rc1_failed):
            return failed
        if failed and norestart != failed:
            self.explain(ERR, f"exit code {norestart} (exit-norestart) stands for a failure with {failed}")
        return norestart

    # ---- lists

    def _list(self, name: str, actions: tuple[Action, ...]) -> ActionList:
        done = {
            "rc1": self._rc1_done,
            "rc2": self._rc2_done,
            "cleanup": self._cleanup_done,
            "rc3": self._rc3_done,
        }

        def ended(rc: int) -> None:
            self.failed = self.failed or rc
            done[name](rc)

        made = ActionList(self._node, name, actions, started=self.manager.action, done=ended)
        self.lists[name] = made
        return made

    def _run_list(self, name: str, actions: tuple[Action, ...], none: Event) -> None:
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
        if self._node.settings.explain:
            self._node.log("broker", level, text)


_ENTER: dict[State, Callable[[Broker], None]] = {
    State.JOIN: Broker._enter_join,
    State.CONFIG_SYNC: Broker._enter_config_sync,
    State.INIT: Broker._enter_init,
    State.QUORUM: Broker._enter_quorum,
    State.RUN: Broker._enter_run,
    State.CLEANUP: Broker._enter_cleanup,
    State.SHUTDOWN: Broker._enter_shutdown,
    State.FINALIZE: Broker._enter_finalize,
    State.GOODBYE: Broker._enter_goodbye,
    State.UNLOAD_BUILTINS: Broker._enter_unload_builtins,
    State.EXIT: Broker._enter_exit,
}
