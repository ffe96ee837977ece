"""Scripts of jobs that wait for an event, such as `dws_environment`: asked on any rank, answered by the leader.

`flux job wait-event` in a prolog: a request goes up the tree to the job manager, its answer down to the broker that was
asked. An event that never comes is waited for until the script is ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from brokerctl.records import Answer, Asked, EventThere, EventWanted, Send

if TYPE_CHECKING:
    from brokerctl.model.node import Node


def asked(node: Node, event: Asked) -> None:
    """A script of a job asks its broker; the name of its run says which job it is of."""
    parts = event.text.split(".")
    if len(parts) != 3 or parts[0] != "job" or len(event.words) != 1:
        node.emit(Answer(event.reply, {"error": "only scripts of a job may wait for an event of it"}))
        return
    wanted(node, EventWanted(node.rank, event.reply, parts[1], event.words[0]))


def wanted(node: Node, message: EventWanted) -> None:
    """On its way up, or there."""
    if node.rank:
        node.overlay.to_parent(message)
    elif node.jobs is None:
        answer(node, message, "no job is known")
    else:
        node.jobs.wait_event(message)


def answer(node: Node, message: EventWanted, error: str = "") -> None:
    """The leader knows: down to the rank that asked."""
    there(node, EventThere(message.rank, message.reply, error))


def there(node: Node, message: EventThere) -> None:
    """On its way down, or there."""
    if message.rank == node.rank:
        node.emit(Answer(message.reply, {"error": message.error} if message.error else {}))
        return
    hop = node.tree.hop(node.rank, message.rank)
    if hop in node.overlay.peers:
        node.emit(Send(hop, message))
