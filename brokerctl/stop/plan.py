"""`brokerctl stop --dry-run`: what a stop would do now, how long it may take, and whether the unit's time covers it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from brokerctl import durations
from brokerctl.durations import S, as_short
from brokerctl.errors import BrokerctlError, UsageError
from brokerctl.model import bounds
from brokerctl.model.lifecycle import STOPPING, State
from brokerctl.model.words import signal_name
from brokerctl.records import Answered, Query, QueryFailed
from brokerctl.records.stops import Limits, Look
from brokerctl.settings import Settings, StopSettings
from brokerctl.stop import target
from brokerctl.stop.link import Link
from brokerctl.unit import broker, merge
from brokerctl.worlds.live.loop import Loop

if TYPE_CHECKING:
    from collections.abc import Mapping

    from brokerctl.stop.settings import Configuration
    from brokerctl.stop.target import Aim

_SHOW = (
    "MainPID", "TimeoutStopUSec", "NotifyAccess", "SuccessExitStatus", "KillMode", "FragmentPath", "DropInPaths",
    "LoadState",
)  # fmt: skip
_SHOW_TIMEOUT_S = 5.0
_OURS = (1, 3, 70, 75)
_UNIT = "flux.service"
_WIDTH = 74


def describe(configured: Configuration, unit: str, timeout_stop: str | None, pid: int | None = None) -> list[str]:
    """The plan, line by line; UsageError where the time can't be read, or there is no such unit.

    Without a unit, that of `pid`, else `flux.service`.
    """
    unit = unit or (target.unit_of(pid) if pid is not None else "") or _UNIT
    shown = _shown(unit)
    if shown.get("LoadState") == "not-found" and pid is None and timeout_stop is None:
        raise UsageError(
            f"--unit {unit}: systemd knows no such unit; expected its name, or a --timeout-stop to plan with"
        )
    pid = pid or int(shown.get("MainPID", "0") or 0) or None
    taken = target.take(pid, configured.flux, configured.kind) if pid is not None else None
    lines: list[str] = []
    look: Look | None = None
    if taken is None:
        lines.append(f"{unit}: no main process: a stop would only tell how the service has ended")
    else:
        fd, aim = taken
        os.close(fd)
        look = _looked(aim) if aim.kind != "other" else Look()
        lines.append(f"{unit}: main is {aim.name} (pid {aim.pid}), {_kind(aim)}{_now(aim, look)}")
        if aim.kind == "other":
            return lines + _other_steps(configured.settings) + _against(None, _timeout_ns(timeout_stop, shown))
    limits = look.limits if look is not None else None
    if limits is None:
        limits, told = _configured(unit, shown)
        lines.append(told)
    lines += _steps(configured.settings, limits, look)
    known = limits if limits is not None else Limits(0, 0)
    total_ns = bounds.stop_worst_case(
        configured.settings, Settings(), cleanup_timeout_ns=known.cleanup_timeout_ns,
        shutdown_timeout_ns=known.shutdown_timeout_ns,
    )  # fmt: skip
    against = _against if limits is not None else _without_limits
    return lines + against(total_ns, _timeout_ns(timeout_stop, shown)) + _warnings(shown)


# ---- main


def _shown(unit: str) -> Mapping[str, str]:
    """What systemd says of the unit; nothing where there is no systemd."""
    systemctl = shutil.which("systemctl")
    if systemctl is None:
        return {}
    words = [systemctl, "show", f"--property={','.join(_SHOW)}", "--", unit]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_SHOW_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    return dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)


def _configured(unit: str, shown: Mapping[str, str]) -> tuple[Limits | None, str]:
    """Main's limits as its unit's ExecStart= sets them, None where that can't be told; and a line about it."""
    paths = [Path(path) for path in (shown.get("FragmentPath", ""), *shown.get("DropInPaths", "").split()) if path]
    if not paths:
        why = f"systemd knows no file of {unit}" if shown else "no systemd answers here"
        return None, f"main's limits are not known: {why}"
    try:
        found = broker.find(merge.from_files(unit, paths).commands("ExecStart"))
    except BrokerctlError as error:
        return None, f"main's limits are not known: {error}"
    if found is None:
        return None, "main's limits are not known: its ExecStart= runs no broker"
    limits = Limits(found.settings.cleanup_timeout_ns, found.settings.shutdown_timeout_ns)
    words = [f"{name} {_shown_limit(getattr(limits, f'{name}_timeout_ns'))}" for name in ("cleanup", "shutdown")]
    return limits, f"main's limits, as its ExecStart= has them: {', '.join(words)}"


def _shown_limit(limit_ns: int | None) -> str:
    return "none" if limit_ns is None else as_short(limit_ns)


def _looked(aim: Aim) -> Look | None:
    """Main's answer, as a stop would ask for it; None where it doesn't answer."""
    found: list[Look] = []
    with Loop() as loop:

        def answered(event: Answered | QueryFailed) -> None:
            if isinstance(event, Answered) and isinstance(event.answer, Look):
                found.append(event.answer)
            loop.stop()

        link = Link(loop, aim, answered)
        within_ns = StopSettings().ask_timeout_ns
        loop.after(within_ns, loop.stop)
        try:
            loop.after(0, lambda: link.ask(Query(1, "look", (), within_ns)))
            loop.run()
        finally:
            link.close()
    return found[0] if found else None


def _kind(aim: Aim) -> str:
    return {"flux": "a Flux broker", "brokerctl": "a broker of brokerctl", "other": "a process of its own kind"}[
        aim.kind
    ]


def _now(aim: Aim, look: Look | None) -> str:
    if aim.kind == "other":
        return ""
    if look is None:
        return ", which does not answer"
    rank = f", rank {look.rank} of {look.size}" if look.size > 1 else ""
    return f", in {look.state or 'an unknown state'}{rank}"


# ---- the steps


def _steps(stop: StopSettings, limits: Limits | None, look: Look | None) -> list[str]:
    state = look.state if look is not None else ""
    steps: list[tuple[str, int | None]] = [("ask main for its state", bounds.stop_asking_ns(stop))]
    if state in set(map(str, STOPPING)):
        steps.append((f"join: main is in {state}, a stop is under way; no action is run, nothing is sent", 0))
    else:
        steps += _before(stop, look)
    lines = [_step(text, limit_ns) for text, limit_ns in steps]
    lines += _limited(stop, limits) if limits is not None else ["  cleanup and shutdown: by limits of main's own"]
    patience = as_short(stop.finalize_patience_ns)
    lines.append(f"  finalize: extended while it makes progress, until {patience} without any; nothing is sent")
    lines.append(_step("goodbye and unload", bounds.stop_rest_ns(Settings())))
    return lines


def _limited(stop: StopSettings, limits: Limits) -> list[str]:
    """The states of main's that its own limits are for."""
    steps: list[tuple[str, int | None]] = []
    cleanup_ns = bounds.stop_cleanup_ns(stop, limits.cleanup_timeout_ns)
    timeout_ns = stop.cleanup_timeout_ns if limits.cleanup_timeout_ns is None else limits.cleanup_timeout_ns
    if timeout_ns is None:
        steps.append(("cleanup: main has no cleanup-timeout, and none is configured", None))
    else:
        from_ns = timeout_ns + stop.holders_after_ns
        ladder = ", ".join(signal_name(rung.signum) for rung in stop.ladder)
        text = f"cleanup: main's timeout {as_short(timeout_ns)}; who holds it after {as_short(from_ns)}: {ladder}"
        steps.append((text, cleanup_ns))
    shed_ns = bounds.shed_after_ns(stop, limits.shutdown_timeout_ns)
    shed = "ranks that hold it are not shed" if shed_ns is None else f"who holds it is shed after {as_short(shed_ns)}"
    steps.append((f"shutdown: {shed}", bounds.stop_shutdown_ns(limits.shutdown_timeout_ns)))
    return [_step(text, limit_ns) for text, limit_ns in steps]


def _other_steps(stop: StopSettings) -> list[str]:
    steps = [*_before(stop, Look()), ("wait for its end: it tells nothing of itself", None)]
    return [_step(text, limit_ns) for text, limit_ns in steps]


def _before(stop: StopSettings, look: Look | None) -> list[tuple[str, int | None]]:
    steps: list[tuple[str, int | None]] = []
    if look is not None and look.rank == 0 and look.state in {"", State.RUN}:
        total = len(stop.actions)
        for index, action in enumerate(stop.actions, 1):
            steps.append((f"site action {index}/{total}: {action.command.text}", action.timeout_ns or 0))
        if stop.actions:
            steps.append(("all site actions, cut off ones and another look included", bounds.stop_actions_ns(stop)))
    steps.append(("SIGTERM and SIGCONT to main, once", 0))
    return steps


def _step(text: str, limit_ns: int | None) -> str:
    limit = "no limit" if limit_ns is None else f"at most {as_short(limit_ns)}" if limit_ns else ""
    return f"  {text:<{_WIDTH}}  {limit}".rstrip()


# ---- the unit's time


def _timeout_ns(given: str | None, shown: Mapping[str, str]) -> tuple[int | None, bool]:
    """TimeoutStopSec, None for infinity, and whether it is known at all."""
    if given is not None:
        try:
            return durations.parse(given), True
        except ValueError as error:
            raise UsageError(f"--timeout-stop: {error}") from None
    text = shown.get("TimeoutStopUSec", "")
    if text == "infinity":
        return None, True
    total_ns = _systemd_span(text)
    return total_ns, total_ns is not None


def _systemd_span(text: str) -> int | None:
    """`1min 30s` as `systemctl show` prints it."""
    units = {"us": 1_000, "ms": 1_000_000, "s": S, "min": 60 * S, "h": 3600 * S, "d": 86400 * S, "w": 604_800 * S}
    total_ns = 0
    for word in text.split():
        number = word.rstrip("abcdefghijklmnopqrstuvwxyz")
        unit = units.get(word[len(number) :])
        if unit is None or not number.replace(".", "", 1).isdigit():
            return None
        total_ns += int(float(number) * unit)
    return total_ns if text else None


def _against(worst_ns: int | None, timeout: tuple[int | None, bool]) -> list[str]:
    timeout_ns, known = timeout
    worst = "has no bound" if worst_ns is None else f"takes at most {as_short(worst_ns)}"
    lines = [f"all of it but what saves state {worst}"]
    if not known:
        lines.append("TimeoutStopSec: not known; --timeout-stop T says it")
    elif timeout_ns is None:
        lines.append("TimeoutStopSec=infinity: nothing is ever cut off")
    elif worst_ns is None:
        lines.append(
            f"TimeoutStopSec={as_short(timeout_ns)}: what has no bound is cut off then, with a SIGTERM to main"
        )
    elif timeout_ns > worst_ns:
        left = as_short(timeout_ns - worst_ns)
        lines.append(f"TimeoutStopSec={as_short(timeout_ns)}: covers it; {left} are left for finalize to be seen")
    else:
        lines.append(f"TimeoutStopSec={as_short(timeout_ns)}: TOO SHORT, expected more than {as_short(worst_ns)}")
    return lines


def _without_limits(rest_ns: int | None, timeout: tuple[int | None, bool]) -> list[str]:
    """Where main's limits are not known, so that nobody can say whether the unit's time covers them."""
    if rest_ns is None:
        return _against(None, timeout)
    lines = [f"all of it but main's cleanup, shutdown, and what saves state takes at most {as_short(rest_ns)}"]
    timeout_ns, known = timeout
    if known and timeout_ns is not None:
        left = f"{as_short(timeout_ns - rest_ns)} are left" if timeout_ns > rest_ns else "TOO SHORT, nothing is left"
        lines.append(f"TimeoutStopSec={as_short(timeout_ns)}: {left} for main's cleanup-timeout and shutdown-timeout")
    return lines


def _warnings(shown: Mapping[str, str]) -> list[str]:
    lines = []
    access = shown.get("NotifyAccess")
    if access in {"none", "main"}:
        lines.append(f"NotifyAccess={access}: finalize can't be extended, and no status is told; expected exec or all")
    counted = sorted(set(shown.get("SuccessExitStatus", "").split()).intersection(map(str, _OURS)))
    if counted:
        lines.append(f"SuccessExitStatus={' '.join(counted)}: failures of brokerctl stop would count as success")
    return lines
