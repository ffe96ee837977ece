"""Durations: what users write is read exactly, what Flux logs is written alike."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerctl.durations import DAY, HOUR, LIMIT_NS, MINUTE, MS, S, as_fsd, as_short, as_text, parse


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("45", 45 * S), ("0", 0), ("1.5m", 90 * S), ("200ms", 200 * MS), ("1h", HOUR), ("2d", 2 * DAY),
        (" 5S ", 5 * S), (".5s", 500 * MS), ("0.1us", 100), ("3ns", 3), ("1e3", 1000 * S), ("none", None),
        ("inf", None), ("Infinity", None), ("0.000000001", 1), ("36525d", LIMIT_NS),
    ],
)  # fmt: skip
def test_a_duration_is_read_exactly(text, ns):
    assert parse(text) == ns


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "s", "-1", "+1", "1 s", "1.2.3", "1x", "1_000", "nan", "1e", "0x10", "5 m 3 s", "1,5", "\u00b2",
        "\u0661", "--", "1e999999999", "9e999999d", "1sm",
    ],
)  # fmt: skip
def test_what_is_no_duration_is_refused_in_one_line(text):
    with pytest.raises(ValueError, match=r"^'.*' (is no duration; expected a number|is longer than)") as caught:
        parse(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["36526d", "1e30", "4e9"])
def test_more_than_a_century_is_a_mistake(text):
    with pytest.raises(ValueError, match="longer than a century"):
        parse(text)


@given(st.integers(0, LIMIT_NS) | st.none())
def test_the_text_of_a_duration_is_read_back_exactly(ns):
    assert parse(as_text(ns)) == ns


@given(st.text(max_size=20))
def test_any_text_is_a_duration_or_a_value_error(text):
    try:
        ns = parse(text)
    except ValueError:
        return
    assert ns is None or 0 <= ns <= LIMIT_NS


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (None, "none"), (0, "0s"), (45 * S, "45s"), (1_500 * MS, "1.5s"), (5 * MINUTE, "5m"), (90 * S, "90s"),
        (20 * MS, "20ms"), (2 * HOUR, "2h"), (3 * DAY, "3d"), (1, "0.000001ms"),
    ],
)  # fmt: skip
def test_the_text_is_the_one_that_a_person_would_write(ns, text):
    assert as_text(ns) == text


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (75_544_400, "75.5444ms"),
        (3_003_030_000, "3.00303s"),
        (60_000_600_000, "1.00001m"),
        (12_899, "0.012899ms"),
        (100 * MS, "0.1s"),
        (1_506_564_321, "1.50656s"),
        (HOUR, "1h"),
        (36 * HOUR, "1.5d"),
        (0, "0ms"),
        (1, "1e-06ms"),
    ],
)
def test_the_time_in_a_state_is_written_as_flux_does(ns, text):
    assert as_fsd(ns) == text


@given(st.integers(0, LIMIT_NS))
def test_the_time_in_a_state_is_right_to_six_digits(ns):
    back = parse(as_fsd(ns))
    assert back is not None
    assert abs(back - ns) <= ns * 1e-5


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (120 * MS, "120ms"), (2_412 * MS, "2.4s"), (45 * S, "45s"), (119 * S, "119s"), (303 * S, "5m3s"),
        (300 * S, "5m"), (7 * HOUR, "7h"), (7 * HOUR + 65 * S, "7h1m"), (0, "0ms"), (9_960 * MS, "10s"),
        (999_900_000, "1.0s"), (119_900 * MS, "2m"),
    ],
)  # fmt: skip
def test_people_get_a_short_form(ns, text):
    assert as_short(ns) == text
