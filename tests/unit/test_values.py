"""Time spans, booleans, signals and exit statuses as systemd reads them."""

import shutil
import signal
import subprocess
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerctl.durations import DAY, HOUR, MINUTE, MS, US, S
from brokerctl.records.units import ExitStatuses
from brokerctl.unit import values


@pytest.mark.parametrize(
    ("text", "expected_ns"),
    [
        ("90", 90 * S), ("1min 30s", 90 * S), ("1.5h", 90 * MINUTE), ("500ms", 500 * MS), ("0", 0), ("10us", 10 * US),
        ("2 min", 2 * MINUTE), ("1h2m3s", HOUR + 2 * MINUTE + 3 * S), ("5 5", 10 * S), ("infinity", None),
        (" 1d ", DAY), ("+5", 5 * S), ("0.1us", 0), ("1µs", US),
    ],
)  # fmt: skip
def test_a_time_span_is_read_as_systemd_reads_it(text, expected_ns):
    assert values.span(text) == expected_ns


@pytest.mark.parametrize(
    "text", ["", " ", "soon", "-5", "5 parsecs", "1..5", "5s,", "none", "infinity 5", "9" * 30, "٣", "5 min x"]
)
def test_what_is_no_time_span_is_refused(text):
    with pytest.raises(ValueError, match="is no time span"):
        values.span(text)


def test_a_limit_of_zero_is_no_limit():
    assert values.timeout("0") is None
    assert values.timeout("5") == 5 * S


@pytest.mark.parametrize(
    ("text", "number"),
    [("SIGTERM", 15), ("TERM", 15), ("15", 15), ("RTMIN+3", signal.SIGRTMIN + 3), ("SIGRTMAX-2", signal.SIGRTMAX - 2)],
)
def test_a_signal_has_a_name_or_a_number(text, number):
    assert values.signal_number(text) == number


@pytest.mark.parametrize("text", ["", "term", "0", "65", "RTMIN+99", "RTMAX-99", "SIG", "SIGNOPE", "²"])
def test_what_is_no_signal_is_refused(text):
    with pytest.raises(ValueError, match="is no signal"):
        values.signal_number(text)


def test_exit_statuses_are_codes_names_and_signals():
    assert values.exit_statuses("42 TEMPFAIL SIGKILL 42") == ExitStatuses((42, 75), (9,))


def test_of_a_list_of_statuses_what_can_be_read_holds():
    with pytest.raises(values.PartlyError, match="'forty' is no exit status") as caught:
        values.exit_statuses("42 forty KILL")
    assert caught.value.value == ExitStatuses((42,), (9,))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_the_names_of_exit_statuses_are_those_of_systemd():
    done = subprocess.run(
        ["systemd-analyze", "exit-status"], capture_output=True, text=True, check=True, timeout=20
    )  # fmt: skip
    rows = [line.split()[:2] for line in done.stdout.splitlines()[1:]]
    for name, code in rows:
        assert values.exit_statuses(name) == ExitStatuses((int(code),)), name


@given(st.text(max_size=20))
def test_any_text_is_a_value_or_a_mistake_that_is_told(text):
    for read in (values.span, values.boolean, values.signal_number, values.exit_statuses, values.one_of("a", "b")):
        with suppress(ValueError):
            read(text)
