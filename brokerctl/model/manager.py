"""What the broker tells its service manager (sd_notify), and when it asks for more time (FLUX.md I, SYSTEMD.md C).

Flux extends by sd-stop-timeout on entry to each state of the stop but the first, and before each action; an action or a
wait that is longer is cut off by the manager (FLUX.md 98, letter p). With `extend_to_bound` each bounded state is
covered by its own bound, told again in time because a daemon-reload forgets it (SYSTEMD.md 42), never beyond it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from brokerctl.durations import US
from brokerctl.model import bounds
from brokerctl.model.lifecycle import STOPPING, State
from brokerctl.records import Notify
from brokerctl.settings import EXTEND_EVERY_NS

if TYPE_CHECKING:
    from brokerctl.model.broker import Broker
    from brokerctl.model.node import Node

# UNLOAD_BUILTINS tells nothing, EXIT only its status (FLUX.md 97).
_EXTENDED = STOPPING - {State.UNLOAD_BUILTINS, State.EXIT}


class Manager:
    """One broker's messages to the service manager; silent where `sd_notify` is off."""

    __slots__ = ("_broker", "_deadline_ns", "_extending", "_node")

    def __init__(self, node: Node, broker: Broker) -> None:
        self._node = node
        self._broker = broker
        self._extending = False  # the stop has begun: from its second step on, Flux extends
        self._deadline_ns = 0

    def entered(self, state: State) -> None:
        """A state was entered; called before what the state does, where there is a manager to tell."""
        if state in _EXTENDED:
            self._extend()
        elif state in STOPPING:
            self._node.cancel("extend")
        self._status(state)

    def _extend(self) -> None:
        node = self._node
        if node.settings.extend_to_bound:
            self.extend()
        elif self._extending:
            self._step()
        else:
            self._extending = True

    def _step(self) -> None:
        step_ns = self._node.settings.sd_stop_timeout_ns
        if step_ns is not None:
            self._node.emit(Notify(f"EXTEND_TIMEOUT_USEC={step_ns // US}"))

    def extend(self) -> None:
        """Cover the bound that the state has now, counted from now; without a bound, one step as Flux."""
        node, broker = self._node, self._broker
        if not (node.settings.sd_notify and node.settings.extend_to_bound):
            return
        node.cancel("extend")
        bound_ns = bounds.state_ns(broker.state, node.settings, node.tree, node.rank, signalled=broker.signalled)
        if bound_ns is None:
            self._step()
            return
        self._deadline_ns = node.now_ns + bound_ns
        self._again()

    def _again(self) -> None:
        node = self._node
        left_ns = self._deadline_ns - node.now_ns
        node.emit(Notify(f"EXTEND_TIMEOUT_USEC={left_ns // US}"))
        if left_ns > EXTEND_EVERY_NS:
            node.arm("extend", EXTEND_EVERY_NS, self._again, reminder=True)

    def _status(self, state: State) -> None:
        node = self._node
        match state:
            case State.JOIN:
                if node.rank:
                    node.emit(Notify(f"STATUS=Joining Flux instance via rank {node.overlay.parent}"))
                node.emit(Notify("READY=1"))
            case State.CONFIG_SYNC:
                node.emit(Notify("STATUS=Fetching configuration update from parent"))
            case State.QUORUM:
                node.emit(Notify("STATUS=Waiting for instance quorum"))
            case State.SHUTDOWN:
                node.emit(Notify("STATUS=Waiting for overlay peers to shutdown"))
            case State.EXIT:
                node.emit(Notify("STATUS=Exiting"))
            case _:
                pass

    def running(self) -> None:
        """RUN has been entered, and rc2 started (FLUX.md 99)."""
        if self._node.settings.sd_notify:
            role = "member" if self._node.rank else "leader"
            self._node.emit(Notify(f"STATUS=Running as {role} of {self._node.tree.size} node Flux instance"))

    def action(self, text: str) -> None:
        """An action is about to start."""
        if not self._node.settings.sd_notify:
            return
        if not self._node.settings.extend_to_bound and self._extending:
            self._step()
        self._node.emit(Notify(f"STATUS=Running {text}"))
