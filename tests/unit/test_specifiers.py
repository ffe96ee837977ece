"""Specifiers: what a unit's name puts in for them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerctl.unit.specifiers import expand, split_name, unescape


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("%i|%I|%p|%n|%N", "a-b@x-y.service", "x-y|x/y|a-b|a-b@x-y.service|a-b@x-y"),
        ("%j|%P|%f", "a-b@x-y.service", "b|a/b|/x/y"),
        (r"%i|%I", r"u@a\x2db.service", r"a\x2db|a-b"),
        ("%%i %t %H %", "u.service", "%i /run %H %"),
        ("%i", "u@.service", ""),
        ("%f", "mnt-data.service", "/mnt/data"),
    ],
)
def test_a_specifier_stands_for_what_the_name_tells(text, name, expected):
    assert expand(text, name) == expected


def test_an_escaped_name_may_hold_anything():
    assert unescape(r"x\x22\x3becho\x20-") == 'x";echo /'


@given(st.text(max_size=20), st.text(max_size=20))
def test_any_text_and_any_name_are_put_together(text, name):
    expand(text, name)
    split_name(name)
