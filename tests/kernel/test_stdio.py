import os

import pytest

from brokerctl.kernel import stdio


@pytest.fixture
def pipe():
    reader, writer = os.pipe()
    yield reader, writer
    for fd in (reader, writer):
        try:
            os.close(fd)
        except OSError:
            continue


def test_what_fits_is_written_as_a_whole(pipe):
    data = b"x" * 10_000
    assert stdio.write(pipe[1], data)
    assert os.read(pipe[0], 20_000) == data


def test_a_reader_that_does_not_read_costs_the_text_and_no_time(pipe):
    assert not stdio.write(pipe[1], b"x" * (2 << 20))
    assert not stdio.write(pipe[1], b"more")


def test_a_reader_that_has_gone_costs_the_text_alone(pipe):
    os.close(pipe[0])
    assert not stdio.write(pipe[1], b"x")
    os.close(pipe[1])
    assert not stdio.write(pipe[1], b"x")
