"""What a running Flux still carries from an earlier life: jobs, housekeeping, units; found, explained, never changed.

A prolog or epilog that was under way when a broker ended, without a word about its end, holds its job and the job's
nodes for ever: Flux waits for an event that nobody will post any more (FLUX.md 56–61).
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Sequence
from typing import NamedTuple

from brokerctl.durations import S, as_short
from brokerctl.errors import BrokerctlError, ControlError
from brokerctl.kernel.proc import User
from brokerctl.logs import eventlog
from brokerctl.stop import flux
from brokerctl.stop.errands import Command, Errand, Said
from brokerctl.stop.fluxcommand import FluxCommand
from brokerctl.stop.reporting import names, unit_names, units_running

ASK_NS, EVENTLOG_NS = 5 * S, 5 * S
# So many commands at a time: each is a connection to the broker.
AT_ONCE = 16
# What is asked about: enough to see the pattern; the rest is counted.
JOBS_MAX = 1000
# An event's time is the job manager's clock, the broker's start that of its host.
_CLOCK_SLACK_S = 1.0
# A unit that is younger may have been started after Flux had told its jobs: what is typed then would end a good one.
_YOUNG_S = 10.0
_KINDS = ("prolog", "epilog")


class Finding(NamedTuple):
    """One thing that is wrong, in words, and the commands that put it right, one after the other."""

    text: str
    repair: tuple[tuple[str, ...], ...] = ()

    def typed(self, prefix: str = "") -> str:
        """The repair as it is typed, `prefix` before each command of Flux."""
        return " && ".join(f"{prefix if words[0] == 'flux' else ''}{shlex.join(words)}" for words in self.repair)


class Open(NamedTuple):
    """A `prolog-start` or `epilog-start` without its finish."""

    kind: str
    description: str
    at_s: float


def open_actions(entries: Sequence[eventlog.Entry]) -> list[Open]:
    """Those of one job, in their order; a job that is INACTIVE (`clean`) waits for nothing."""
    found: list[Open] = []
    for entry in entries:
        kind, _, what = entry.name.partition("-")
        description = str(entry.context.get("description", ""))
        if entry.name == "clean":
            return []
        if kind in _KINDS and what == "start":
            found.append(Open(kind, description, entry.t_ns / S))
        elif kind in _KINDS and what == "finish":
            first = next((one for one in found if (one.kind, one.description) == (kind, description)), None)
            if first is not None:
                found.remove(first)
    return found


def repair(job: str, one: Open) -> tuple[tuple[str, ...], ...]:
    """What tells Flux the end that it waits for (FLUX.md 61); a job must not start after half a prolog."""
    end = ("flux", "post-job-event", job, f"{one.kind}-finish", f"description={one.description}", "status=0")
    return (("flux", "cancel", job), end) if one.kind == "prolog" else (end,)


def of_job(
    job: str, whose: str, entries: Sequence[eventlog.Entry], now_s: float, since_s: float | None
) -> list[Finding]:
    """The findings about one job: what began before `since_s`, the start of this life; None: whenever it began."""
    found = []
    for one in open_actions(entries):
        if since_s is not None and one.at_s > since_s - _CLOCK_SLACK_S:
            continue
        age = as_short(max(0, round((now_s - one.at_s) * S)))
        why = "" if since_s is None else ", and Flux was restarted since: it waits for ever, and holds its nodes"
        text = f"{job}{whose}: {one.kind} {one.description!r} began {age} ago and has no end{why}"
        found.append(Finding(text, repair(job, one)))
    return found


# ---- a running Flux


def owner(uri: str) -> User | None:
    """Whom Flux is to be asked as: the owner of its socket, who alone may read all eventlogs; None: as we are."""
    path = uri.removeprefix("local://")
    if os.geteuid() or path == uri:
        return None
    try:
        found = os.stat(path)  # noqa: PTH116
    except OSError as error:
        raise ControlError(f"cannot ask Flux: {path}: {error.strerror}") from None
    return User(found.st_uid, found.st_gid) if found.st_uid else None


def prefix(command: FluxCommand, default_uri: str) -> str:
    """What is typed before a command of Flux so that it reaches the same broker as the same user."""
    words = []
    if command.user is not None:
        import pwd

        try:
            name = pwd.getpwuid(command.user.uid).pw_name
        except KeyError:
            name = f"#{command.user.uid}"
        words += ["sudo", "-u", name]
    if command.uri != default_uri:
        words += ["env", f"FLUX_URI={command.uri}"]
    return f"{shlex.join(words)} " if words else ""


class Asked(NamedTuple):
    """How Flux is asked, and what counts as too long."""

    flux: FluxCommand
    housekeeping_ns: int | None


def running(asked: Asked) -> Errand[list[Finding]]:
    """All findings; ControlError where Flux can't be asked."""
    command, now_s = asked.flux, time.time()
    said = (yield [command("lsattr", "-v", within_ns=ASK_NS)])[0]
    if said.why:
        raise ControlError(f"cannot ask Flux: {said.why}")
    attrs = flux.attributes(said.text)
    if attrs.get("rank") != "0":
        raise ControlError(f"this is rank {attrs.get('rank')}; expected to be run where the leader, rank 0, is")
    since_s = _number(attrs.get("broker.starttime", ""))
    listed, stats, units = yield [
        command("job", "list", "--user=all", "--states=run,cleanup", within_ns=ASK_NS),
        command("module", "stats", "job-manager", within_ns=ASK_NS),
        units_running(),
    ]
    if listed.why or stats.why:
        raise ControlError(f"cannot ask Flux: {listed.why or stats.why}")
    jobs = flux.jobs(listed.text)
    kept = flux.housekeeping(stats.text)
    found = yield from _jobs(command, jobs, now_s, since_s)
    found += _housekeeping(kept, asked.housekeeping_ns, now_s)
    active = {job.f58 for job in jobs} | {one.job for one in kept}
    return found + (yield from _units(unit_names(units.text), active, now_s - since_s))


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ControlError(f"cannot read Flux's answer: {text!r} is no number") from None


def _jobs(command: FluxCommand, jobs: list[flux.Job], now_s: float, since_s: float) -> Errand[list[Finding]]:
    # One that began to run in this life has its prolog and epilog in this life, too.
    old = [job for job in jobs if job.t_run < since_s + _CLOCK_SLACK_S]
    users = yield from names([job.userid for job in old[:JOBS_MAX]])
    found: list[Finding] = []
    unread: list[str] = []
    for first in range(0, min(len(old), JOBS_MAX), AT_ONCE):
        some = old[first : first + AT_ONCE]
        said = yield [command("job", "eventlog", "--format=json", job.f58, within_ns=EVENTLOG_NS) for job in some]
        for job, one in zip(some, said, strict=True):
            try:
                entries = _entries(one)
            except BrokerctlError as error:
                unread.append(f"cannot read the eventlog of {job.f58}: {error}")
                continue
            whose = f" ({users.get(job.userid, f'uid {job.userid}')}, ranks {job.ranks})"
            found += of_job(job.f58, whose, entries, now_s, since_s)
    if unread and len(unread) == min(len(old), JOBS_MAX):
        raise ControlError(unread[0])
    if len(old) > JOBS_MAX:
        unread.append(f"{len(old) - JOBS_MAX} more jobs of an earlier life were not looked at")
    return found + [Finding(text) for text in unread]


def _entries(said: Said) -> list[eventlog.Entry]:
    if said.why:
        raise ControlError(said.why)
    return eventlog.parse(said.text)


def _housekeeping(kept: Sequence[flux.Housekeeping], limit_ns: int | None, now_s: float) -> list[Finding]:
    found = []
    for one in kept:
        age_ns = round((now_s - one.since_s) * S)
        if limit_ns is not None and age_ns > limit_ns:
            text = f"housekeeping of {one.job} runs for {as_short(age_ns)} on ranks {one.pending}"
            found.append(
                Finding(
                    f"{text}, and holds ranks {one.allocated}",
                    (("flux", "housekeeping", "kill", f"--jobid={one.job}"),),
                )
            )
    return found


def _units(units: list[str], active: set[str], life_s: float) -> Errand[list[Finding]]:
    """Units of prolog, epilog and housekeeping that were started before this life, or that no job is left for."""
    if not units:
        return []
    argv = ["systemctl", "show", "--property=Id,InactiveExitTimestampMonotonic", "--", *units]
    said = (yield [Command(argv, ASK_NS)])[0]
    mono_s = time.monotonic_ns() / S
    found = []
    for block in said.text.split("\n\n"):
        fields = dict(line.partition("=")[::2] for line in block.splitlines())
        name, began = fields.get("Id", ""), fields.get("InactiveExitTimestampMonotonic", "")
        if not name or not began.isdigit():
            continue
        age_s = mono_s - int(began) / 1e6
        job = name.partition("@")[2].removesuffix(".service")
        gone = job not in active and f"ƒ{job.removeprefix('f')}" not in active and age_s > _YOUNG_S
        if gone or age_s > life_s + _CLOCK_SLACK_S:
            why = "Flux has no such job any more" if gone else "Flux was restarted since"
            text = f"{name} runs for {as_short(round(age_s * S))}, and {why}"
            found.append(Finding(text, (("systemctl", "stop", name),)))
    return found
