"""The words that a model and a world exchange: events in, effects out, and the stamped line of a trace.

An *event* is all that a model ever learns. An *effect* is all that it ever does: an `Order` is for the world to carry
out, a `Fact` is only told. A `Line` is one of them with a time, a rank and a number; nothing else is in a trace.
Times are integers of nanoseconds: virtual ones, or CLOCK_MONOTONIC.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from brokerctl.records.base import (
    Command,
    Record,
)
from brokerctl.records.effects import (
    Abandon,
    Allocated,
    Answer,
    AnyEffect,
    Arm,
    Cancel,
    CloseOutput,
    Drain,
    Effect,
    Ended,
    Exit,
    Fact,
    Freed,
    Hangup,
    Ignored,
    JobEvent,
    Kill,
    Log,
    Moved,
    Notify,
    Order,
    Scope,
    Send,
    Served,
    Service,
    Start,
    Store,
    Unreachable,
    Waiting,
)
from brokerctl.records.events import (
    AnyEvent,
    Asked,
    Booted,
    Contacted,
    Emptied,
    Event,
    Exited,
    Fired,
    KillFailed,
    Lost,
    Output,
    OutputEnded,
    Received,
    Responsive,
    Restored,
    Signal,
    SpawnFailed,
    Torpid,
)
from brokerctl.records.messages import (
    Abort,
    AnyMessage,
    ConfigGet,
    ConfigIs,
    Disconnect,
    EventThere,
    EventWanted,
    Exec,
    Forward,
    Goodbye,
    GoodbyeOk,
    Hello,
    Message,
    Offline,
    Online,
    Results,
    Said,
    Shed,
    ShellFailed,
    StateIs,
)

__all__ = [
    "Abandon",
    "Abort",
    "Allocated",
    "Answer",
    "AnyEffect",
    "AnyEvent",
    "AnyMessage",
    "Arm",
    "Asked",
    "Booted",
    "Cancel",
    "CloseOutput",
    "Command",
    "ConfigGet",
    "ConfigIs",
    "Contacted",
    "Disconnect",
    "Drain",
    "Effect",
    "Emptied",
    "Ended",
    "Event",
    "EventThere",
    "EventWanted",
    "Exec",
    "Exit",
    "Exited",
    "Fact",
    "Fired",
    "Forward",
    "Freed",
    "Goodbye",
    "GoodbyeOk",
    "Hangup",
    "Hello",
    "Ignored",
    "JobEvent",
    "Kill",
    "KillFailed",
    "Line",
    "Log",
    "Lost",
    "Message",
    "Moved",
    "Notify",
    "Offline",
    "Online",
    "Order",
    "Output",
    "OutputEnded",
    "Received",
    "Record",
    "Responsive",
    "Restored",
    "Results",
    "Said",
    "Scope",
    "Send",
    "Served",
    "Service",
    "Shed",
    "ShellFailed",
    "Signal",
    "SpawnFailed",
    "Start",
    "StateIs",
    "Store",
    "Torpid",
    "Unreachable",
    "Waiting",
]


class Line(msgspec.Struct, frozen=True, gc=False):
    """One input (`<`) or output (`>`) of one rank's model. `n` counts from 0 per rank, without gaps."""

    t_ns: int
    rank: int
    n: int
    dir: Literal["<", ">"]
    what: AnyEvent | AnyEffect
