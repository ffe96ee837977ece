"""What may be asked of a broker over its control socket, and what it answers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from brokerctl.model import bounds, eventwaits, jobrequests
from brokerctl.model.lifecycle import STOPPING, State
from brokerctl.model.run import ERR
from brokerctl.records import Answer, Asked, Command
from brokerctl.settings import ACTIONS_MAX, Action

if TYPE_CHECKING:
    from brokerctl.model.node import Node

_RANK = re.compile("[0-9]{1,9}")


def asked(node: Node, event: Asked) -> None:
    """Do what is asked, and answer; a refusal is an answer with `error`."""
    if event.what == "wait-event" or event.what in jobrequests.REQUESTS:
        _about_jobs(node, event)
        return
    match event.what:
        case "status":
            body, error = status(node), ""
        case "shutdown":
            body, error = {}, _shutdown_refused(node)
        case "cleanup-push":
            body, error = {}, _push(node, event)
        case "panic":
            body, error = {}, ""
        case "disconnect":
            body, error = {}, _disconnect_refused(node, event.words)
        case what:
            body, error = {}, f"unknown request {what!r}"
    if event.reply:
        node.emit(Answer(event.reply, {"error": error} if error else body))
    elif error:
        node.log("broker", ERR, f"{event.what}: {error}")
    if not error and event.what == "shutdown":
        node.broker.request()
    elif not error and event.what == "panic":
        node.broker.panic()
    elif not error and event.what == "disconnect":
        node.overlay.disconnect(int(event.words[0]))


def _about_jobs(node: Node, event: Asked) -> None:
    if event.what == "wait-event":
        eventwaits.asked(node, event)
        return
    try:
        body = jobrequests.asked(node, event)
    except jobrequests.Refused as refusal:
        body = {"error": str(refusal)}
        if not event.reply:
            node.log("broker", ERR, f"{event.what}: {refusal}")
    if event.reply and body is not None:
        node.emit(Answer(event.reply, body))


def _disconnect_refused(node: Node, words: tuple[str, ...]) -> str:
    """`flux overlay disconnect RANK` (FLUX.md 89, 102)."""
    if len(words) != 1 or not _RANK.fullmatch(words[0]):
        return "expected one rank"
    rank = int(words[0])
    return "" if node.tree.hop(node.rank, rank) in node.overlay.peers else f"rank {rank} is not connected"


def _shutdown_refused(node: Node) -> str:
    """Why `flux shutdown` can't be (FLUX.md 34, 35)."""
    broker = node.broker
    if node.rank:
        return "shutdown may only be initiated on rank 0"
    if broker.state in STOPPING or broker.reason:
        return "shutdown is already in progress"
    if broker.state is not State.RUN:
        return f"shutdown cannot be initiated in state {broker.state}"
    return ""


def _push(node: Node, event: Asked) -> str:
    """`flux admin cleanup-push`: the last one first (FLUX.md 16); a running list is never changed (letter l)."""
    broker = node.broker
    text = event.text or " ".join(event.words)
    if node.rank:
        return "cleanup actions exist only on rank 0"
    if not text.strip():
        return "the command is empty"
    if broker.state in STOPPING:
        return f"cleanup actions cannot be added in state {broker.state}"
    if len(broker.lists.get("cleanup", ())) >= ACTIONS_MAX:
        return f"there are {ACTIONS_MAX} cleanup actions already"
    argv = (node.settings.shell, "-c", *event.words) if len(event.words) == 1 else event.words
    broker.push_cleanup(Action(Command(text, argv, puppet=event.puppet)))
    return ""


def status(node: Node) -> dict[str, Any]:
    """What this broker does, since when, until when, and what it waits for; durations in nanoseconds."""
    broker = node.broker
    held_ns = node.now_ns - broker.since_ns
    bound_ns = bounds.state_ns(broker.state, node.settings, node.tree, node.rank, signalled=broker.signalled)
    lists = broker.in_order()
    return {
        "rank": node.rank,
        "size": node.tree.size,
        "host": node.tree.host(node.rank),
        "state": str(broker.state),
        "held_ns": held_ns,
        "left_ns": None if bound_ns is None else max(0, bound_ns - held_ns),
        "cleanup_timeout_ns": node.settings.cleanup_timeout_ns,
        "shutdown_timeout_ns": node.settings.shutdown_timeout_ns,
        "reason": broker.reason,
        "signalled": broker.signalled,
        "running": [actions.running.about() for actions in lists.values() if actions.running],
        "peers": node.overlay.describe_peers() if node.overlay.peers else "",
        "lost": node.tree.describe(sorted(node.overlay.lost_ranks)) if node.overlay.lost_ranks else "",
        "pending": {name: len(actions) for name, actions in lists.items() if len(actions)},
        "failed": {name: actions.culprit for name, actions in lists.items() if actions.culprit},
        "waits": broker.waits,
        "workers": broker.workers.about() if broker.workers is not None else [],
        "code": broker.failed,
    }
