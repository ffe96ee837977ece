"""Whether a real Flux can be made to act a scenario out, and why not.

What a scenario calls `flux …` is Flux's own command there. Everything else is acted out by puppets, as in the live
world. What only the model has (a policy of its own, plugins that hold jobs, broken links) no Flux can be asked for.
"""

from __future__ import annotations

import shutil
from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from brokerctl import config
from brokerctl.durations import S, as_text
from brokerctl.model.tree import kary
from brokerctl.records import Asked
from brokerctl.worlds.contract import Deliver, Fault
from brokerctl.worlds.flux import kept
from brokerctl.worlds.puppets import FOREVER

if TYPE_CHECKING:
    from brokerctl.settings import Action, Settings
    from brokerctl.worlds.contract import Resolved

RC1, RC3 = "flux modprobe rc1", "flux modprobe rc3"
OWN = "flux "
# What `flux modprobe rc1` puts on the list, in the order in which it runs (FLUX.md 15).
STANDARD = (
    "flux queue stop --quiet --all --nocheckpoint",
    "flux resource acquire-mute",
    "flux cancel --user=all --quiet --states RUN",
    "flux queue idle --quiet",
)
# What the stage can tell a Flux; each other setting must be as it is there.
SETTABLE = frozenset(
    {
        "rc1", "rc2", "cleanup", "rc3", "cleanup_timeout_ns", "shutdown_timeout_ns", "quorum", "quorum_warn_ns",
        "shutdown_warn_ns", "checkpoint_period_ns", "exit_norestart", "sd_notify", "sd_stop_timeout_ns", "cores",
        "prolog", "epilog", "housekeeping", "exec_kill_timeout_ns", "heartbeat_timeout_ns", "torpid_max_ns",
    }
)  # fmt: skip
# The model's own: a Flux has its measures of these.
_MEASURES = frozenset({"online_batch_ns", "unload_takes_ns"})
TORPID_MIN_NS = 5 * S  # the default of tbon.torpid_min: how long a child waits with a sign of life
RANKS_MAX = 64  # each is a process of 14 MB, and its rc1 and rc3 are several of Python (FLUX.md J)
SHOWN = 3
_DEEDS = frozenset({"shutdown", "disconnect", "cleanup-push", "submit", "cancel", "post-event", "housekeeping-kill"})


def unfit(scenario: Resolved) -> str:
    """Why a real Flux can't act it out here, in a few words; nothing if it can."""
    settings = scenario.settings
    if shutil.which("flux") is None:
        return "no `flux` on PATH"
    foreign = _foreign(settings)
    if foreign:
        more = f" and {len(foreign) - SHOWN} more" if len(foreign) > SHOWN else ""
        return f"a Flux has no setting for {', '.join(foreign[:SHOWN])}{more}"
    if len(scenario.topology.parents) > RANKS_MAX:
        return f"world flux runs at most {RANKS_MAX} brokers"
    if fanout(scenario.topology.parents) is None:
        return "the tree is neither kary nor flat"
    return _limits(settings) or _lists(settings) or _puppets(scenario) or _modules(scenario) or _deeds(scenario)


def _foreign(settings: Settings) -> list[str]:
    """The settings that are not as Flux has them, and that it can't be told; those that are attributes, as such."""
    mine, flux = msgspec.structs.asdict(settings), msgspec.structs.asdict(config.FLUX)
    told = {attribute.field: name for name, attribute in config.ATTRIBUTES.items()}
    foreign = [name for name in mine if mine[name] != flux[name] and name not in SETTABLE | _MEASURES]
    return sorted(told.get(name, name) for name in foreign)


def fanout(parents: tuple[int, ...]) -> int | None:
    """The K of a `kary:K` tree; None where it is none."""
    wide = max(Counter(parents[1:]).values(), default=1)
    return wide if tuple(parents) == tuple(kary(len(parents), wide)) else None


def _limits(settings: Settings) -> str:
    """Flux's own checks of what it is configured with."""
    beats_ns, torpid_ns = settings.heartbeat_timeout_ns, settings.torpid_max_ns
    if beats_ns and beats_ns < 2 * settings.heartbeat_period_ns:
        return f"a Flux has no heartbeat.timeout below {as_text(2 * settings.heartbeat_period_ns)}"
    if torpid_ns and torpid_ns <= TORPID_MIN_NS:
        return f"a Flux has a tbon.torpid_max of more than {as_text(TORPID_MIN_NS)}"
    return ""


def _lists(settings: Settings) -> str:
    for name in ("rc1", "rc3"):
        if len(getattr(settings, name)) > 1:
            return f"a Flux has one {name}, not {len(getattr(settings, name))}"
    actions: tuple[Action, ...] = (*settings.rc1, *settings.rc2, *settings.cleanup, *settings.rc3)
    if any(action.essential or action.timeout_ns is not None or action.ranks for action in actions):
        return "actions of a Flux have no timeout, no ranks, and none is essential"
    return ""


def _puppets(scenario: Resolved) -> str:
    settings = scenario.settings
    listed = {action.command.puppet for action in (*settings.rc1, *settings.cleanup, *settings.rc3)}
    for spec in scenario.puppets.values():
        if not spec.command.startswith(OWN):
            if spec.asks:
                return f"puppet {spec.name} asks a broker of ours for {spec.asks[0]}"
            continue
        if spec.name not in listed:
            return f"puppet {spec.name}: `{spec.command}` is run by a shell; expected it as rc1, cleanup or rc3"
        if any(spec.statuses.values()) or spec.prints or spec.leaves or FOREVER in spec.runs.values():
            return f"puppet {spec.name}: Flux's own `{spec.command}` does not do that"
    return _start_errors(scenario)


def _start_errors(scenario: Resolved) -> str:
    settings = scenario.settings
    rc2 = {action.command.puppet for action in settings.rc2}
    scripts = {one.command.puppet for one in (settings.prolog, settings.epilog, settings.housekeeping) if one}
    for spec in scenario.puppets.values():
        if spec.start_errno and spec.name not in rc2 | scripts:
            return f"puppet {spec.name}: a shell starts it, and says in words of its own why it can't"
        if spec.start_errno and spec.name in rc2 and pushed(settings):
            return f"puppet {spec.name}: cleanup actions are pushed by the rc2, and this one can't be started"
    return ""


def _modules(scenario: Resolved) -> str:
    if has_modules(scenario):
        for name, text in (("rc1", RC1), ("rc3", RC3)):
            actions = getattr(scenario.settings, name)
            if actions and actions[0].command.text != text:
                return f"jobs and commands of Flux need its modules; expected `{text}` as {name}, or none"
    return ""


def pushed(settings: Settings) -> tuple[Action, ...]:
    """The cleanup actions before Flux's own; all of them, where those are not there."""
    texts = tuple(action.command.text for action in settings.cleanup)
    own = texts[-len(STANDARD) :] == STANDARD
    return settings.cleanup[: -len(STANDARD)] if own else settings.cleanup


def has_modules(scenario: Resolved) -> bool:
    """Whether Flux's modules must be loaded; without them, brokers are quicker to start, and know no job.

    A scenario need not speak of the rc1 and rc3 that load and unload them. Who has them, has them in later lives too.
    """
    settings = scenario.settings
    scripts = (settings.prolog, settings.epilog, settings.housekeeping)
    own = any(spec.command.startswith(OWN) for spec in scenario.puppets.values())
    earlier = kept.KEY in scenario.restored
    return own or earlier or "jobs" in scenario.needs or any(script is not None for script in scripts)


def _deeds(scenario: Resolved) -> str:
    modules = has_modules(scenario)
    for step in scenario.steps:
        match step.deed:
            case Deliver(_, Asked(what=what)) if what not in _DEEDS:
                return f"nobody can ask a Flux for {what}"
            case Fault(kind) if kind == "cut":
                return "nothing cuts a link between brokers of a Flux"
            case Fault(kind) if kind == "crash" and not modules:
                return "losses are noticed by heartbeats, which are one of Flux's modules"
    return ""
