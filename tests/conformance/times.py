"""The times of a run that a limit or a script fixes, and when nodes were given back.

Durations of commands are constants in the scenarios; only these are compared. A cleanup is ended by its timeout or by
a signal, SHUTDOWN and GOODBYE by theirs; of jobs, prolog, epilog, and the way from finish to clean are compared.
"""

from __future__ import annotations

import re

from brokerctl.durations import MS, S
from brokerctl.ids import parse_idset
from brokerctl.logs.fluxlog import ABORTED
from brokerctl.logs.recording import Recording
from brokerctl.records import Ended, Freed, JobEvent, Line, Log, Moved

# What Flux's processes take is a few milliseconds, and messages between ranks are batched.
TOLERANCE_NS = 60 * MS
# A loss is noticed with the next heartbeat: between 0 and 2 s, as it happens (FLUX.md 84).
HEARTBEAT_NS = 2 * S
# While a sample of the nodes was taken.
SAMPLE_NS = 300 * MS
SPANS = (("prolog-start", "prolog-finish"), ("epilog-start", "epilog-finish"), ("finish", "clean"))
Times = dict[str, int]


def fixed(lines: list[Line], real: Recording) -> Times:
    """By what they are of."""
    found: Times = {}
    entered: dict[tuple[int, str], int] = {}
    aborted: set[int] = set()
    first: dict[tuple[str, str], int] = {}
    for line in lines:
        what, rank = line.what, line.rank
        if isinstance(what, Ended) and what.run.startswith("cleanup.") and (what.how == ABORTED or what.rc == 129):
            aborted.add(rank)
        elif isinstance(what, Moved):
            entered[rank, what.new] = line.t_ns
            if what.old == "cleanup" and rank in aborted:
                found[f"cleanup of rank {rank}"] = what.held_ns
        elif isinstance(what, Log) and what.component == "broker" and " timeout" in what.text:
            state = what.text.split()[0]
            if (rank, state) in entered:
                found[f"{state} timeout of rank {rank}"] = line.t_ns - entered[rank, state]
        elif isinstance(what, JobEvent) and line.t_ns > 0 and what.label in real.jobs:
            first.setdefault((what.label, what.name), line.t_ns)
    for label in real.jobs:
        for begin, end in SPANS:
            if (label, begin) in first and (label, end) in first:
                found[f"{begin} to {end} of {label}"] = first[label, end] - first[label, begin]
    return found


def differ(one: Times, two: Times, real: Recording) -> str:
    """The first that is another; nothing where all are the same."""
    killed = any("kill -SIGKILL" in step for step in real.steps)
    for what, expected in one.items():
        tolerance = TOLERANCE_NS + HEARTBEAT_NS * (killed and " of rank " not in what)
        if what not in two or abs(expected - two[what]) > tolerance:
            got = f"{two[what] / S:.3f} s" if what in two else "nothing"
            return f"{what}: {expected / S:.3f} s against {got}"
    return "" if one.keys() == two.keys() else f"times of {sorted(two.keys() - one.keys())} against nothing"


def samples_differ(real: Recording, model: list[Line]) -> str:
    """Which nodes were still allocated when the recorder looked, counted from the job's `clean`."""
    samples = real.observed.extra.get("samples")
    if samples is None:
        return ""
    (label,) = real.jobs
    clean_s = next(event.t for event in real.observed.eventlogs[label] if event.name == "clean")
    began_ns = next(line.t_ns for line in model if isinstance(line.what, JobEvent) and line.what.name == "clean")
    freed = {rank: line.t_ns - began_ns for line in model if isinstance(line.what, Freed) for rank in line.what.ranks}
    for sample in samples:
        at_ns = int((sample["t"] - clean_s) * S)
        if min(abs(at_ns - each) for each in freed.values()) < SAMPLE_NS:
            continue  # the sample took as long as that
        text = re.search(r"allocated (\S*)", sample["res"].replace("\n", " \n"))[1]
        expected, got = parse_idset(text) if text else [], [rank for rank, t_ns in freed.items() if t_ns > at_ns]
        if expected != got:
            return f"allocated {at_ns / S:.1f} s after clean: {expected} against {got}"
    return ""
