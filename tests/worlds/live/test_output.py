import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerctl.worlds.live import output
from brokerctl.worlds.live.output import LINE_MAX, SHOWN_BYTES_MAX, SHOWN_LINES_MAX, Cap, Stream, cut


class Reading:
    """A stream whose other end a test writes to."""

    def __init__(self):
        reader, self.writer = os.pipe()
        self.cap = Cap()
        self.lines = []
        self.stream = Stream(reader, "out", self.cap, lambda _, text: self.lines.append(text))

    def write(self, data):
        os.write(self.writer, data)
        return self

    def feed(self, data):
        """Write and read in turns, as much as there is."""
        for at in range(0, len(data), 32 << 10):
            os.write(self.writer, data[at : at + (32 << 10)])
            assert self.stream.read_out()

    def end(self):
        os.close(self.writer)
        self.writer = -1
        return self.stream.read_out()

    def close(self):
        os.close(self.stream.fd)
        if self.writer >= 0:
            os.close(self.writer)


@pytest.fixture
def reading():
    made = Reading()
    yield made
    made.close()


def test_lines_come_as_they_are_complete(reading):
    reading.write(b"one\ntw")
    assert reading.stream.read() == 6
    assert reading.lines == ["one"]
    reading.write(b"o\n\n")
    reading.stream.read()
    assert reading.lines == ["one", "two", ""]
    assert reading.stream.read() == 0


def test_a_last_line_without_newline_is_kept(reading):
    reading.write(b"one\nlast words")
    assert reading.end() is False
    assert reading.lines == ["one", "last words"]
    assert reading.cap.dropped == 0


def test_what_is_no_utf8_is_shown_escaped(reading):
    reading.feed(b"caf\xc3\xa9 \xff\xfe\x00\n")
    assert reading.lines == ["café \\xff\\xfe\x00"]


def test_a_long_line_is_cut_between_characters(reading):
    reading.feed("ƒ".encode() * LINE_MAX + b"\n")
    assert "".join(reading.lines) == "ƒ" * LINE_MAX
    assert all(len(line.encode()) <= LINE_MAX for line in reading.lines)
    assert len(reading.lines) == 2


def test_beyond_the_cap_bytes_are_counted_and_nothing_is_kept(reading):
    line = b"x" * 99 + b"\n"
    reading.feed(line * 2000)
    assert reading.end() is False
    shown = sum(len(text) + 1 for text in reading.lines)
    assert shown <= SHOWN_BYTES_MAX
    assert shown + reading.cap.dropped == 2000 * len(line)


def test_the_number_of_lines_is_bounded_too(reading):
    reading.feed(b"\n" * 5000)
    assert len(reading.lines) == SHOWN_LINES_MAX
    assert reading.cap.dropped == 5000 - SHOWN_LINES_MAX


def test_an_endless_line_costs_no_memory(reading):
    for _ in range(100):
        reading.feed(b"y" * (32 << 10))
        assert len(reading.stream._partial) <= LINE_MAX
    assert sum(map(len, reading.lines)) + reading.cap.dropped + len(reading.stream._partial) == 100 * (32 << 10)


def test_one_reading_is_bounded(reading):
    reading.write(b"x\n" * 30_000)
    assert reading.stream.read() <= output._READ_SHOWN
    reading.cap.lines_left = 0
    assert reading.stream.read() <= output._READ_COUNTED


@given(st.lists(st.binary(max_size=3000), max_size=30), st.booleans())
def test_every_byte_is_shown_or_counted(pieces, newline):
    reading = Reading()
    try:
        data = b"".join(pieces) + (b"\n" if newline else b"")
        for piece in [*pieces, b"\n" if newline else b""]:
            if piece:
                reading.feed(piece)
        assert reading.end() is False
        assert reading.cap.dropped >= 0
        if not reading.cap.dropped:
            expected = data.decode(errors="backslashreplace")
            assert "".join(reading.lines) == expected.replace("\n", "")
        assert len(reading.lines) <= SHOWN_LINES_MAX
        assert all(text.encode() or not text for text in reading.lines)
    finally:
        reading.close()


@given(st.binary(max_size=3 * LINE_MAX))
def test_a_cut_loses_nothing_and_makes_progress(line):
    piece, rest = cut(line)
    assert piece + rest == line
    assert len(piece) <= LINE_MAX
    assert piece or not line


@given(st.text(min_size=1, max_size=20), st.integers(0, 10))
def test_a_cut_keeps_characters_whole(text, offset):
    text = "x" * offset + text * (LINE_MAX // len(text.encode()) + 2)
    piece, rest = cut(text.encode())
    assert piece.decode() + rest.decode() == text
