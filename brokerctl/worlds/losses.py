"""When the end of a connection is noticed, and what is said of it: the same in every world. FLUX.md 84–92, 105.

A connection may end (its process is gone, or closed it), or stand and carry nothing: then only silence tells.
"""

from __future__ import annotations

from brokerctl.durations import as_text
from brokerctl.settings import Settings


def child_ns(settings: Settings, now_ns: int) -> int:
    """How long until a parent notices that a child's connection has ended; `now_ns` counts from the parent's boot.

    At once, or when it next sends to it, with the next heartbeat (FLUX.md 84).
    """
    if settings.loss_at_once:
        return 0
    return settings.heartbeat_period_ns - now_ns % settings.heartbeat_period_ns


def parent_ns(settings: Settings) -> int | None:
    """How long until a child notices that its parent's connection has ended; None is never (FLUX.md 86, 105)."""
    return 0 if settings.loss_at_once else settings.heartbeat_timeout_ns


def silence_ns(settings: Settings) -> int | None:
    """How long until a child takes a silent parent for lost; None is never."""
    return settings.heartbeat_timeout_ns


def why(settings: Settings, *, silent: bool) -> str:
    """How a rank that lost its parent says so."""
    if silent or not settings.loss_at_once:
        return f"no heartbeat for {as_text(settings.heartbeat_timeout_ns)}"
    return "connection lost"
