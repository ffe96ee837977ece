"""The broker's way from SHUTDOWN to EXIT: children, rc3, the goodbye, what is left over, and the exit code.

FLUX.md 7, 8, 36–43; the limits are those of `model.bounds`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from brokerctl.model import bounds, jobstore
from brokerctl.model.lifecycle import Event, State
from brokerctl.model.run import ERR
from brokerctl.records import Exit

if TYPE_CHECKING:
    from brokerctl.model.broker import Broker

RC_PANIC = 1  # FLUX.md 41


# ---- SHUTDOWN


def enter_shutdown(broker: Broker) -> None:
    """The children are told by the state itself, and are waited for."""
    node = broker.node
    if broker.workers is not None:
        broker.workers.end_all()
    if not node.settings.shells_hang:
        node.rexec.end_tasks()
    node.cancel("quorum-warn")
    limit_ns = bounds.shutdown_ns(node.settings, node.tree, node.rank) if node.overlay.peers else None
    if node.rank == 0 and node.settings.shutdown_timeout_outlives_state:
        limit_ns = node.settings.shutdown_timeout_ns
    if limit_ns is not None:
        node.arm("shutdown-timeout", limit_ns, partial(_shutdown_timeout, broker))
    if not node.overlay.peers:
        broker.post(Event.CHILDREN_NONE)
        return
    broker.wait(node.overlay.describe_peers())
    _remind_shutdown(broker)


def _remind_shutdown(broker: Broker) -> None:
    every_ns = broker.node.settings.shutdown_warn_ns
    if every_ns is not None:
        broker.node.arm("shutdown-warn", every_ns, partial(_shutdown_slow, broker), reminder=True)


def _shutdown_slow(broker: Broker) -> None:
    broker.node.log("broker", ERR, f"shutdown delayed: waiting for {broker.node.overlay.describe_peers()}")
    _remind_shutdown(broker)


def _shutdown_timeout(broker: Broker) -> None:
    broker.node.log("broker", ERR, "shutdown timeout")
    if broker.node.settings.shed and broker.node.overlay.peers:
        broker.node.overlay.shed()  # the last one that is gone completes the children
    else:
        broker.post(Event.CHILDREN_COMPLETE)


def children_gone(broker: Broker) -> None:
    """The last connected child said goodbye or was lost (FLUX.md 7)."""
    if broker.state is State.SHUTDOWN:
        broker.post(Event.CHILDREN_COMPLETE)


# ---- FINALIZE


def enter_finalize(broker: Broker) -> None:
    """rc3 saves what must not be lost."""
    node = broker.node
    node.cancel("shutdown-warn")
    if node.jobs is not None and node.settings.store_before_rc3:
        jobstore.store(node.jobs)
    if not node.settings.shutdown_timeout_outlives_state:
        node.cancel("shutdown-timeout")
    if broker.signalled or broker.reason == "parent":
        arm_finalize_timeout(broker)
    broker.run_list("rc3", node.settings.rc3, Event.RC3_NONE)


def arm_finalize_timeout(broker: Broker) -> None:
    """Put FINALIZE under its timeout, counted from now."""
    node = broker.node
    limit_ns = bounds.finalize_budget_ns(node.settings, node.tree, node.rank)
    if limit_ns is not None and node.settings.rc3:
        node.arm("finalize-timeout", limit_ns, partial(_finalize_timeout, broker))


def _finalize_timeout(broker: Broker) -> None:
    rc3 = broker.lists["rc3"]
    broker.explain(ERR, f"finalize-timeout: {rc3.describe()} is aborted; what it saves may be lost")
    rc3.abort(hurry=False)


def rc3_done(broker: Broker, rc: int) -> None:
    """rc3 has ended."""
    broker.node.cancel("finalize-timeout")
    broker.post(Event.RC3_FAIL if rc else Event.RC3_SUCCESS)


# ---- GOODBYE … EXIT


def _unload_modules(broker: Broker) -> None:
    """rc3 is over: the modules are gone, the job manager too; what it knew is kept if rc3 has succeeded."""
    node = broker.node
    if node.settings.shells_hang:
        node.rexec.modules_unloaded()
    if node.jobs is not None:
        if "rc3" not in broker.lists or not broker.lists["rc3"].rc:
            jobstore.store(node.jobs)
        node.jobs.unload()


def enter_goodbye(broker: Broker) -> None:
    """A follower asks its parent whether it may go."""
    _unload_modules(broker)
    if broker.node.rank == 0:
        broker.post(Event.GOODBYE)
        return
    node = broker.node
    if not node.overlay.say_goodbye():
        broker.post(Event.GOODBYE)
        return
    broker.wait(f"rank {node.overlay.parent} (its parent) to say goodbye")
    node.arm("goodbye-timeout", node.settings.goodbye_timeout_ns, partial(_goodbye_timeout, broker))


def goodbye_answered(broker: Broker) -> None:
    """The parent lets this broker go, or is not there any more."""
    broker.node.cancel("goodbye-timeout")
    broker.post(Event.GOODBYE)


def _goodbye_timeout(broker: Broker) -> None:
    limit_ns = broker.node.settings.goodbye_timeout_ns
    broker.node.log("broker", ERR, f"goodbye timeout after {limit_ns / 1e9:.1f}s")
    broker.post(Event.GOODBYE)


def enter_unload_builtins(broker: Broker) -> None:
    """What still runs for other ranks is ended."""
    node = broker.node
    if not node.rexec.running():
        _unloaded(broker)
        return
    node.arm("unload-timeout", node.settings.unload_timeout_ns, partial(_unload_timeout, broker))
    node.rexec.stop(partial(_unloaded, broker))


def _unloaded(broker: Broker) -> None:
    broker.node.cancel("unload-timeout")
    if broker.node.settings.unload_takes_ns:
        broker.node.arm("unload", broker.node.settings.unload_takes_ns, partial(broker.post, Event.BUILTINS_DONE))
    else:
        broker.post(Event.BUILTINS_DONE)


def _unload_timeout(broker: Broker) -> None:
    broker.node.log("broker", ERR, "rexec: subprocess server shutdown: Connection timed out")  # FLUX.md 55
    broker.node.rexec.abandon()
    broker.post(Event.BUILTINS_UNLOAD_FAIL)


def enter_exit(broker: Broker) -> None:
    """The code is told, and who is to blame for it."""
    lost = sorted(broker.node.overlay.lost_ranks)
    if lost and broker.node.rank == 0:
        broker.explain(ERR, f"stopped without {broker.node.tree.describe(lost)}")
    code = _exit_code(broker)
    culprit = next((actions.culprit for actions in broker.in_order().values() if actions.culprit), "")
    if broker.workers is not None:
        broker.workers.abandon()
        culprit = broker.workers.culprit or culprit
    if culprit:
        broker.explain(ERR, f"exit code {code}: the first to fail was {culprit}")
    broker.node.emit(Exit(code))


def _exit_code(broker: Broker) -> int:
    """FLUX.md 38–43: the first nonzero code of rc2, cleanup, rc3; or what the administrator asked for."""
    failed = broker.failed or (1 if broker.orphaned else 0)
    if not failed and broker.node.overlay.lost_ranks and broker.node.rank == 0:
        failed = broker.node.settings.lost_exit_code
    if broker.panicked:
        return RC_PANIC
    norestart = broker.node.settings.exit_norestart
    if norestart is None or not (broker.reason == "request" or broker.rc1_failed):
        return failed
    if failed and norestart != failed:
        broker.explain(ERR, f"exit code {norestart} (exit-norestart) stands for a failure with {failed}")
    return norestart
