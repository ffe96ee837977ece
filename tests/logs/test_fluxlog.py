"""The log lines of Flux: what is written is what Flux writes, and is read back as what it was."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerctl.durations import DAY, MS, S
from brokerctl.logs.fluxlog import SEVERITIES, as_flux_log, entry, parse
from brokerctl.model.lifecycle import TRANSITIONS
from brokerctl.model.words import ERRORS, SIGNALS
from brokerctl.records import Command, Ended, Exit, Ignored, Line, Log, Moved, Signal, Start, Unreachable

RECORDED = Path(__file__).parent.parent / "conformance" / "recorded"
HOSTS = ("picl0", "picl1")


def text_of(what, rank=0):
    return as_flux_log(Line(0, rank, 0, ">", what), HOSTS)


@pytest.mark.parametrize(
    ("what", "text"),
    [
        (
            Moved("shutdown", "run", "cleanup", 1_506_560_000),
            "<6>broker.info[0]: shutdown: run->cleanup 1.50656s",
        ),
        (
            Moved("cleanup-none", "cleanup", "shutdown", 59_018),
            "<6>broker.info[0]: cleanup-none: cleanup->shutdown 0.059018ms",
        ),
        (Ignored("rc2-none", "run"), "<7>broker.debug[0]: rc2-none: ignored in run"),
        (
            Ended("cleanup.3", "flux queue idle --quiet", 129, "Hangup", 2_412_000_000),
            "<3>broker.err[0]: cleanup.3: flux queue idle --quiet Hangup (rc=129) 2.4s",
        ),
        (
            Ended("rc1.0", "flux modprobe rc1", 0, "Exited", 554 * MS),
            "<6>broker.info[0]: rc1.0: flux modprobe rc1 Exited (rc=0) 0.6s",
        ),
        (Log("overlay", 2, "disconnect"), "<2>overlay.crit[0]: disconnect"),
        (
            Unreachable(1, "stuck: epilog"),
            "<3>job-manager.err[0]: stuck: epilog: picl1 (rank 1): No route to host",
        ),
        (
            Unreachable(1, "housekeeping: stuck"),
            "<3>job-manager.err[0]: housekeeping: picl1 (rank 1) stuck: No route to host",
        ),
    ],
)
def test_a_fact_has_the_text_that_flux_prints_and_is_read_back(what, text):
    assert text_of(what) == text
    found = parse(text)
    assert found is not None
    if isinstance(what, Ended):
        assert found.what == Ended(what.run, what.command, what.rc, what.how, round(what.held_ns / S, 1) * S)
    else:
        assert found.what == what


@pytest.mark.parametrize("what", [Start("rc1.0", Command("x")), Exit(0), Signal(15)])
def test_orders_and_inputs_have_no_text(what):
    assert text_of(what) is None
    assert entry(Line(0, 0, 0, ">", what), HOSTS) is None


def test_every_line_of_a_text_has_the_head():
    assert text_of(Log("broker", 6, "a\nb"), rank=1) == "<6>broker.info[1]: a\n<6>broker.info[1]: b"


@pytest.mark.parametrize("level", range(8))
def test_every_level_of_syslog_is_written_and_read(level):
    found = parse(text_of(Log("kvs", level, "text")))
    assert found is not None
    assert found.what == Log("kvs", level, "text")


@pytest.mark.parametrize(
    "before",
    [
        "<6>", "", "    5.536 <6>", "5.536 <6>", "2026-11-29T18:02:11.123456Z ",
        "Nov 29 18:02:11 picl0 flux[417]: ", "Nov  9 18:02:11.123456 picl0 flux-broker[417]: ",
        "2026-11-29T18:02:11+0000 picl0 flux[417]: ", "[12345.678901] picl0 flux[1]: ",
    ],
)  # fmt: skip
def test_what_stands_before_the_head_may_be_a_time_and_a_unit(before):
    found = parse(f"{before}broker.info[3]: shutdown: run->cleanup 1.50656s\n")
    assert found is not None
    assert found.rank == 3
    assert found.what == Moved("shutdown", "run", "cleanup", 1_506_560_000)
    assert found.t_ns == (5_536 * MS if "5.536" in before else None)


@pytest.mark.parametrize(
    "text",
    [
        "", "hello", "flux-start: 0 (pid 17) exited with rc=137", "    2.084 <<EOF>>", "broker.info: text",
        "broker.loud[0]: text", "he said broker.info[0]: text", "<6>broker.info[-1]: text",
        "<9>broker.info[0]: text",
    ],
)  # fmt: skip
def test_what_is_no_flux_log_line_is_not_taken_for_one(text):
    assert parse(text) is None


@pytest.mark.parametrize(
    ("text", "command", "how", "rc"),
    [
        ("echo Exited (rc=3) 0.1s Exited (rc=0) 0.1s", "echo Exited (rc=3) 0.1s", "Exited", 0),
        ("kill -9 $$ Killed (rc=137) 0.1s", "kill -9 $$", "Killed", 137),
        ("echo Killed Exited (rc=137) 0.1s", "echo Killed", "Exited", 137),
        ("flux cancel --states RUN Exited (rc=0) 0.2s", "flux cancel --states RUN", "Exited", 0),
        ("x aborted after exit with rc=0 (rc=1) 9.0s", "x", "aborted after exit with rc=0", 1),
        ("x still running (rc=137) 12.0s", "x", "still running", 137),
        (
            "/no/such error launching process: No such file or directory (rc=127) 0.0s",
            "/no/such",
            "error launching process: No such file or directory",
            127,
        ),
    ],
)
def test_an_action_is_read_from_the_right(text, command, how, rc):
    severity = "<3>broker.err" if rc else "<6>broker.info"
    found = parse(f"{severity}[0]: cleanup.1: {text}")
    assert found is not None
    assert isinstance(found.what, Ended)
    assert (found.what.run, found.what.command, found.what.how, found.what.rc) == (
        "cleanup.1",
        command,
        how,
        rc,
    )


@pytest.mark.parametrize(
    "text",
    [
        "<6>broker.info[0]: cleanup.1: /bin/bash: line 1: x (rc=3) 0.1s",  # no outcome before the code
        "<3>broker.err[0]: cleanup.1: x Hangup (rc=137) 0.1s",  # that is no death by signal 9
        "<3>broker.err[0]: cleanup.1: x Exited (rc=0) 0.1s",  # Flux logs a success as info
        "<6>broker.info[0]: shutdown: run->cleanup soon",
        "<6>kvs.info[0]: shutdown: run->cleanup 1.5s",  # another component's words
        "<6>broker.info[0]: ignored signal 15 in shutdown",
    ],
)
def test_what_only_resembles_a_fact_is_a_log_line(text):
    found = parse(text)
    assert found is not None
    assert isinstance(found.what, Log)


# ---- round trips -------------------------------------------------------------------------------------------

held = st.integers(0, 30 * DAY)
line_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"), min_size=1)
run_name = st.builds("{}.{}".format, st.sampled_from(["rc1", "rc2", "cleanup", "rc3"]), st.integers(0, 999))


def outcomes(rc):
    found = ["Exited"]
    if rc - 128 in SIGNALS:
        found.append(SIGNALS[rc - 128])
    if rc == 1:
        found.append("aborted after exit with rc=0")
    if rc in {126, 127}:
        found += [f"error launching process: {text}" for text in ERRORS.values()]
    return st.sampled_from(found)


transitions = [(event, old, new) for old, row in TRANSITIONS.items() for event, new in row.items()]


@given(st.sampled_from(transitions), held, st.integers(0, 20_000))
def test_every_transition_is_read_back_with_six_digits_of_its_time(row, held_ns, rank):
    found = parse(as_flux_log(Line(0, rank, 0, ">", Moved(*map(str, row), held_ns)), ()))
    assert found is not None
    assert found.rank == rank
    assert isinstance(found.what, Moved)
    assert (found.what.event, found.what.old, found.what.new) == row
    assert abs(found.what.held_ns - held_ns) <= held_ns * 1e-5


@given(run_name, line_text, held, st.data())
def test_every_action_is_read_back_whatever_its_command_says(run, command, held_ns, data):
    rc = data.draw(st.integers(0, 255) | st.sampled_from([126, 127, *(128 + number for number in SIGNALS)]))
    how = data.draw(outcomes(rc))
    found = parse(text_of(Ended(run, command, rc, how, held_ns)))
    assert found is not None
    assert isinstance(found.what, Ended)
    assert (found.what.run, found.what.command, found.what.rc, found.what.how) == (run, command, rc, how)
    assert abs(found.what.held_ns - held_ns) <= 50 * MS


@given(st.text(st.characters(codec="utf-8"), max_size=80))
def test_any_text_is_read_without_an_error(text):
    parse(text)
    parse(f"<6>broker.info[0]: {text}")


@given(line_text, st.integers(0, 7), st.sampled_from(["broker", "job-manager", "kvs-watch"]))
def test_whatever_a_log_line_is_taken_for_its_text_is_the_same_again(text, level, component):
    written = text_of(Log(component, level, text))
    found = parse(written)
    assert found is not None
    if isinstance(found.what, Log):
        assert found.what == Log(component, level, text)
    assert text_of(found.what) == written


# ---- real logs ---------------------------------------------------------------------------------------------


def recorded_lines():
    for path in sorted(RECORDED.glob("*.log")):
        for number, text in enumerate(path.read_text().splitlines(), 1):
            yield f"{path.name}:{number}", text


def test_every_recorded_line_of_a_broker_is_read_as_its_kind_and_written_alike():
    kinds = Counter()
    for where, text in recorded_lines():
        found = parse(text)
        if found is None:
            # What flux-start, rc2 and Python modules print themselves, without a logger.
            assert not any(f".{severity}[" in text for severity in SEVERITIES), where
            continue
        kinds[type(found.what)] += 1
        assert text.endswith(as_flux_log(Line(0, found.rank, 0, ">", found.what), ("vm",) * 8)), where
        assert found.t_ns is not None, where
        if isinstance(found.what, Log) and found.what.component == "broker":
            assert "->" not in text, where
            assert "(rc=" not in text, where
            assert ": ignored in " not in text, where
    assert all(kinds[kind] >= 10 for kind in (Moved, Ended, Ignored, Log)), kinds


def test_the_names_of_signals_are_those_of_the_c_library():
    for number, name in SIGNALS.items():
        assert signal.strsignal(number) == name
