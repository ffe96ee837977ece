"""The report of a stop, for whoever reads the journal at 3 a.m.: from facts to lines, bounded in number and length.

A line begins with its level, `<3>` as in syslog(3), where it is not informational. First what matters most.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from brokerctl.durations import S, as_short
from brokerctl.model.words import signal_name
from brokerctl.stop.errands import printable
from brokerctl.stop.flux import STATE_CLEANUP, Housekeeping, Job
from brokerctl.stop.story import Story

LINE_MAX = 300
JOBS_SHOWN, USERS_SHOWN, NAMES_SHOWN = 8, 10, 8
ERROR, WARN = "<3>", "<4>"


class Facts(msgspec.Struct, frozen=True):
    """What the core knows of the stop when main has gone (`NAME=VALUE`, `model.stopper`)."""

    took_ns: int = 0
    last: str = ""
    states: tuple[tuple[str, int], ...] = ()
    shed: str = ""
    ended: tuple[str, ...] = ()


def facts(words: Iterable[str]) -> Facts:
    """Read them; what is unknown is left out."""
    took_ns, last, shed = 0, "", ""
    states: list[tuple[str, int]] = []
    ended: list[str] = []
    for word in words:
        name, _, value = word.partition("=")
        if name == "took" and value.isdigit():
            took_ns = int(value)
        elif name == "last":
            last = value
        elif name == "shed":
            shed = value
        elif name == "ended":
            ended.append(value)
        elif name.startswith("state.") and value.isdigit():
            states.append((name.removeprefix("state."), int(value)))
    return Facts(took_ns, last, tuple(states), shed, tuple(ended))


class Before(msgspec.Struct, frozen=True):
    """What runs when the stop begins. Jobs is None where nobody could tell; `users` names their owners."""

    jobs: list[Job] | None = None
    users: Mapping[int, str] = {}
    housekeeping: list[Housekeeping] = []
    now_s: float = 0.0


def before(found: Before) -> list[str]:
    """The lines before the SIGTERM."""
    if found.jobs is None:
        return [f"{WARN}which jobs run could not be learned"]
    running = [job for job in found.jobs if not job.state & STATE_CLEANUP]
    ending = [job for job in found.jobs if job.state & STATE_CLEANUP]
    lines = []
    if running:
        nodes = len(frozenset[int]().union(*(job.on for job in running)))
        lines.append(
            f"running: {_count(len(running), 'job')} on {_count(nodes, 'node')}: {_users(running, found.users)}"
        )
        lines += [f"running: {_job(job, found.users)}" for job in running[:JOBS_SHOWN]]
        if len(running) > JOBS_SHOWN:
            lines.append(f"running: and {len(running) - JOBS_SHOWN} more")
    else:
        lines.append("running: no job")
    if ending:
        lines.append(
            f"in cleanup (their epilog runs, or is stuck): {_few([_job(job, found.users) for job in ending], '; ')}"
        )
    for one in found.housekeeping[:JOBS_SHOWN]:
        since_ns = max(0, round((found.now_s - one.since_s) * 1e9))
        lines.append(
            f"housekeeping of {one.job}: runs for {as_short(since_ns)} on ranks {one.pending}; the stop cuts it off"
        )
    return _bounded(lines)


def _users(jobs: Sequence[Job], users: Mapping[int, str]) -> str:
    counts: dict[int, int] = {}
    for job in jobs:
        counts[job.userid] = counts.get(job.userid, 0) + 1
    ranked = sorted(counts, key=lambda uid: (-counts[uid], uid))
    words = [f"{_user(uid, users)} {counts[uid]}" for uid in ranked[:USERS_SHOWN]]
    if len(ranked) > USERS_SHOWN:
        words.append(f"{len(ranked) - USERS_SHOWN} other users {sum(counts[uid] for uid in ranked[USERS_SHOWN:])}")
    return ", ".join(words)


def _user(uid: int, users: Mapping[int, str]) -> str:
    return users.get(uid, f"uid {uid}")


def _job(job: Job, users: Mapping[int, str]) -> str:
    return f"{job.f58} of {_user(job.userid, users)}, {_count(job.nnodes, 'node')}, {job.name}"


# ---- when main has gone


class After(msgspec.Struct, frozen=True):
    """What is found when main has gone. `dumps`: one was to be written.

    `dump` is its path, its size, and whether it is complete; `housekeeping` what ran when the stop began.
    """

    facts: Facts = Facts()
    story: Story = msgspec.field(default_factory=Story)
    exit_text: str = ""
    perilog_units: list[str] = []
    leftovers: list[str] = []
    dumps: bool = False
    dump: tuple[str, int, bool] | None = None
    housekeeping: list[Housekeeping] = []
    unit: str = ""
    leader: bool = True
    flux: bool = True


def after(found: After) -> tuple[list[str], Literal["", "cleanup", "rc3"]]:
    """The lines at the end, and which part of main's own stop has failed."""
    failed = failed_part(found)
    story = found.story
    lines = [_phases(found)]
    lines += culprits(story)
    lines += [f"{ERROR}signalled by this stop, as it held the cleanup: {text}" for text in found.facts.ended]
    if story.shutdown_timeout:
        lines.append(f"{ERROR}shutdown-timeout: the leader went on without ranks that had not said goodbye")
    if found.leader:
        lines += _jobs(found)
    if found.perilog_units:
        lines.append(f"{WARN}prolog, epilog or housekeeping units still run: {_few(found.perilog_units)}")
    if found.leftovers:
        lines.append(
            f"{WARN}left over in {found.unit or 'the unit'}, systemd will kill it: {_few(found.leftovers, '; ')}"
        )
    lines += _dump(found)
    lines += [f"next: {text}" for text in _next(found, failed)]
    return _bounded(lines), failed


def failed_part(found: After) -> Literal["", "cleanup", "rc3"]:
    """Which part of main's own stop has failed: rc3 first, as it saves what must not be lost."""
    story = found.story
    if story.heard and not story.ran:
        return ""  # nothing had been started that rc3 could end, so it may fail (FLUX.md 94, 95)
    if story.failures("rc3") or story.event("rc3-fail") or _no_dump(found):
        return "rc3"
    return "cleanup" if story.failures("cleanup") or story.event("cleanup-fail") else ""


def _phases(found: After) -> str:
    # The journal has them to the microsecond; what was only looked at once a second is the second best.
    logged = {move.old: move.held_ns for move in found.story.moved}
    seen = dict(found.facts.states)
    words = [
        f"{state} {as_short(held)}"
        for state in ("cleanup", "shutdown", "finalize", "goodbye")
        if (held := logged.get(state, seen.get(state))) is not None and (state != "goodbye" or held >= S)
    ]
    text = f"stopped in {as_short(found.facts.took_ns)}"
    if words:
        text += f": {', '.join(words)}"
    return f"{text}; {found.exit_text}" if found.exit_text else text


def culprits(story: Story) -> list[str]:
    """The actions that failed or were cut off, the first one first: it decides the exit code (FLUX.md 38)."""
    lines = []
    for one in story.failures("cleanup", "rc3", "rc1", "rc2"):
        cut = f", cut off after {as_short(one.held_ns)}" if one.how == "Hangup" else f" after {as_short(one.held_ns)}"
        lines.append(f"{ERROR}{one.run} failed: {one.command}: {one.how} (rc={one.rc}){cut}")
    return lines[:NAMES_SHOWN]


def _jobs(found: After) -> list[str]:
    story, lines = found.story, []
    if story.canceled:
        lines.append(f"canceled by this stop: {_count(story.canceled, 'job')}")
    cut = [f"{one.what} on rank {one.rank}" for one in story.unreachable if not one.what.startswith("housekeeping")]
    if cut:
        lines.append(f"{ERROR}cut off, as the rank was unreachable: {_few(cut)}")
    lost = [one.what.partition(": ")[2] for one in story.unreachable if one.what.startswith("housekeeping")]
    if lost:
        lines.append(f"{WARN}housekeeping abandoned, it is not run again: {_few(list(dict.fromkeys(lost)))}")
    maybe = [one.job for one in found.housekeeping if one.job not in lost]
    if maybe:
        lines.append(f"{WARN}housekeeping that had not ended when the stop began is not run again: {_few(maybe)}")
    return lines


def _no_dump(found: After) -> bool:
    return found.leader and found.dumps and (found.dump is None or not found.dump[2])


def _dump(found: After) -> list[str]:
    if not (found.leader and found.dumps) or (found.story.heard and not found.story.ran):
        return []
    if found.dump is None:
        return [f"{ERROR}NO DUMP: the state since the last checkpoint is lost unless it can be repaired"]
    path, size, complete = found.dump
    if not complete:
        return [f"{ERROR}NO DUMP: {path} is incomplete ({as_bytes(size)}): rc3 did not finish it"]
    but = f"{ERROR}rc3 failed all the same; " if found.story.failures("rc3") else ""
    return [f"{but}dump written: {path}, {as_bytes(size)}"]


def _next(found: After, failed: str) -> list[str]:
    """What to type."""
    unit = found.unit or "flux.service"
    lines = []
    if not found.flux:
        if failed:
            undone = f"see to what its {failed} has left undone: what failed, or was not run, is named above"
            lines.append(f"{undone}; then `systemctl start {unit}`")
    elif failed == "rc3" and found.leader:
        lines.append(
            f"keep a copy of its state directory before `systemctl start {unit}`, and run `brokerctl check` after it"
        )
    elif found.facts.shed:
        lines.append(
            f"`systemctl status {unit}` on the nodes that were shed (ranks {found.facts.shed}), before the next start"
        )
    if (found.flux and failed == "cleanup") or any(
        not one.what.startswith("housekeeping") for one in found.story.unreachable
    ):
        lines.append(f"after `systemctl start {unit}`: `brokerctl check` names jobs that need a repair")
    if found.perilog_units:
        lines.append(f"`systemctl status {found.perilog_units[0]}`")
    return lines


def exit_text(code: str, status: str) -> str:
    """How a main has ended, by the manager's ExecMainCode (si_code, waitid(2)) and ExecMainStatus."""
    if not (code.isdigit() and status.isdigit()) or code == "0":
        return ""
    if code == "1":
        return f"exit {status}"
    return f"killed by {signal_name(int(status))}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _few(words: Sequence[str], joint: str = ", ") -> str:
    text = joint.join(words[:NAMES_SHOWN])
    return text if len(words) <= NAMES_SHOWN else f"{text}{joint}and {len(words) - NAMES_SHOWN} more"


def _bounded(lines: Iterable[str]) -> list[str]:
    return [line if len(line) <= LINE_MAX else f"{line[: LINE_MAX - 1]}…" for line in map(printable, lines)]


def as_bytes(size: int) -> str:
    """`2.4 KiB`, `3 MiB`."""
    value, unit = float(size), "bytes"
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "bytes" or value >= 10 else f"{value:.1f} {unit}"
