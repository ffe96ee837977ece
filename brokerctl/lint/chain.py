"""The chain: every limit inside a stop against the limit around it; who is cut off first, and what is lost then.

systemd's clock is one deadline a state of the unit: TimeoutStopSec from its beginning, and from each message of the
broker the extension that it asks for, whichever is later (SYSTEMD.md 26–29, 38). So a phase fits if the clock that
began with the stop is not over before it, at the worst, or if the phase is no longer than its extension.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from brokerctl.durations import MINUTE, as_short
from brokerctl.lint.fluxconfig import KILL_TIMEOUT_NS
from brokerctl.lint.subject import Subject
from brokerctl.model import bounds
from brokerctl.model.lifecycle import State
from brokerctl.unit.broker import Broker
from brokerctl.unit.invocations import Invocation
from brokerctl.unit.syntax import Place

Verdict = Literal["fits", "open", "cut"]
# How long reboot.target and poweroff.target wait before they use force (systemd.special(7)).
REBOOT_NS = 30 * MINUTE

_NO_DUMP = "rc3 does not run: no dump, and running jobs are forgotten"
_NOTHING = "nothing: the state is saved"
# The SIGTERM that follows aborts one cleanup action, and the stop goes on (FLUX.md 29, 31).
_REQUESTED = "what is left of cleanup; the SIGTERM may hit rc3"
# The phases of a leader's stop that may last (it says goodbye to nobody): the attribute that limits each, and what is
# lost where it is cut off.
_PHASES = (
    (State.CLEANUP, "broker.cleanup-timeout", _NO_DUMP),
    (State.SHUTDOWN, "broker.shutdown-timeout", _NO_DUMP),
    (State.FINALIZE, "broker.finalize-timeout", "what rc3 had not saved yet"),
    (State.UNLOAD_BUILTINS, "", _NOTHING),
)


class Row(msgspec.Struct, frozen=True):
    """One phase. None is no limit; `over_ns` is when the phase can be over since the stop began.

    `fits`: the inner limit acts first. `cut`: the outer one does. `open`: nothing inside ends the phase, and what is
    outside does only if it makes no progress.
    """

    phase: str
    inner_ns: int | None
    inner: str
    outer_ns: int | None
    outer: str
    verdict: Verdict
    lost: str
    at: Place
    over_ns: int | None = None

    @property
    def harmless(self) -> bool:
        """Whether nothing is lost with the phase."""
        return self.lost == _NOTHING

    @property
    def first(self) -> str:
        """Who acts first, and how."""
        return self.inner if self.verdict == "fits" else self.outer


def rows(unit: Subject) -> list[Row]:
    """The chain of a unit, in the order of its life."""
    found = list(_starting(unit))
    broker = unit.broker
    if broker is not None:
        found += _Stop(unit, broker).rows()
    elif unit.role:
        found += _script(unit)
    found += _ending(unit)
    return found


def row(unit: Subject, phase: str) -> Row | None:
    """The row of one phase."""
    return next((each for each in rows(unit) if each.phase == phase), None)


def cut(unit: Subject, phase: str) -> Row | None:
    """The row of a phase that is cut off; not where the fault is that one before it has no limit."""
    found = row(unit, phase)
    if found is None or found.verdict != "cut" or (found.inner_ns is not None and found.over_ns is None):
        return None
    return found


def mend(unit: Subject, row: Row) -> str:
    """What to write that keeps the phase from being cut off, in whole minutes; nothing where it has no limit itself."""
    if row.over_ns is None:
        return ""
    over_ns = max(each.over_ns or 0 for each in rows(unit) if not each.harmless)
    return f"set TimeoutStopSec={-(-over_ns // MINUTE)}min or more, or lower {row.inner}"


def told(row: Row) -> str:
    """A row that is cut off, as a finding says it."""
    limit = "has no limit" if row.inner_ns is None else f"may take {as_short(row.inner_ns)}"
    by, _, how = row.outer.partition(": ")
    when = f"after {as_short(row.outer_ns)}" if row.outer_ns else "before it begins"
    return f"{row.phase} {limit}, but {by} is over {when}: {how}; {row.lost}"


def _verdict(inner_ns: int | None, outer_ns: int | None) -> Verdict:
    if outer_ns is None:
        return "open" if inner_ns is None else "fits"
    return "fits" if inner_ns is not None and inner_ns <= outer_ns else "cut"


def _who(limit_ns: int | None, text: str, nobody: str = "nobody") -> str:
    """Who ends it, where there is a limit at all."""
    return nobody if limit_ns is None else text


def _starting(unit: Subject) -> Iterator[Row]:
    record = unit.settings_record
    at = _at(unit, "TimeoutStartSec", "TimeoutSec")
    if record.type == "notify":
        inner = "READY=1, before rc1" if unit.broker else "READY=1"
        outer = _who(record.timeout_start_ns, "TimeoutStartSec: SIGTERM")
        yield Row("start", None, inner, record.timeout_start_ns, outer, "open", "the start", at)
    if record.watchdog_ns:
        at = _at(unit, "WatchdogSec")
        yield Row("run", None, "WATCHDOG=1", record.watchdog_ns, "WatchdogSec: SIGABRT", "open", "all of the stop", at)


class _Stop:
    """The phases of a broker's stop, each under the clock of the state that the unit is in."""

    def __init__(self, unit: Subject, broker: Broker) -> None:
        self.unit = unit
        self.broker = broker
        self.limit_ns = unit.stop_limit_ns
        self.wrapped = unit.wrapper() is not None
        self.stop = unit.stop
        self.requested = any(is_request(each) for _, each in unit.stops())
        self.passed_ns: int | None = 0  # at most, since the state of the unit began; None is without end

    def rows(self) -> Iterator[Row]:
        if self.wrapped:
            yield self._row("asking", bounds.stop_asking_ns(self.stop), "ask-patience", _NO_DUMP, 0)
            yield self._row("site actions", bounds.stop_actions_ns(self.stop), "actions-timeout", _NO_DUMP, 0)
        settings, tree = self.broker.settings, self.broker.tree
        for state, attribute, lost in _PHASES:
            inner_ns = bounds.state_ns(state, settings, tree, 0, signalled=not self.requested)
            if self.wrapped and state is State.CLEANUP:
                inner_ns = bounds.stop_cleanup_ns(self.stop, settings.cleanup_timeout_ns)
            really = _REQUESTED if self.requested and state is State.CLEANUP else lost
            yield self._row(state, inner_ns, attribute, really, self._extension_ns(state, inner_ns))

    def _extension_ns(self, state: State, bound_ns: int | None) -> int | None:
        """How much longer messages to systemd make this phase; None is as long as it makes progress."""
        settings = self.broker.settings
        if self.wrapped and state is State.FINALIZE:
            return None
        if not accepts_messages(self.unit) or not settings.sd_notify:
            return 0
        return (bound_ns or 0) if settings.extend_to_bound else (settings.sd_stop_timeout_ns or 0)

    def _row(self, phase: str, inner_ns: int | None, limit: str, lost: str, extension_ns: int | None) -> Row:
        outer_ns: int | None = None
        outer = "nobody, while it makes progress"
        if self.limit_ns is None:
            outer = "nobody"
        elif extension_ns is not None:
            left_ns = 0 if self.passed_ns is None else max(0, self.limit_ns - self.passed_ns)
            outer_ns = max(left_ns, extension_ns)
            by = "TimeoutStopSec" if left_ns >= extension_ns else "the broker's extension"
            outer = f"{by}: {'SIGTERM, SIGKILL' if self.wrapped or self.requested else 'SIGKILL'}"
        verdict = _verdict(inner_ns, outer_ns)
        if phase == State.FINALIZE and inner_ns is None:
            # rc3 and its dump extend the deadline as they go on (FLUX.md 97).
            verdict = "open"
        if self.passed_ns is not None:
            self.passed_ns = None if inner_ns is None else self.passed_ns + inner_ns
        inner = (limit or "the broker's own") if inner_ns is not None else "nothing"
        return Row(phase, inner_ns, inner, outer_ns, outer, verdict, lost, self.broker.at(limit), self.passed_ns)


def _script(unit: Subject) -> Iterator[Row]:
    """Prolog, epilog and housekeeping: Flux ends the helper, the helper the unit."""
    record = unit.settings_record
    script = unit.flux.script(unit.role) if unit.flux else None
    at = _at(unit, "TimeoutStartSec", "TimeoutSec")
    timeout_ns = script.timeout_ns if script else None
    known = f"{unit.role}.timeout" if timeout_ns is not None else "nothing that is known"
    verdict = "open" if timeout_ns is None else _verdict(timeout_ns, record.timeout_start_ns)
    lost = "the script's own end: it fails by timeout, and the node is drained"
    outer = _who(record.timeout_start_ns, "TimeoutStartSec: SIGTERM")
    yield Row(unit.role, timeout_ns, known, record.timeout_start_ns, outer, verdict, lost, at)
    if unit.role == "housekeeping":
        return
    kill_ns = script.kill_timeout_ns if script else KILL_TIMEOUT_NS
    limit_ns = record.timeout_stop_ns
    end_ns = None if limit_ns is None else limit_ns + bounds.SLACK_NS
    inner, outer = _who(end_ns, "TimeoutStopSec: SIGKILL", "nothing"), f"Flux: {unit.role}.kill-timeout"
    lost = "the wait for it: its node is drained while it is still being stopped"
    at = _at(unit, "TimeoutStopSec", "TimeoutSec")
    verdict = _verdict(end_ns, kill_ns)
    yield Row(f"end of a canceled {unit.role}", end_ns, inner, kill_ns, outer, verdict, lost, at)


def _ending(unit: Subject) -> Iterator[Row]:
    """What follows a stop that its limit has cut off, and the reboot that waits for it all."""
    record = unit.settings_record
    limit_ns = record.timeout_stop_ns
    at = _at(unit, "TimeoutStopSec", "TimeoutSec")
    if record.exec_stop:
        outer = _who(limit_ns, "TimeoutStopSec: SIGKILL")
        yield Row("stop-sigterm", None, "main's own", limit_ns, outer, "open", "what main had not saved", at)
    if record.exec_stop_post:
        outer = _who(limit_ns, "TimeoutStopSec: SIGTERM, SIGKILL")
        yield Row("stop-post", None, "its own", limit_ns, outer, "open", "its report", at)
    if unit.broker is not None or record.exec_stop:
        inner, outer = _who(limit_ns, "TimeoutStopSec", "nothing"), "JobTimeoutSec of reboot.target: force"
        lost = "what was not saved, of every service"
        yield Row("reboot", limit_ns, inner, REBOOT_NS, outer, _verdict(limit_ns, REBOOT_NS), lost, at)


def accepts_messages(unit: Subject) -> bool:
    """Whether systemd listens to the main process."""
    return unit.settings_record.notify_access != "none"


def is_request(each: Invocation) -> bool:
    """Whether it asks for a stop that no cleanup-timeout applies to: `flux shutdown` (FLUX.md 34)."""
    words = each.arguments if each.name == "flux" else each.brokerctl() or ()
    return words[:1] == ("shutdown",)


def _at(unit: Subject, *keys: str) -> Place:
    found = next((setting for key in keys if (setting := unit.last(key)) is not None), None)
    return found.place() if found else unit.start()
