"""How long each state of a stop may last: the one place that adds timeouts.

The lifecycle arms its timers from here, EXTEND_TIMEOUT_USEC covers what is said here, `worst_case` is what a unit's
TimeoutStopSec must exceed, and the invariant "bounds held" checks it. A bound includes `SLACK_NS`, the time that a
world may take to notice; None is no promise. docs/lifecycle.md has the table.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from brokerctl.durations import S
from brokerctl.model.lifecycle import State

if TYPE_CHECKING:
    from brokerctl.model.tree import Tree
    from brokerctl.settings import Action, Settings, StopSettings

# A loaded machine wakes a process up late: 1 s is 50 times the p99 that `make bench` measures with 4 CPU hogs.
SLACK_NS = 1 * S
# Answers of other ranks need their way up the tree after their ladders have ended.
REMOTE_SLACK_NS = 2 * S


def _sum(parts: Iterable[int | None]) -> int | None:
    total = 0
    for part in parts:
        if part is None:
            return None
        total += part
    return total


def _least(*limits: int | None) -> int | None:
    return min((limit for limit in limits if limit is not None), default=None)


def ladder_ns(settings: Settings | StopSettings) -> int | None:
    """How long the end of one action by force may take."""
    return _sum(rung.wait_ns for rung in settings.ladder)


def slice_ns(action: Action, settings: Settings | StopSettings) -> int:
    """The time reserved for an essential action after its list was aborted."""
    return settings.essential_timeout_ns if action.timeout_ns is None else action.timeout_ns


def _list_ns(actions: tuple[Action, ...], settings: Settings | StopSettings, budget_ns: int | None) -> int | None:
    """A list's bound: its budget, a ladder, and the slices of essential ones; or the actions' own timeouts."""
    ladder = ladder_ns(settings)
    if ladder is None:
        return None
    if any(action.ranks for action in actions):
        ladder += REMOTE_SLACK_NS
    grace_ns = settings.output_grace_ns
    own = _sum(_sum((action.timeout_ns, ladder, grace_ns)) for action in actions)
    if budget_ns is None:
        return own
    reserved = sum(slice_ns(action, settings) + ladder for action in actions if action.essential)
    return _least(own, budget_ns + ladder + reserved)


def cleanup_ns(settings: Settings, *, signalled: bool) -> int | None:
    """CLEANUP, from its entry or from the signal that came later. A request waits for ever (FLUX.md 34)."""
    actions = (*(worker.stop_action() for worker in settings.workers), *settings.cleanup)
    if not actions:
        return SLACK_NS
    budget_ns = settings.cleanup_timeout_ns if signalled else None
    return _sum((_list_ns(actions, settings, budget_ns), SLACK_NS))


def finalize_budget_ns(settings: Settings, tree: Tree, rank: int) -> int | None:
    """rc3's budget on this rank. Under a shutdown-timeout, a follower's fits into its level's share of it.

    At least half of the share is always rc3's own: what it saves comes before the order of the levels.
    """
    timeout_ns, slack_ns, budget_ns = (
        settings.shutdown_timeout_ns,
        settings.shutdown_slack_ns,
        settings.finalize_timeout_ns,
    )
    if rank == 0 or timeout_ns is None or slack_ns is None:
        return budget_ns
    share_ns = timeout_ns // (tree.heights[0] + 1)
    return _least(budget_ns, max(share_ns // 2, share_ns - slack_ns - (ladder_ns(settings) or 0)))


def finalize_ns(settings: Settings, tree: Tree, rank: int, *, bounded: bool) -> int | None:
    """FINALIZE: rc3 writes what must not be lost; a request waits for the leader's for ever."""
    if not settings.rc3:
        return SLACK_NS
    budget_ns = finalize_budget_ns(settings, tree, rank) if bounded else None
    return _sum((_list_ns(settings.rc3, settings, budget_ns), SLACK_NS))


def shutdown_ns(settings: Settings, tree: Tree, rank: int) -> int | None:
    """SHUTDOWN: how long this rank waits for its children; always longer than a child's own SHUTDOWN and FINALIZE.

    With shutdown-timeout set, the leader has it and depth d its share; without, the bounds nest from the leaves up.
    Equal bounds on all levels were measured to break leaves-to-root.
    """
    height = tree.heights[rank]
    if height == 0:
        return 0
    timeout_ns, slack_ns = settings.shutdown_timeout_ns, settings.shutdown_slack_ns
    if slack_ns is None:
        return timeout_ns if rank == 0 else None
    if timeout_ns is not None:
        return timeout_ns - tree.depths[rank] * timeout_ns // (tree.heights[0] + 1)
    level_ns = _sum((finalize_ns(settings, tree, rank, bounded=True), slack_ns))
    return None if level_ns is None else height * level_ns


def state_ns(state: State, settings: Settings, tree: Tree, rank: int, *, signalled: bool) -> int | None:
    """The promised bound of one state of this rank, `SLACK_NS` included; None is no promise."""
    match state:
        case State.CLEANUP:
            return cleanup_ns(settings, signalled=signalled) if rank == 0 else SLACK_NS
        case State.FINALIZE:
            return finalize_ns(settings, tree, rank, bounded=signalled or rank > 0)
        case State.CONFIG_SYNC:
            limit_ns = settings.config_sync_timeout_ns
        case State.SHUTDOWN:
            limit_ns = shutdown_ns(settings, tree, rank)
        case State.GOODBYE:
            limit_ns = settings.goodbye_timeout_ns if rank else 0
        case State.UNLOAD_BUILTINS:
            limit_ns = settings.unload_timeout_ns
        case _:
            limit_ns = None
    return _sum((limit_ns, SLACK_NS))


_STOP = (State.CLEANUP, State.SHUTDOWN, State.FINALIZE, State.GOODBYE, State.UNLOAD_BUILTINS)


def worst_case(settings: Settings, tree: Tree) -> int | None:
    """How long a signal-initiated stop of the leader in RUN may take in all; None is no promise.

    rc2's own end comes first: its ladder, if there is an rc2.
    """
    rc2 = (ladder_ns(settings),) if settings.rc2 else ()
    return _sum((*rc2, *(state_ns(state, settings, tree, 0, signalled=True) for state in _STOP)))


# ---- the wrapper of a stop (`brokerctl stop`), around a main whose limits are its own

# What is left of shutdown-timeout for the shedding itself: a tenth, a second at least.
_SHED_SHARE = 10
_SHED_LEFT_MIN_NS = 1 * S


def stop_asking_ns(stop: StopSettings) -> int:
    """How long main may be asked for its state in vain before it gets its SIGTERM."""
    return stop.ask_patience_ns + stop.ask_timeout_ns + SLACK_NS


def stop_actions_ns(stop: StopSettings) -> int | None:
    """The site's actions, with the second look at main after them."""
    if not stop.actions:
        return 0
    return _sum((_list_ns(stop.actions, stop, stop.actions_timeout_ns), stop_asking_ns(stop)))


def stop_cleanup_ns(stop: StopSettings, cleanup_timeout_ns: int | None) -> int | None:
    """CLEANUP of main, its holders ended; None where it has no timeout."""
    limit_ns = stop.cleanup_timeout_ns if cleanup_timeout_ns is None else cleanup_timeout_ns
    return _sum((limit_ns, stop.holders_after_ns, ladder_ns(stop), SLACK_NS))


def shed_after_ns(stop: StopSettings, shutdown_timeout_ns: int | None) -> int | None:
    """How long ranks may hold SHUTDOWN before they are shed: always less than main's shutdown-timeout, if it has one.

    After that the leader goes on, and the rank stays unlost, with its jobs stuck over every restart (FLUX.md 57, 60).
    """
    after_ns = stop.shed_after_ns
    if after_ns is None or shutdown_timeout_ns is None:
        return after_ns
    return max(0, min(after_ns, shutdown_timeout_ns - max(_SHED_LEFT_MIN_NS, shutdown_timeout_ns // _SHED_SHARE)))


def stop_shutdown_ns(shutdown_timeout_ns: int | None) -> int | None:
    """SHUTDOWN of main: shedding ends most of them earlier, but promised is only what main itself promises."""
    return _sum((shutdown_timeout_ns, SLACK_NS))


def stop_rest_ns(settings: Settings) -> int:
    """GOODBYE and UNLOAD_BUILTINS of main, as Flux bounds them (FLUX.md 37)."""
    return settings.goodbye_timeout_ns + settings.unload_timeout_ns + 2 * SLACK_NS


def stop_worst_case(
    stop: StopSettings, main: Settings, *, cleanup_timeout_ns: int | None, shutdown_timeout_ns: int | None
) -> int | None:
    """All of a stop but FINALIZE, which has no bound: TimeoutStopSec must exceed it (P6). None is no promise."""
    parts = (
        stop_asking_ns(stop),
        stop_actions_ns(stop),
        stop_cleanup_ns(stop, cleanup_timeout_ns),
        stop_shutdown_ns(shutdown_timeout_ns),
        stop_rest_ns(main),
    )
    return _sum(parts)
