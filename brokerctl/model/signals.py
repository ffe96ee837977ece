"""What a signal does to a broker, in every state (FLUX.md 9, 27–33, 100, 101)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from brokerctl.durations import as_short
from brokerctl.model import ending
from brokerctl.model.lifecycle import Event, State
from brokerctl.model.run import INFO, WARNING

if TYPE_CHECKING:
    from brokerctl.model.broker import Broker
    from brokerctl.model.node import Node

HUP, INT, QUIT, USR1, USR2, ALRM, TERM = 1, 2, 3, 10, 12, 14, 15
TERMINATING = frozenset({HUP, INT, QUIT, TERM, ALRM})
FORWARDED = frozenset({USR1, USR2})  # the leader hands them to its jobs; a follower is stopped by them


def heard(node: Node, signum: int) -> None:
    """The broker process got a signal."""
    broker, now_ns = node.broker, node.now_ns
    if signum in FORWARDED and node.rank == 0:
        node.log("broker", INFO, f"signal {signum}")
        count = node.jobs.tasks.forward(signum) if node.jobs is not None else 0
        if count:
            node.log("broker", INFO, f"forwarded signal {signum} to {count} jobs")
        return
    if signum not in TERMINATING and signum not in FORWARDED:
        return
    last, last_ns = broker.last_signal
    broker.last_signal = (signum, now_ns)
    if signum == last and now_ns - last_ns < node.settings.same_signal_ns:
        node.log("broker", INFO, f"signal {signum} again within {as_short(node.settings.same_signal_ns)}: one")
        return
    node.log("broker", INFO, f"signal {signum}")
    _terminate(node, broker, signum)


def _terminate(node: Node, broker: Broker, signum: int) -> None:
    match broker.state:
        case State.JOIN:
            _stop(broker, Event.PARENT_FAIL)
        case State.CONFIG_SYNC:
            _stop(broker, Event.SYNC_FAIL)
        case State.QUORUM:
            _stop(broker, Event.QUORUM_FAIL)
        case State.INIT:
            broker.reason, broker.signalled = broker.reason or "signal", True
            broker.lists["rc1"].abort(hurry=True)
        case State.RUN:
            broker.signalled = True
            broker.stop_running("signal", hurry=True)
        case State.CLEANUP:
            _in_cleanup(node, broker)
        case State.FINALIZE:
            _in_finalize(node, broker)
        case _:
            node.log("broker", INFO, f"ignored signal {signum} in {broker.state}")
            if broker.state is State.SHUTDOWN and not broker.signalled:
                broker.signalled = True
                broker.explain(WARNING, "a signal asks for this stop now: rc3 will have its timeout")


def _stop(broker: Broker, event: Event) -> None:
    broker.reason, broker.signalled = "signal", True
    broker.post(event)


def _in_cleanup(node: Node, broker: Broker) -> None:
    """The first signal after a request may only put CLEANUP under its timeout; any other aborts (FLUX.md 29)."""
    first, broker.signalled = not broker.signalled, True
    if not first or node.settings.signal_in_requested_cleanup == "abort":
        broker.lists["cleanup"].abort(hurry=True)
        return
    broker.arm_cleanup_timeout()
    limit_ns = node.settings.cleanup_timeout_ns
    left = "without limit" if limit_ns is None else f"at most {as_short(limit_ns)} more"
    broker.explain(WARNING, f"the cleanup that was requested goes on, {left}")
    broker.manager.extend()


def _in_finalize(node: Node, broker: Broker) -> None:
    """rc3 writes what must not be lost: a signal may only put it under its timeout (FLUX.md 31, 100, 101)."""
    first, broker.signalled = not broker.signalled, True
    if node.settings.signal_in_finalize == "abort":
        broker.lists["rc3"].abort(hurry=True)
        return
    broker.explain(WARNING, "rc3 saves state and goes on; no signal aborts it")
    if first:
        ending.arm_finalize_timeout(broker)
        broker.manager.extend()
