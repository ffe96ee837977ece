"""How a service has ended, in one line: from what systemd tells its ExecStopPost, and from the journal of that life.

systemd's words are those of systemd.exec(5), $SERVICE_RESULT: SYSTEMD.md 55–60 say which hook sees what.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from brokerctl.durations import as_short
from brokerctl.model.words import signal_name
from brokerctl.records import Ended
from brokerctl.stop.errands import printable
from brokerctl.stop.journal import Entry
from brokerctl.stop.story import Story, story

LINE_MAX = 400
ERR, INFO = 3, 6
# Of `brokerctl stop` (docs/wrapper.md).
_CODES = {
    "3": ", of brokerctl stop: a bound was broken, or a rank was shed",
    "70": ", of brokerctl stop: a bug",
    "75": ", of brokerctl stop: systemd told it to end",
}
# What systemd calls its limits, and how its own line about one begins or what is in it.
_LIMITS = {
    "timeout": "timed out",
    "watchdog": "Watchdog timeout",
    "oom-kill": "OOM killer",
    "protocol": "protocol",
    "start-limit-hit": "repeated too quickly",
    "resources": "",
    "exec-condition": "",
}
_RESULTS = {
    "timeout": "systemd's time was over",
    "watchdog": "the watchdog was not fed in time",
    "oom-kill": "the kernel's OOM killer took a process of it",
    "protocol": "it ended before it was ready",
    "start-limit-hit": "it was started too often",
    "resources": "systemd could not set it up",
    "exec-condition": "its ExecCondition did not hold: it was not started",
}


class Ending(NamedTuple):
    """`$SERVICE_RESULT`, `$EXIT_CODE` (exited, killed, dumped; "" if main never ran), `$EXIT_STATUS`."""

    result: str
    code: str
    status: str


class Verdict(NamedTuple):
    """The line, its level (syslog(3)), and whether a failure was hidden that the unit should show."""

    level: int
    text: str
    hidden: bool = False


def ending(environment: Mapping[str, str]) -> Ending:
    """From the environment of a hook."""
    return Ending(*(environment.get(name, "") for name in ("SERVICE_RESULT", "EXIT_CODE", "EXIT_STATUS")))


def verdict(end: Ending, entries: Sequence[Entry]) -> Verdict:
    """The one line."""
    told = story(entries)
    if end.result == "success":
        found = _success(end, told, starting=_never_ready(entries))
    elif end.result == "exit-code":
        found = Verdict(ERR, f"failed: {_exit_code(end, told, _hook(entries))}")
    elif end.result in {"signal", "core-dump"}:
        found = Verdict(ERR, f"failed: main was {_death(end)}{_during(told)}{_by_whom(end, told)}")
    else:
        found = Verdict(INFO if end.result == "exec-condition" else ERR, _limit(end, told, entries))
    text = printable(f"{found.text}{_saved(end, told)}")
    return found._replace(text=text if len(text) <= LINE_MAX else f"{text[: LINE_MAX - 1]}…")


# ---- a success for systemd


def _success(end: Ending, told: Story, *, starting: bool) -> Verdict:
    if not end.code:
        return Verdict(INFO, "ended before its main process was started")
    if starting and not told.early:
        # There is no ExecStop then, and SIGTERM at once (SYSTEMD.md 61); what ends by itself is no success (58).
        return Verdict(INFO, f"stopped as asked before it was ready: main {_outcome(end)}")
    if end.code != "exited":
        # TERM, HUP, INT and PIPE count as clean deaths (SYSTEMD.md 13): so ends what has no lifecycle.
        return Verdict(INFO, f"stopped: main was {_death(end)}")
    failed = hidden_failure(told)
    how = _asked(end, told)
    if failed and end.status != "0":
        return Verdict(ERR, f"{how}, but exit {end.status} hides that {failed}", hidden=True)
    return Verdict(INFO, f"{how}: exit {end.status}")


def _never_ready(entries: Sequence[Entry]) -> bool:
    """The manager's start job has begun, and was not done when the stop came."""
    said = [one.text for one in entries if one.who == "systemd"]
    return any(text.startswith("Starting ") for text in said) and not any(
        text.startswith(("Started ", "Finished ")) for text in said
    )


def hidden_failure(told: Story) -> str:
    """What failed in a life whose exit code the unit counts as a success (FLUX.md 39, 109); "" if nothing did."""
    if told.event("rc1-fail") and not told.signals:
        return _why(told, "rc1") or "its rc1 failed"
    if not told.ran:
        return ""  # nothing had been started that rc3 could end, so it may fail (FLUX.md 94, 95)
    if told.failures("cleanup") or told.event("cleanup-fail"):
        return _cleanup(told)
    if told.failures("rc3") or told.event("rc3-fail"):
        return _why(told, "rc3") or "its rc3 failed"
    return ""


def _asked(end: Ending, told: Story) -> str:
    if told.early and told.signals:
        return f"stopped as asked while it was starting (in {told.early})"
    if told.event("rc1-fail"):
        return "could not be started"
    if told.signals:
        return f"stopped as asked ({signal_name(told.signals[0])})"
    if told.stopping and told.rank:
        return "stopped by its leader"
    if told.stopping:
        return "stopped as asked by `flux shutdown`" + (", it stays down" if end.status == "42" else "")
    return "ended by itself"


# ---- an exit code that is a failure


def _exit_code(end: Ending, told: Story, hook: str) -> str:
    if not end.code:
        return "a command of the unit failed before its main process was started"
    if end.code != "exited" or end.status == "0":
        # First failure wins (SYSTEMD.md 17): main is not to blame.
        return f"a hook of the unit failed{hook}; main {_outcome(end)}"
    number = f"exit {end.status}"
    if told.rank and told.early == "join":
        return f"{number}: a follower stopped before it had joined; its rc3 can't succeed then"
    return f"{number}{_reason(told)}{f'; a hook failed, too{hook}' if hook else ''}"


def _hook(entries: Sequence[Entry]) -> str:
    """What systemd says of a hook that failed (`ExecStop=` and others), and what a code of `brokerctl stop` means."""
    said = (one.text.partition("Control process exited, ")[2] for one in entries if one.who == "systemd")
    found = next((text for text in said if text), "").partition("status=")[2]
    code = found.partition("/")[0]
    return f" (status {code}{_CODES.get(code, '')})" if found else ""


def _reason(told: Story) -> str:
    """What a broker's own exit code came of, in Flux's order (FLUX.md 38)."""
    cleanup = _cleanup(told) if told.failures("cleanup") or told.event("cleanup-fail") else ""
    if why := _why(told, "rc1") or _why(told, "rc2") or cleanup or _why(told, "rc3"):
        return f": {why}"
    if told.event("parent-fail"):
        return ": its parent was lost, or has sent it away"
    return _during(told) + (f"; last error: {told.errors[-1]}" if told.errors else "")


def _why(told: Story, name: str) -> str:
    first = next(iter(told.failures(name)), None)
    if first is None:
        return ""
    return f"{_shown(first)} was cut off, by a signal" if first.how == "Hangup" else f"{_shown(first)} failed"


def _shown(one: Ended) -> str:
    return f"{one.run} ({one.command}: {one.how}, rc={one.rc}, {as_short(one.held_ns)})"


def _cleanup(told: Story) -> str:
    first = next(iter(told.failures("cleanup")), None)
    if first is None:
        return "its cleanup failed"
    if first.how != "Hangup":
        return f"{_shown(first)} failed"
    second = "a second signal" if len(told.signals) > 1 else "the cleanup timeout"
    return f"{_shown(first)} was cut off, by {second}"


# ---- deaths and limits


def _death(end: Ending) -> str:
    return f"killed by SIG{end.status}" + (", and dumped core" if end.code == "dumped" else "")


def _outcome(end: Ending) -> str:
    return f"exited {end.status}" if end.code == "exited" else f"was {_death(end)}" if end.code else "never ran"


def _during(told: Story) -> str:
    return f" in {told.state}" if told.state else ""


def _by_whom(end: Ending, told: Story) -> str:
    if end.code == "dumped" or end.status in {"SEGV", "ABRT", "BUS", "FPE", "ILL"}:
        return "; it crashed: `coredumpctl info`"
    if end.status == "KILL" and not told.stopping:
        return "; not by systemd: `kill -9`, or the kernel (`journalctl -k | grep -i oom`)"
    return ""


def _limit(end: Ending, told: Story, entries: Sequence[Entry]) -> str:
    text = _RESULTS.get(end.result, f"systemd says {end.result}")
    sign = _LIMITS.get(end.result, "")
    said = next((one.text for one in reversed(entries) if sign and one.who == "systemd" and sign in one.text), "")
    text = f"failed: {text}" if end.result != "exec-condition" else text
    if said:
        text += f' ("{said.partition(": ")[2] or said}")'
    return f"{text}{_during(told)}" + (f"; main {_outcome(end)}" if end.code else "")


def _saved(end: Ending, told: Story) -> str:
    """What became of the state: told of a leader that had something to save."""
    if told.rank or not told.ran:
        return ""
    cut = bool(told.failures("rc3"))
    if told.rc3 and not cut:
        return f"; state saved: {told.dump}" if told.dump else ""
    # A journal that lags behind proves nothing: it takes a failed rc3, or a broker that could not come to its end.
    if not cut and end.code not in {"killed", "dumped"}:
        return ""
    if told.dump:
        return f"; NO DUMP: {told.dump} was not finished"
    return "; NO DUMP: what changed since the last checkpoint may be lost"
