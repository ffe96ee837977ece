"""What of a run can be seen of a real Flux from outside, and comes again each time: what recordings are compared by.

By rank: what the broker, the overlay and its configuration log, notifications of the service manager, the exit code.
Of the instance: the eventlogs of jobs, drains, and what the job manager and its like log. Not compared are

- DEBUG lines, but for ignored events;
- lines of other components (the KVS, the modules' own), what scripts of jobs print, what rc1 says on a restart, what
  `flux dump` says in rc3, and what modules say that were not unloaded;
- which ranks come online together, where there are more than two: a matter of milliseconds;
- how long a broker had been silent when that was noticed;
- the urgency and the user of a job, and where among the events its `release` stands (FLUX.md 51: a race);
- the messages in which flux-dump(1) tells the service manager of its progress, and the URI of a parent.

Lines of the overlay, of the configuration, and those in which a broker says that it lost others, race with its other
lines: each kind has an order of its own. What ranks answer at the same time is logged in any order.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

import msgspec

from brokerctl.logs.fluxlog import INFO
from brokerctl.logs.recording import labelled
from brokerctl.records import AnyEffect, Drain, Ended, Exit, Ignored, JobEvent, Line, Log, Moved, Notify, Unreachable
from brokerctl.report.sides import Said
from brokerctl.scenario.compare import Stories

_BROKER = frozenset({"broker", "overlay", "config"})
_NOT_COMPARED = re.compile(
    r"broker module '.*' was not properly shut down"
    r"|\S+: loader \(module-python-exec\) killed by \w+"
    r"|\S+ module runtime failure"
    r"|rc3\.0: dumping content to .*"
    r"|rc1\.0: (?:Checking integrity of checkpoint from .*|Flux was not shut down properly\..*)"
    r"|rc3\.0: flux-modprobe: ERROR: Upstream Flux broker is offline\. Try again later\."
)
_RACES = re.compile(r"state-machine\.monitor: .*|dead to Flux: .*")
# What scripts print, and what a job manager says that has nothing to restart.
_JOBS_NOT_COMPARED = re.compile(
    r"\S+: (?:prolog|epilog): \S+ \(rank \d+\): stdout: .*"
    r"|housekeeping: \S+ \(rank \d+\) \S+: (?!error launching|No route|nonzero exit|multiple|Terminated).*"
    r"|restart: checkpoint.job-manager not found|restart: 0 (?:running )?jobs|hold: .*"
)
_SILENT = re.compile(r"( has been unresponsive) for \S+$")  # when exactly it is noticed is chance
_URI = re.compile(r"^(STATUS=Joining Flux instance via) .*")
_LOG_OF_JOBS = (0, "log of jobs")
FEW = 2  # ranks: with more, it is chance which come online together


def observed(lines: Iterable[Line], size: int, *, debug: bool = True, jobs: Collection[str] | None = None) -> Stories:
    """That, by rank and component. Without `debug`, ignored events are left out; of jobs only these are looked at."""
    told: Stories = {}
    begun_ns: int | None = None
    labels: dict[str, str] = {}
    for line in lines:
        what = line.what
        if begun_ns is None:
            begun_ns = line.t_ns
        if isinstance(what, JobEvent):
            labels[what.job] = what.label
            if jobs is not None and what.label not in jobs:
                continue
        found = _of(line, size, debug=debug)
        if found is not None:
            key, record = found
            said = Said(line.t_ns - begun_ns, line.rank, labelled(record, labels))
            told.setdefault(key, []).append(said)
    for sender in [key for key in told if key[1] == "notify"]:
        told[sender] = _without_dump(told[sender])
    if _LOG_OF_JOBS in told:
        told[_LOG_OF_JOBS].sort(key=lambda said: repr(said.what))
    return told


def _of(line: Line, size: int, *, debug: bool) -> tuple[tuple[int, str], AnyEffect] | None:
    """A line's component, and what is compared of it."""
    rank, what = line.rank, line.what
    found: tuple[tuple[int, str], AnyEffect] | None = None
    match what:
        # What processes of jobs did is told by the job manager.
        case Moved() | Ended() if not (isinstance(what, Ended) and what.run.startswith("job.")):
            found = (rank, "log"), msgspec.structs.replace(what, held_ns=0)
        case Ignored() if debug:
            found = (rank, "log"), what
        case Exit():
            found = (rank, "exit"), what
        case Notify(text):
            found = (rank, "notify"), Notify(_URI.sub(r"\1", text))
        case Drain() if line.t_ns > 0:
            found = (0, "drains"), what
        case Unreachable():
            found = _LOG_OF_JOBS, what
        case JobEvent(_, label, name, context):
            bare = {} if name in {"submit", "priority"} else context
            found = (0, f"{'release' if name == 'release' else 'job'} {label}"), JobEvent("", label, name, bare)
        case Log():
            found = _of_log(rank, what, size)
    return found


def _of_log(rank: int, what: Log, size: int) -> tuple[tuple[int, str], AnyEffect] | None:
    text = what.text
    if what.level > INFO:
        return None
    if what.component in _BROKER:
        if _NOT_COMPARED.fullmatch(text) or (size > FEW and text.startswith("online: ")):
            return None
        if what.component != "broker":
            return (rank, what.component), Log(what.component, what.level, _SILENT.sub(r"\1", text))
        return (rank, text.partition(":")[0] if _RACES.fullmatch(text) else "log"), what
    match what.component:
        case "job-exec":
            compared = "node failure" in text
        case "job-manager":
            compared = not _JOBS_NOT_COMPARED.fullmatch(text)
        case component:
            compared = component == "rexec"
    return (_LOG_OF_JOBS, what) if compared else None


def _without_dump(sent: list[Said]) -> list[Said]:
    """Each message of flux-dump(1) comes with an extension of the deadline before it."""
    kept: list[Said] = []
    for one in sent:
        if not _is_notify(one, "STATUS=flux-dump(1)"):
            kept.append(one)
        elif kept and _is_notify(kept[-1], "EXTEND_TIMEOUT_USEC="):
            kept.pop()
    return kept


def _is_notify(said: Said, begins: str) -> bool:
    return isinstance(said.what, Notify) and said.what.text.startswith(begins)
