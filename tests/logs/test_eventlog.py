"""Eventlogs are read as RFC 18 has them."""

import pytest

from brokerctl.durations import S
from brokerctl.errors import TraceError
from brokerctl.logs.eventlog import Entry, parse, parse_line


def test_an_event_has_a_time_a_name_and_perhaps_a_context():
    assert parse_line('{"timestamp":12.5,"name":"free"}') == Entry(12 * S + S // 2, "free", {})
    found = parse_line('{"timestamp":1795987190.786787,"name":"finish","context":{"status":0}}')
    assert (found.name, found.context) == ("finish", {"status": 0})
    assert abs(found.t_ns - 1_795_987_190_786_787_000) < 1000  # a double has no more digits


def test_an_eventlog_that_is_still_being_written_ends_before_its_last_line():
    assert [one.name for one in parse('{"timestamp":1,"name":"a"}\n\n{"timestamp":2,"name":"b"}\n{"times')] == [
        "a",
        "b",
    ]


@pytest.mark.parametrize(
    "text", ["", "x", "{}", '{"timestamp":"now","name":"a"}', '{"timestamp":1,"name":"a","context":1}']
)
def test_what_is_no_event_is_told_in_one_line(text):
    with pytest.raises(TraceError, match=r"^no event of an eventlog: .+") as caught:
        parse_line(text)
    assert "\n" not in str(caught.value)
