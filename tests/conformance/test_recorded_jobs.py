"""Under policy `flux` jobs do what jobs of a real Flux instance were recorded doing.

Of each recorded run with jobs: the eventlogs (names, order, contexts), drained nodes, the log lines of the job manager
and of what belongs to it, how long what a limit or a script fixes lasted, and when nodes were given back. Runs that
began on what an earlier run had left are scenarios of two lives; the second one is compared.

`release` races with the epilog in Flux (FLUX.md 51): it must be there, after `finish`; where exactly is not compared.
Outside of the model, hence of the comparison, are the urgency and the user of a job, and which words a script printed.
"""

from __future__ import annotations

import json
import re
import tomllib
from itertools import zip_longest

import msgspec
import pytest

from brokerctl import config
from brokerctl.durations import MS, S
from brokerctl.logs.fluxlog import INFO, as_flux_log, parse
from brokerctl.records import Drain, Ended, Exit, Freed, JobEvent, Line, Log, Moved, Unreachable
from brokerctl.scenario import format as scenario_format
from brokerctl.scenario import lives
from brokerctl.scenario.format import Scenario, ScenarioFile
from brokerctl.scenario.resolve import horizon_ns, resolve
from brokerctl.worlds.sim.world import SimWorld
from tests.conformance.test_recorded import HERE

LIVES = HERE / "lives"
ONE_LIFE = sorted(path.stem for path in (HERE / "scenarios").glob("*.toml") if "[[job]]" in path.read_text())
SECOND_LIFE = sorted(path.stem for path in LIVES.glob("*.toml"))

# What Flux's processes take is a few milliseconds, and messages between ranks are batched.
TOLERANCE_NS = 60 * MS

_SAID = re.compile(
    r"\S+: (?:prolog|epilog): \S+ \(rank \d+\): stdout: .*"
    r"|housekeeping: \S+ \(rank \d+\) \S+: (?!error launching|No route|nonzero exit|multiple|Terminated).*"
)
# What a job manager says that has nothing to restart, and what a plugin prints.
_LOADED = re.compile(r"restart: checkpoint.job-manager not found|restart: 0 jobs|hold: .*")
_NOTHING_RUNS = "restart: 0 running jobs"


class Run(msgspec.Struct, kw_only=True):
    """What is compared: by job, its events without times; drains; log lines with jobs by name; times between events."""

    events: dict[str, list[tuple[str, dict]]]
    drains: list[tuple[str, str]]
    log: list[str]
    held_ns: dict[str, list[int]]
    released: set[str]


# ---- what both halves share ------------------------------------------------------------------------------


def compared(name: str, context: dict) -> tuple[str, dict]:
    if name in {"submit", "priority"}:
        return name, {}
    return name, context


def without_release(events: list[tuple[int, str, dict]]) -> list[tuple[str, dict]]:
    return [compared(name, context) for _, name, context in events if name != "release"]


def released(events: list[tuple[int, str, dict]]) -> bool:
    """There is one release, of all ranks, between finish and free."""
    names = [name for _, name, _ in events]
    if "release" not in names:
        return False
    assert names.count("release") == 1
    assert names.index("finish") < names.index("release") < (names.index("free") if "free" in names else len(names))
    return True


FIXED = (("prolog-start", "prolog-finish"), ("epilog-start", "epilog-finish"), ("finish", "clean"))


def held(events: list[tuple[int, str, dict]]) -> list[int]:
    """How long prolog, epilog, and the way from finish to clean lasted."""
    first: dict[str, int] = {}
    for t_ns, name, _ in events:
        first.setdefault(name, t_ns)
    return [first[end] - first[begin] for begin, end in FIXED if begin in first and end in first]


def is_compared(what: object) -> bool:
    if not isinstance(what, Log) or what.level > INFO:
        return isinstance(what, Unreachable)
    match what.component:
        case "resource":
            return what.text.startswith("drain ")
        case "job-exec":
            return "node failure" in what.text
        case "job-manager":
            return not _SAID.fullmatch(what.text) and not _LOADED.fullmatch(what.text)
        case component:
            return component == "rexec"


def made_of(jobs: dict[str, list[tuple[int, str, dict]]], drains: list, log: list[str]) -> Run:
    return Run(
        events={label: without_release(events) for label, events in jobs.items()},
        drains=drains,
        log=log,
        held_ns={label: held(events) for label, events in jobs.items()},
        released={label for label, events in jobs.items() if released(events)},
    )


# ---- the recorded half -----------------------------------------------------------------------------------


def file_of(name: str, kind: str) -> str:
    folder = LIVES if name in SECOND_LIFE else HERE / "recorded"
    return (folder / f"{name}.{kind}").read_text()


def recorded(name: str, labels: dict[str, str]) -> Run:
    """The recorded run; `labels` are the names of jobs that the recorder calls otherwise."""
    run = json.loads(file_of(name, "json"))
    jobs = {
        labels.get(label, label): [(int(event["t"] * S), event["name"], event["context"]) for event in events]
        for label, events in run["observed"]["eventlogs"].items()
    }
    ids = ids_of(run)
    log = []
    for text in file_of(name, "log").splitlines():
        found = parse(text)
        if found is not None and is_compared(found.what) and not (name in ONE_LIFE and _NOTHING_RUNS in text):
            log.append(named(as_flux_log(Line(0, found.rank, 0, ">", found.what), ("vm",) * run["size"]), ids, labels))
    drains = [
        (event["context"]["idset"], named(event["context"]["reason"], ids, labels))
        for event in run["observed"]["drained"]
        if event["name"] == "drain"
    ]
    return made_of(jobs, drains, log)


def ids_of(run: dict) -> dict[str, str]:
    """Ids of jobs → their labels, from the steps, or from what was asked about them; without both, the only job's."""
    found = {}
    for step in run["steps"]:
        match = re.fullmatch(r"t=\S+: submit (\S+): .* -> (ƒ\S+)", step)
        if match is not None:
            found[match[2]] = match[1]
    if not found and len(run["observed"]["eventlogs"]) == 1:
        (label,) = run["observed"]["eventlogs"]
        found = dict.fromkeys(re.findall("ƒ[1-9A-Za-z]+", json.dumps(run, ensure_ascii=False)), label)
    return found


def named(text: str, ids: dict[str, str], labels: dict[str, str]) -> str:
    for job, label in ids.items():
        text = text.replace(job, labels.get(label, label))
    return text


# ---- the simulated half ----------------------------------------------------------------------------------


def simulated(name: str, scenario: Scenario | None = None) -> tuple[Run, list[Line]]:
    """The last life of the scenario."""
    if scenario is None:
        folder = LIVES if name in SECOND_LIFE else HERE / "scenarios"
        scenario = scenario_format.load(folder / f"{name}.toml")
    stored: dict[str, str] = {}
    lines: list[Line] = []
    for life in lives.of(scenario):
        lines = []
        resolved = resolve(lives.after(life, stored))
        outcome = SimWorld().run(resolved, lines.append, horizon_ns(life))
        assert outcome.undone == ()
        stored = {**stored, **outcome.stored}
    jobs = jobs_of(lines, stored)
    ids = {event.job: event.label for event in (line.what for line in lines) if isinstance(event, JobEvent)}
    hosts = ("vm",) * scenario.file.instance.size
    log = [
        named(as_flux_log(line, hosts), ids, {})
        for line in lines
        if is_compared(line.what) or (isinstance(line.what, Drain) and line.t_ns)
    ]
    drains = []
    for line in lines:
        if isinstance(line.what, Drain) and line.t_ns:
            text = as_flux_log(line, hosts)
            drains.append((re.search(r"idset=(\S+)", text)[1], named(line.what.reason, ids, {})))
    return made_of(jobs, drains, log), lines


def jobs_of(lines: list[Line], stored: dict[str, str]) -> dict[str, list[tuple[int, str, dict]]]:
    """Whole eventlogs, those of earlier lives too, as the KVS has them."""
    kept = json.loads(stored["jobs"]) if "jobs" in stored else {"jobs": []}
    jobs = {job["spec"]["name"]: [tuple(event) for event in job["events"]] for job in kept["jobs"]}
    for line in lines:
        if isinstance(line.what, JobEvent) and line.what.label not in jobs:
            jobs[line.what.label] = []
    assert set(jobs) >= {line.what.label for line in lines if isinstance(line.what, JobEvent)}
    return jobs


# ---- the comparison --------------------------------------------------------------------------------------


def differences(real: Run, model: Run) -> list[str]:
    found = []
    for label, events in real.events.items():
        pairs = zip_longest(events, model.events.get(label, []), fillvalue="nothing")
        found += [f"events of {label}: expected {one}, got {two}" for one, two in pairs if one != two][:1]
    pairs = zip_longest(in_own_order(real.log), in_own_order(model.log), fillvalue="nothing")
    found += [f"log: expected {one}, got {two}" for one, two in pairs if one != two][:1]
    if real.drains != model.drains:
        found.append(f"drains: expected {real.drains}, got {model.drains}")
    if real.events and real.released != model.released & real.events.keys():
        found.append(f"released: expected {real.released}, got {model.released}")
    for label, times in real.held_ns.items():
        for expected, got in zip(times, model.held_ns.get(label, []), strict=False):
            if abs(expected - got) > TOLERANCE_NS:
                found.append(f"times of {label}: expected {times}, got {model.held_ns[label]}")
                break
    return found


def in_own_order(log: list[str]) -> list[str]:
    """Lines of ranks that answer at the same time come in any order; those of one kind of line are put in one."""
    return sorted(log)


# A loss is noticed with the next heartbeat: between 0 and 2 s, as it happens (FLUX.md 84).
NOTICED_BY_CHANCE = {"14-kill9-leaf--epilog", "14-kill9-leaf--job", "56-mixed-lost-and-failed--kill9"}
RENAMED = {"48-restart-pending-job": {"true": "pending", "sleep": "job"}}


@pytest.mark.parametrize("name", [*ONE_LIFE, *SECOND_LIFE])
def test_simulated_jobs_do_what_recorded_ones_did(name):
    real = recorded(name, RENAMED.get(name, {}))
    if name in NOTICED_BY_CHANCE or name in SECOND_LIFE:  # what began in one life and ended in the next has no length
        real.held_ns = {}
    assert differences(real, simulated(name)[0]) == []


@pytest.mark.parametrize("name", SECOND_LIFE)
def test_the_leader_of_a_second_life_goes_through_the_states_of_the_recorded_one(name):
    observed = json.loads(file_of(name, "json"))["observed"]
    lines = [line.what for line in simulated(name)[1] if line.rank == 0]
    moved = [[what.event, what.old, what.new] for what in lines if isinstance(what, Moved)]
    assert moved == [row[:3] for row in observed["rank0_transitions"]]
    ended = [(what.run, what.rc) for what in lines if isinstance(what, Ended) and not what.run.startswith("job.")]
    assert ended == [(row["name"], row["rc"]) for row in observed["actions"] if row["rank"] == 0]
    assert [what.code for what in lines if isinstance(what, Exit)] == [observed["exit_code"]]


# ---- the comparison can see ------------------------------------------------------------------------------

MUTATIONS = [
    # name, text of the scenario, instead of it, what must differ
    ("05-sigterm-stuck-epilog", '"1" = "forever"', '"1" = "0.1s"', {"log", "times of stuck"}),
    ("21-epilog-fails-one-rank", '"1" = 4', '"1" = 5', {"events of job"}),
    ("21-epilog-fails-one-rank", '"1" = 4', '"0" = 4', {"events of job", "log", "drains"}),
    ("22-perilog-timeouts--epilog-timeout-term", 'timeout = "1s"', 'timeout = "1.2s"', {"times of job"}),
    ("18-hk-fails-one-rank", '"3" = "KILL"', '"3" = 7', {"log"}),
    ("19-cancel-during-prolog--with-epilog", 'do = "cancel job"', 'do = "post-event job x"', {"events of job"}),
    ("20-prolog-fails-one-rank", "per-rank = true", "per-rank = false", {"events of job", "drains"}),
    ("29-jobtap-hold", 'name = "hold"', 'name = "held"', {"events of job"}),
    ("04-sigterm-running-job--noepilog", 'asks = "cancel-running"', "", {"events of job"}),
]


@pytest.mark.parametrize(("name", "old", "new", "seen"), MUTATIONS)
def test_a_changed_scenario_is_told_apart(name, old, new, seen):
    text = (HERE / "scenarios" / f"{name}.toml").read_text()
    assert old in text
    file = config.validate(tomllib.loads(text.replace(old, new)), ScenarioFile, name)
    model = simulated(name, Scenario(name=name, path=HERE / name, file=file))[0]
    assert seen <= {text.split(": ", 1)[0] for text in differences(recorded(name, {}), model)}


# ---- when nodes are given back ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["17-hk-partial-release--unset", "17-hk-partial-release--zero"])
def test_nodes_are_given_back_when_they_were(name):
    run = json.loads(file_of(name, "json"))
    clean_s = next(event["t"] for event in run["observed"]["eventlogs"]["job"] if event["name"] == "clean")
    _, lines = simulated(name)
    began_ns = next(line.t_ns for line in lines if isinstance(line.what, JobEvent) and line.what.name == "clean")
    freed = {rank: line.t_ns - began_ns for line in lines if isinstance(line.what, Freed) for rank in line.what.ranks}
    seen = 0
    for sample in run["observed"]["extra"]["samples"]:
        at_ns = int((sample["t"] - clean_s) * S)
        if min(abs(at_ns - each) for each in freed.values()) < 300 * MS:
            continue  # the sample took as long as that
        got = re.search(r"allocated (\S*)", sample["res"].replace("\n", " \n"))[1]
        still = [rank for rank, t_ns in freed.items() if t_ns > at_ns]
        assert ids(got) == still, sample
        seen += 1
    assert seen > 5


def ids(text: str) -> list[int]:
    first, _, last = text.partition("-")
    return list(range(int(first), int(last or first) + 1)) if text else []


def test_a_kill_of_housekeeping_gives_its_node_back():
    run, lines = simulated("57-hk-partial-at-stop")
    assert [line.what.ranks for line in lines if isinstance(line.what, Freed)] == [(0,), (1,)]
    assert "<3>job-manager.err[0]: housekeeping: vm (rank 1) job: Terminated" in run.log
