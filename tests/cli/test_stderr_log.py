"""The log on stderr: Flux's format, colours for a person, and a reader that can't hold the broker up."""

import os
import pty
import re
import time

import pytest

from brokerctl.cli.stderr_log import KEPT_BYTES_MAX, StderrLog
from brokerctl.records import Ended, Ignored, Line, Log, Moved, Signal

MOVED = Moved("shutdown", "run", "cleanup", 1_506_560_000)
FAILED = Ended("cleanup.3", "flux queue idle", 129, "Hangup", 2_400_000_000)


def line(what):
    return Line(0, 0, 0, ">", what)


def log(text, level=6):
    return line(Log("broker", level, text))


def read(fd):
    data = b""
    while True:
        try:
            more = os.read(fd, 1 << 16)
        except OSError:
            return data.decode()
        if not more:
            return data.decode()
        data += more


@pytest.fixture
def pipe():
    reader, writer = os.pipe()
    yield reader, writer
    for fd in (reader, writer):
        try:
            os.close(fd)
        except OSError:
            continue


def test_a_service_manager_gets_the_lines_of_flux_with_their_level(pipe):
    reader, writer = pipe
    sink = StderrLog(["vm"], writer)
    for what in (Signal(15), MOVED, FAILED, Ignored("panic", "cleanup")):
        sink(line(what))
    sink(log("two\nlines", 4))
    os.close(writer)
    assert read(reader).splitlines() == [
        "<6>broker.info[0]: shutdown: run->cleanup 1.50656s",
        "<3>broker.err[0]: cleanup.3: flux queue idle Hangup (rc=129) 2.4s",
        "<4>broker.warning[0]: two",
        "<4>broker.warning[0]: lines",
    ]


def _on_terminal(env, *whats):
    master, slave = pty.openpty()
    try:
        sink = StderrLog(["vm"], slave, env=env)
        for what in whats:
            sink(what)
        data = b""
        while data.count(b"\n") < len(whats):  # a terminal hands it on in pieces
            data += os.read(master, 1 << 16)
        return data.decode().splitlines()
    finally:
        os.close(slave)
        os.close(master)


def test_a_person_gets_times_and_colours_and_no_tricks_of_the_terminal():
    moved, failed, tricky = _on_terminal({"TERM": "xterm"}, line(MOVED), line(FAILED), log("\x1b]0;owned\x07ƒ"))
    assert re.fullmatch(r"\x1b\[2m\d\d:\d\d:\d\d\.\d{3} broker\x1b\[0m  shutdown: run->cleanup 1.50656s", moved)
    assert "\x1b[31mcleanup.3: flux queue idle Hangup (rc=129) 2.4s\x1b[0m" in failed
    assert tricky.endswith(r"\x1b]0;owned\x07ƒ")


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_colours_can_be_declined(env):
    (text,) = _on_terminal(env, line(FAILED))
    assert re.fullmatch(r"\d\d:\d\d:\d\d\.\d{3} broker  cleanup\.3: flux queue idle Hangup \(rc=129\) 2\.4s", text)


def test_a_reader_that_does_not_read_costs_a_bounded_memory_and_no_time_and_is_told_what_it_missed(pipe):
    reader, writer = pipe
    sink = StderrLog(["vm"], writer)
    began = time.monotonic()
    for number in range(20_000):
        sink(log(f"{number} {'x' * 80}"))
    assert time.monotonic() - began < 5
    assert sink._kept_bytes <= KEPT_BYTES_MAX + 200
    os.set_blocking(reader, False)
    got = read(reader)
    while sink._kept:
        sink(log("last"))
        got += read(reader)
    sink(log("last"))
    rows = (got + read(reader)).splitlines()
    numbers = [int(found[1]) for row in rows if (found := re.fullmatch(r"<6>broker\.info\[0\]: (\d+) x{80}", row))]
    assert numbers == list(range(len(numbers)))
    assert f"<4>broker.warning[0]: {20_000 - len(numbers)} lines were not logged: nobody read them" in rows
    assert rows[-1] == "<6>broker.info[0]: last"


def test_the_end_does_not_wait_for_a_reader_that_does_not_read(pipe):
    sink = StderrLog(["vm"], pipe[1])
    for _ in range(2_000):
        sink(log("x" * 80))
    began = time.monotonic()
    sink.close()
    assert time.monotonic() - began < 2


def test_a_reader_that_has_gone_and_a_closed_stderr_are_no_errors(pipe):
    reader, writer = pipe
    sink = StderrLog(["vm"], writer)
    os.close(reader)
    sink(log("a"))
    sink(log("b"))
    sink.close()


def test_a_non_blocking_stderr_that_is_full_is_no_error(pipe):
    reader, writer = pipe
    os.set_blocking(writer, False)
    sink = StderrLog(["vm"], writer)
    for number in range(2_000):
        sink(log(f"{number} {'x' * 80}"))
    os.set_blocking(reader, False)
    assert read(reader).startswith("<6>broker.info[0]: 0 x")
