"""A unit and its drop-ins: which come first, what an empty value takes back, what is no unit at all."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerctl.durations import S
from brokerctl.records.units import ExitStatuses, UnitSettings
from brokerctl.unit import Unit, UnitError, load, merge, service
from brokerctl.unit.syntax import parse

BASE = "[Service]\nExecStart=/bin/true\nTimeoutStopSec=5\nSuccessExitStatus=1\n"


@pytest.fixture
def place(tmp_path):
    def write(name, text):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    return write


def test_drop_ins_are_read_after_the_unit_in_the_order_of_their_names(place):
    path = place("x.service", BASE)
    place("x.service.d/20.conf", "[Service]\nTimeoutStopSec=20\nSuccessExitStatus=3\n")
    place("x.service.d/10.conf", "[Service]\nTimeoutStopSec=10\nSuccessExitStatus=\nSuccessExitStatus=2\n")
    unit = load(path)
    assert unit.value("TimeoutStopSec") == 20 * S
    assert unit.value("SuccessExitStatus") == ExitStatuses((2, 3))
    assert unit.last("TimeoutStopSec").at.path.endswith("20.conf")


def test_an_instance_has_the_drop_ins_of_its_template_and_of_its_prefixes(tmp_path, place):
    place("a-b@.service", BASE)
    place("a-b@.service.d/1.conf", "[Service]\nTimeoutStopSec=1\n")
    place("a-b@x.service.d/2.conf", "[Service]\nTimeoutStopSec=2\n")
    place("a-@.service.d/3.conf", "[Service]\nTimeoutStartSec=3\n")
    place("service.d/0.conf", "[Service]\nRestartSec=4\nTimeoutStopSec=4\n")
    found = merge.drop_ins(tmp_path, "a-b@x.service")
    assert [path.name for path in found] == ["0.conf", "1.conf", "2.conf", "3.conf"]
    unit = load(tmp_path / "a-b@.service", "a-b@x.service")
    assert unit.value("TimeoutStopSec") == 2 * S


def test_of_two_drop_ins_with_one_name_the_more_special_holds(tmp_path, place):
    place("service.d/1.conf", "[Service]\nTimeoutStopSec=1\n")
    special = place("x.service.d/1.conf", "[Service]\nTimeoutStopSec=2\n")
    assert merge.drop_ins(tmp_path, "x.service") == [special]


def test_an_unreadable_value_leaves_the_one_before_it(place):
    unit = load(place("x.service", BASE + "TimeoutStopSec=soon\nRestart=sometimes\n"))
    assert unit.value("TimeoutStopSec") == 5 * S
    assert unit.value("Restart") == "no"
    assert unit.last("TimeoutStopSec").value == "5"
    assert [problem.at.line for problem in unit.problems] == [5, 6]


def test_a_broken_command_refuses_the_unit_but_in_a_drop_in_ends_only_that_file(place):
    broken = place("bad.service", "[Service]\nExecStart=/bin/sh 'open\n")
    assert load(broken).problems[0].fatal
    path = place("x.service", BASE)
    place("x.service.d/1.conf", "[Service]\nExecStop=./relative\nTimeoutStopSec=9\n")
    unit = load(path)
    assert not unit.problems[0].fatal
    assert unit.value("TimeoutStopSec") == 5 * S


def test_a_record_has_what_follows_from_other_settings(place):
    record = service.settings(load(place("x.service", "[Service]\nType=oneshot\nExecStart=/bin/true\nWatchdogSec=9\n")))
    assert record.timeout_start_ns is None
    assert record.notify_access == "main"
    assert record.timeout_abort_ns == record.timeout_stop_ns == 90 * S


def test_an_empty_unit_has_the_defaults_of_systemd():
    record = service.settings(Unit("x.service", [parse(b"[Service]\n", "x.service")]))
    assert record == UnitSettings(notify_access="none")


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("x.txt", b"[Service]\n", "is no unit; expected a name that ends in .service"),
        ("x.service", b"\x7fELF\0\0", "has a NUL byte: a binary, no unit file"),
        ("x.service", b"hello\nworld\n", "has no \\[Section\\]; expected a unit file"),
        ("x.service", b"[Unit\n", "is no \\[Section\\]"),
        ("x.service", b"\xff\xfe", "is not UTF-8"),
        ("x.service", b"[Service]\n" + b"A" * (10 << 20), "a line is longer than 1 MiB"),
        ("x.service", b"\n" * (17 << 20), "larger than 16 MiB"),
    ],
    ids=["name", "binary", "text", "header", "bytes", "long-line", "large"],
)
def test_what_is_no_unit_file_is_told_in_one_line(tmp_path, name, data, said):
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(UnitError, match=said) as caught:
        load(path)
    assert "\n" not in str(caught.value)


def test_a_pipe_a_directory_and_nothing_are_no_unit_files(tmp_path):
    os.mkfifo(tmp_path / "p.service")
    (tmp_path / "d.service").mkdir()
    for name, said in (("p", "is no regular file"), ("d", "is no regular file|Is a directory"), ("n", "No such file")):
        with pytest.raises(UnitError, match=said):
            load(tmp_path / f"{name}.service")


def test_a_unit_of_nothing_but_comments_is_an_empty_one(place):
    assert load(place("x.service", "# masked\n")).settings() == []


@given(st.binary(max_size=300))
def test_a_unit_of_any_bytes_is_read_without_a_traceback(data):
    service.settings(Unit("a@b.service", [parse(b"[Service]\n" + data, "x.service")]))
