"""Under policy `flux` the model does what a real Flux broker was recorded doing.

`recorded/NAME.json` and `.log` are runs of flux-core 0.88, unchanged. `scenarios/NAME.toml` tells the input half of
each again: attributes, scripts, steps. The observed half is read from the recording, never typed here. Durations of
commands are constants in the scenarios; only those that a limit fixes are compared.

Outside of the model, hence of the comparison, are

- DEBUG lines, but for ignored events;
- lines of components other than the broker, the overlay and its configuration: those of jobs are compared in
  test_recorded_jobs, the KVS is not simulated;
- broker lines about modules, the output of `flux dump` in rc3, and what rc1 says on a
  restart or rc3 on the one rank where it fails;
- which ranks come online together, where there are more than two: a matter of milliseconds;
- the messages in which flux-dump(1) tells the service manager of its progress, and the URI of a parent.

Lines of the overlay, of the configuration, and those in which the broker says that it lost others, race with the rest:
they are compared apart, each kind in its order. A run that the recorder gave up waiting for, and killed, is compared
up to there; the scenario's horizon says when that was.
"""

from __future__ import annotations

import json
import re
import tomllib
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from brokerctl import config, trace
from brokerctl.check.replay import first_difference
from brokerctl.durations import MS, S
from brokerctl.logs.fluxlog import INFO, as_flux_log, parse
from brokerctl.records import Ended, Ignored, Line, Log, Moved, Notify
from brokerctl.scenario.format import Scenario, ScenarioFile
from brokerctl.scenario.resolve import horizon_ns, resolve
from brokerctl.worlds.sim.world import SimWorld

if TYPE_CHECKING:
    from brokerctl.worlds.contract import Resolved

HERE = Path(__file__).parent
NAMES = sorted(path.stem for path in (HERE / "scenarios").glob("*.toml"))

_NOT_MODELLED = re.compile(
    r"broker module '.*' was not properly shut down"
    r"|\S+: loader \(module-python-exec\) killed by \w+"
    r"|\S+ module runtime failure"
    r"|rc3\.0: dumping content to .*"
    r"|rc1\.0: (?:Checking integrity of checkpoint from .*|Flux was not shut down properly\..*)"
    r"|rc3\.0: flux-modprobe: ERROR: Upstream Flux broker is offline\. Try again later\."
)
_RACES = re.compile(r"state-machine\.monitor: .*|dead to Flux: .*")
_COMPONENTS = frozenset({"broker", "overlay", "config"})


class Run(msgspec.Struct, kw_only=True):
    """What can be compared of a run, recorded or simulated; by rank where it is a dict."""

    transitions: dict[int, list[tuple[str, str, str]]]
    actions: dict[int, list[tuple[str, str, str, int]]]
    log: dict[int, list[str]]
    errors: dict[int, list[str]]  # those that race with the log, by kind
    notified: dict[int, list[str]]
    exits: dict[int, int]
    lines: list[Line]  # of the log, with their times


def without_durations(line: Line) -> str:
    what = line.what
    if isinstance(what, Moved | Ended):
        what = msgspec.structs.replace(what, held_ns=0)
    return as_flux_log(msgspec.structs.replace(line, what=what), ())


def is_modelled(what: object, size: int) -> bool:
    if isinstance(what, Log):
        if what.component not in _COMPONENTS or what.level > INFO or _NOT_MODELLED.fullmatch(what.text):
            return False
        return size <= 2 or not what.text.startswith("online: ")
    return isinstance(what, Moved | Ignored) or (isinstance(what, Ended) and not what.run.startswith("job."))


def race(what: object) -> str:
    """Of which kind of lines it is, if those race with the rest of the log."""
    if not isinstance(what, Log):
        return ""
    if what.component == "broker":
        return what.text.partition(":")[0] if _RACES.fullmatch(what.text) else ""
    return what.component


def made_of(lines: list[Line], notified: dict[int, list[str]], exits: dict[int, int], size: int) -> Run:
    told = [line for line in lines if is_modelled(line.what, size)]
    log = [line for line in told if not race(line.what)]
    races = sorted((line for line in told if race(line.what)), key=lambda line: race(line.what))
    ended = [(line.rank, line.what) for line in told if isinstance(line.what, Ended)]
    moved = [(line.rank, line.what) for line in told if isinstance(line.what, Moved)]
    return Run(
        transitions={n: [(w.event, w.old, w.new) for rank, w in moved if rank == n] for n in range(size)},
        actions={n: [(w.run, w.command, w.how, w.rc) for rank, w in ended if rank == n] for n in range(size)},
        log={n: [without_durations(line) for line in log if line.rank == n] for n in range(size)},
        errors={n: [without_durations(line) for line in races if line.rank == n] for n in range(size)},
        notified=notified,
        exits=exits,
        lines=told,
    )


# ---- the recorded half -----------------------------------------------------------------------------------


def recorded(name: str) -> Run:
    run = json.loads((HERE / "recorded" / f"{name}.json").read_text())
    until_ns = given_up_ns(run)
    lines, after = [], []
    for text in (HERE / "recorded" / f"{name}.log").read_text().splitlines():
        found = parse(text)
        if found is not None:
            line = Line(found.t_ns or 0, found.rank, 0, ">", found.what)
            (lines if until_ns is None or line.t_ns < until_ns else after).append(line)
    size = run["size"]
    made = made_of(lines, notified_of(run), exits_of(run["observed"], lines), size)
    # The recorder read the transitions from the log, too; its reading and ours must agree.
    observed = {0: run["observed"]["rank0_transitions"]}
    observed |= {int(rank): rows for rank, rows in run["observed"]["other_ranks_transitions"].items()}
    whole = made_of([*lines, *after], made.notified, {}, size)
    assert whole.transitions == {rank: [tuple(row[:3]) for row in rows] for rank, rows in observed.items()}
    return made


def given_up_ns(run: dict) -> int | None:
    """When the recorder no longer waited, and killed what there was; None where the run came to its end."""
    time, _, what = run["steps"][-1].partition(": ")
    return int(float(time.removeprefix("t=")) * S) if what.startswith("NOT exited") else None


def exits_of(observed: dict, lines: list[Line]) -> dict[int, int]:
    """The codes of brokers that came to EXIT; only those that failed are told by flux-start."""
    codes = {int(rank): text for rank, text in observed["broker_rc"].items()}
    ended = {line.rank for line in lines if isinstance(line.what, Moved) and line.what.new == "exit"}
    exits = dict.fromkeys(sorted(ended), 0)
    for rank, text in codes.items():
        if rank in ended and text != "Killed":  # which is how an earlier life of it ended
            exits[rank] = int(text.removeprefix("exited with rc="))
    assert observed["exit_code"] in {None, exits.get(0, 137)}
    return exits


def notified_of(run: dict) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {rank: [] for rank in range(run["size"])}
    for _, sender, text in run["observed"]["notify"]:
        rank = sender if run["size"] > 1 else 0
        if text.startswith("STATUS=flux-dump(1)"):
            assert found[rank].pop().startswith("EXTEND_TIMEOUT_USEC=")
        else:
            found[rank].append(without_uri(text))
    return found


def without_uri(text: str) -> str:
    return re.sub(r"^(STATUS=Joining Flux instance via) .*", r"\1", text)


# ---- the simulated half ----------------------------------------------------------------------------------


def simulated(name: str, old: str = "", new: str = "") -> Run:
    """The scenario's run; with `old` replaced by `new` in its text."""
    path = HERE / "scenarios" / f"{name}.toml"
    text = path.read_text()
    assert old in text
    file = config.validate(tomllib.loads(text.replace(old, new)), ScenarioFile, name)
    scenario = Scenario(name=name, path=path, file=file)
    resolved = with_own_streams(resolve(scenario))
    lines: list[Line] = []
    outcome = SimWorld().run(resolved, lines.append, horizon_ns(scenario))
    given_up = file.horizon != ScenarioFile(about="x").horizon
    assert outcome.kind in ({"horizon", "stuck"} if given_up else {"ended"}), outcome
    assert outcome.undone == (), outcome
    head = trace.header(resolved.settings, resolved.topology)
    assert first_difference(head, lines) is None
    notified: dict[int, list[str]] = {rank: [] for rank in range(file.instance.size)}
    for line in lines:
        if isinstance(line.what, Notify):
            notified[line.rank].append(without_uri(line.what.text))
    return made_of(lines, notified, dict(outcome.exits), file.instance.size)


def with_own_streams(resolved: Resolved) -> Resolved:
    """Flux gives rc2 the broker's own standard streams, as `brokerctl run` does."""
    inherit = [
        msgspec.structs.replace(one, command=msgspec.structs.replace(one.command, inherit=True))
        for one in resolved.settings.rc2
    ]
    settings = msgspec.structs.replace(resolved.settings, rc2=tuple(inherit))
    return msgspec.structs.replace(resolved, settings=settings)


# ---- the comparison --------------------------------------------------------------------------------------


def differences(real: Run, model: Run) -> list[str]:
    """Which parts differ: per rank, the first entry that does, with both sides."""
    found = []
    for part in ("transitions", "actions", "log", "errors", "notified"):
        expected, got = getattr(real, part), getattr(model, part)
        assert expected.keys() == got.keys()
        for rank in expected:
            pairs = zip_longest(expected[rank], got[rank], fillvalue="nothing")
            first = next((pair for pair in pairs if pair[0] != pair[1]), None)
            if first is not None:
                found.append(f"{part} of rank {rank}: expected {first[0]}, got {first[1]}")
    if real.exits != model.exits:
        found.append(f"exits: expected {real.exits}, got {model.exits}")
    return found


@pytest.mark.parametrize("name", NAMES)
def test_the_simulated_broker_does_what_the_recorded_one_did(name):
    real = recorded(name)
    assert all(real.transitions.values())
    assert all(real.log.values())
    assert differences(real, simulated(name)) == []


def test_every_recording_has_a_scenario_and_every_scenario_a_recording():
    for kind in ("json", "log"):
        assert sorted(path.stem for path in (HERE / "recorded").glob(f"*.{kind}")) == NAMES


# ---- durations that a limit fixes ------------------------------------------------------------------------


def cleanup_ns(run: Run) -> int:
    held = [line.what.held_ns for line in run.lines if isinstance(line.what, Moved) and line.what.old == "cleanup"]
    return held[0]  # the leader's: a follower enters CLEANUP after it


@pytest.mark.parametrize(
    "name",
    [
        "05-sigterm-stuck-epilog",  # cleanup-timeout 3 s
        "10-cleanup-catches-hup",  # 2 s
        "34-cleanup-timeout-zero",
        "07-second-sigterm",  # by the second signal, 4 s after the first
        "07-second-sigterm--shutdown-then-term",
    ],
)
def test_a_cleanup_that_its_limit_or_a_signal_ends_lasts_as_long_as_the_recorded_one(name):
    assert abs(cleanup_ns(simulated(name)) - cleanup_ns(recorded(name))) <= 50 * MS


@pytest.mark.parametrize(
    ("name", "rank", "state"),
    [
        ("15-sigstop-leaf--timeout3", 0, "shutdown"),  # shutdown-timeout 3 s
        ("35-leaf-goodbye-timeout", 0, "shutdown"),  # 2 s
        ("38-leaf-rc3-hang-shutdown-timeout", 0, "shutdown"),  # 2 s
        ("35-leaf-goodbye-timeout", 1, "goodbye"),  # always 60 s
        ("27b-orphan-leaf-stop", 1, "goodbye"),
    ],
)
def test_a_state_that_its_limit_ends_lasts_as_long_as_the_recorded_one(name, rank, state):
    def held_ns(run: Run) -> int:
        (held,) = [
            line.what.held_ns
            for line in run.lines
            if line.rank == rank and isinstance(line.what, Moved) and line.what.old == state
        ]
        return held

    assert abs(held_ns(simulated(name)) - held_ns(recorded(name))) <= 60 * MS


def test_shutdown_timeout_is_logged_when_it_was_logged():
    def between(run: Run) -> int:
        times = {as_flux_log(line, ("vm",)).split(": ", 1)[1].split(" ")[0]: line.t_ns for line in run.lines}
        return times["shutdown"] - times["cleanup-success:"]

    name = "12-rc3--hangs"
    assert abs(between(simulated(name)) - between(recorded(name))) <= 50 * MS


# ---- the comparison can see ------------------------------------------------------------------------------

MUTATIONS = [
    # name, text of the scenario, instead of it, what must differ
    ("08-cleanup-push", "exit = 5", "exit = 6", {"actions of rank 0", "log of rank 0", "exits"}),
    ("08-cleanup-push", "exit = 9", "exit = 8", {"actions of rank 0", "log of rank 0"}),
    ("08-cleanup-push", "cleanup-push second", "cleanup-push first", {"actions of rank 0", "log of rank 0", "exits"}),
    ("08-cleanup-push", 'prints-err = ["second-pushed"]', "", {"log of rank 0"}),
    ("05-sigterm-stuck-epilog", 'do = "sigterm"', 'do = "signal HUP"', {"log of rank 0"}),
    ("02-rc2-fails--killed", '"KILL"', "0", {"transitions of rank 0", "actions of rank 0", "log of rank 0", "exits"}),
    ("24-exit-norestart--flux-shutdown", '"42"', '"41"', {"exits"}),
    ("24-exit-norestart--sigterm", 'do = "sigterm"', 'do = "shutdown"', {"log of rank 0", "exits"}),
    ("25-sd-notify--sigterm", '"90"', '"91"', {"notified of rank 0", "notified of rank 1"}),
    ("14-kill9-leaf--idle", 'ranks = "2"', 'ranks = "1"', {"transitions of rank 1", "errors of rank 0", "exits"}),
    ("16-kill9-router--idle", 'do = "crash"', 'do = "freeze"', {"transitions of rank 0", "errors of rank 0", "exits"}),
    ("33-sigstop-then-kill-leaf", 'do = "crash"', 'do = "thaw"', {"transitions of rank 1", "log of rank 0", "exits"}),
    ("36-router-restart--leader", 'do = "restart"', 'do = "thaw"', {"transitions of rank 0", "errors of rank 1"}),
    ("44-overlay-disconnect--leaf", "disconnect 1", "disconnect 0", {"errors of rank 0", "errors of rank 1", "exits"}),
    ("15-sigstop-leaf--none", 'do = "thaw"', 'do = "crash"', {"transitions of rank 1", "exits"}),
    ("39-cleanup-bg-stdout--setsid", 'cleanup-timeout" = "2"', 'cleanup-timeout" = "9"', {"transitions of rank 0"}),
]


@pytest.mark.parametrize(("name", "old", "new", "seen"), MUTATIONS)
def test_a_changed_scenario_is_told_apart(name, old, new, seen):
    found = {text.split(": ", 1)[0] for text in differences(recorded(name), simulated(name, old, new))}
    assert seen <= found


def test_a_changed_recording_is_told_apart():
    name = "08-cleanup-push"
    model = simulated(name)
    for part in ("transitions", "actions", "log"):
        real = recorded(name)
        entries = getattr(real, part)[0]
        entries[3], entries[4] = entries[4], entries[3]
        assert [text.split(" of ")[0] for text in differences(real, model)] == [part]
    real = recorded("25-sd-notify--flux-shutdown")
    real.notified[0].pop()
    assert differences(real, simulated("25-sd-notify--flux-shutdown")) != []
    real = recorded(name)
    real.exits[0] = 9
    assert differences(real, model) == ["exits: expected {0: 9}, got {0: 5}"]


def test_a_longer_cleanup_timeout_is_told_apart():
    name = "05-sigterm-stuck-epilog"
    longer = simulated(name, 'cleanup-timeout" = "3"', 'cleanup-timeout" = "3.1"')
    assert abs(cleanup_ns(longer) - cleanup_ns(recorded(name))) > 50 * MS
