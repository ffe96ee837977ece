"""The lifecycle of a broker. This file owns every transition.

Rules
-----
1. All that moves a broker from one state to another stands in `TRANSITIONS`. What is posted, when, and what entering
   a state does, is `model.broker`'s; nothing there assigns a state.
2. This file knows no rank, no time and no policy: leader and followers, `flux` and `hardened` walk the same table.
3. An event that a state doesn't list changes nothing; the broker tells it as ignored (FLUX.md 3). A state without a
   row is a decision: `EXIT: {}` is final.

Theory of operation
-------------------
A broker loads its built-in parts, joins its parent, takes over the configuration, runs rc1 (INIT), waits until all
are there (QUORUM) and runs (RUN, rc2). Its stop walks CLEANUP (the leader's cleanup actions), SHUTDOWN (children
first), FINALIZE (rc3), GOODBYE (the parent lets it go), and unloads. Failures before RUN skip CLEANUP: nothing ran
that would need it, but rc3 always has its turn. FLUX.md 1, 4, 5, 31, 88.

`fire(state, event)` is the one function; two executions stand behind it: `compiled()`, a dict, for the simulator and
the stop path, and `machine_fire()`, a `transitions` Machine, for live brokers. A property test walks both.

Not in the table: `rc2-none` in RUN is an internal event, logged as ignored (FLUX.md 111).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transitions import Machine


class State(StrEnum):
    """States of a broker, in the order of a life without faults (FLUX.md 1)."""

    LOAD_BUILTINS = "load-builtins"
    JOIN = "join"
    CONFIG_SYNC = "config-sync"
    INIT = "init"
    QUORUM = "quorum"
    RUN = "run"
    CLEANUP = "cleanup"
    SHUTDOWN = "shutdown"
    FINALIZE = "finalize"
    GOODBYE = "goodbye"
    UNLOAD_BUILTINS = "unload-builtins"
    EXIT = "exit"


class Event(StrEnum):
    """What may be posted to a broker's lifecycle; Flux's own names."""

    BUILTINS_SUCCESS = "builtins-success"
    BUILTINS_FAIL = "builtins-fail"
    PARENT_READY = "parent-ready"
    PARENT_NONE = "parent-none"
    PARENT_FAIL = "parent-fail"
    SYNC_SUCCESS = "sync-success"
    SYNC_NONE = "sync-none"
    SYNC_FAIL = "sync-fail"
    RC1_SUCCESS = "rc1-success"
    RC1_NONE = "rc1-none"
    RC1_IGNOREFAIL = "rc1-ignorefail"
    RC1_FAIL = "rc1-fail"
    QUORUM_FULL = "quorum-full"
    QUORUM_FAIL = "quorum-fail"
    RC2_SUCCESS = "rc2-success"
    RC2_NONE = "rc2-none"
    RC2_FAIL = "rc2-fail"
    SHUTDOWN = "shutdown"
    PANIC = "panic"
    CLEANUP_SUCCESS = "cleanup-success"
    CLEANUP_NONE = "cleanup-none"
    CLEANUP_FAIL = "cleanup-fail"
    CHILDREN_COMPLETE = "children-complete"
    CHILDREN_NONE = "children-none"
    RC3_SUCCESS = "rc3-success"
    RC3_NONE = "rc3-none"
    RC3_FAIL = "rc3-fail"
    GOODBYE = "goodbye"
    BUILTINS_DONE = "builtins-done"
    BUILTINS_UNLOAD_FAIL = "builtins-unload-fail"


S, E = State, Event

TRANSITIONS: Mapping[State, Mapping[Event, State]] = {
    S.LOAD_BUILTINS: {
        E.BUILTINS_SUCCESS: S.JOIN,
        E.BUILTINS_FAIL: S.UNLOAD_BUILTINS,
    },
    S.JOIN: {
        E.PARENT_READY: S.CONFIG_SYNC,
        E.PARENT_NONE: S.CONFIG_SYNC,
        E.PARENT_FAIL: S.SHUTDOWN,
    },
    S.CONFIG_SYNC: {
        E.SYNC_SUCCESS: S.INIT,
        E.SYNC_NONE: S.INIT,
        E.SYNC_FAIL: S.SHUTDOWN,
    },
    S.INIT: {
        E.RC1_SUCCESS: S.QUORUM,
        E.RC1_NONE: S.QUORUM,
        E.RC1_IGNOREFAIL: S.QUORUM,
        E.RC1_FAIL: S.SHUTDOWN,
        E.PANIC: S.SHUTDOWN,
    },
    S.QUORUM: {
        E.QUORUM_FULL: S.RUN,
        E.QUORUM_FAIL: S.SHUTDOWN,
        E.PANIC: S.SHUTDOWN,
    },
    S.RUN: {
        E.RC2_SUCCESS: S.CLEANUP,
        E.RC2_FAIL: S.CLEANUP,
        E.SHUTDOWN: S.CLEANUP,
        E.PARENT_FAIL: S.CLEANUP,
        E.PANIC: S.SHUTDOWN,
    },
    S.CLEANUP: {
        E.CLEANUP_SUCCESS: S.SHUTDOWN,
        E.CLEANUP_NONE: S.SHUTDOWN,
        E.CLEANUP_FAIL: S.SHUTDOWN,
    },
    S.SHUTDOWN: {
        E.CHILDREN_COMPLETE: S.FINALIZE,
        E.CHILDREN_NONE: S.FINALIZE,
    },
    S.FINALIZE: {
        E.RC3_SUCCESS: S.GOODBYE,
        E.RC3_NONE: S.GOODBYE,
        E.RC3_FAIL: S.GOODBYE,
    },
    S.GOODBYE: {
        E.GOODBYE: S.UNLOAD_BUILTINS,
    },
    S.UNLOAD_BUILTINS: {
        E.BUILTINS_DONE: S.EXIT,
        E.BUILTINS_UNLOAD_FAIL: S.EXIT,
    },
    S.EXIT: {},
}

# Where a stop has begun: nothing leads back from here.
STOPPING = frozenset({S.CLEANUP, S.SHUTDOWN, S.FINALIZE, S.GOODBYE, S.UNLOAD_BUILTINS, S.EXIT})

Fire = Callable[[State, Event], State | None]


def compiled() -> Fire:
    """The table as one dict of pairs: 15 million events a second."""
    table = {(state, event): new for state, row in TRANSITIONS.items() for event, new in row.items()}
    get = table.get

    def fire(state: State, event: Event) -> State | None:
        return get((state, event))

    return fire


def machine() -> Machine:
    """The table as a `transitions` Machine without callbacks; also what draws the diagrams."""
    from transitions import Machine

    return Machine(
        model=None,
        states=[str(state) for state in State],
        transitions=[
            {"trigger": str(event), "source": str(state), "dest": str(new)}
            for state, row in TRANSITIONS.items()
            for event, new in row.items()
        ],
        initial=str(State.LOAD_BUILTINS),
        auto_transitions=False,
        ignore_invalid_triggers=True,
    )


class _Walker:
    """What the Machine moves."""

    state: str
    trigger: Callable[[str], bool]


def machine_fire() -> Fire:
    """`fire` with the `transitions` Machine behind it, as live brokers use it."""
    walked, walker = machine(), _Walker()
    walked.add_model(walker)

    def fire(state: State, event: Event) -> State | None:
        if walker.state != state:
            walked.set_state(str(state), walker)
        return State(walker.state) if walker.trigger(str(event)) else None

    return fire
