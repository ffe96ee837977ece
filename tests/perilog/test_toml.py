import json
import tomllib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brokerctl.perilog import toml

KEYS = st.text("abcXYZ-_09", min_size=1, max_size=6)
STRINGS = st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=10)
VALUES = st.recursive(STRINGS | st.booleans(), lambda inner: st.lists(inner, max_size=3), max_leaves=6)
PIECES = st.sampled_from(
    [
        "[", "]", "[[", '"', "'", "=", ",", "#", "\n", "\\", " ", "\t", "a", "b", "a = ", "[a]\n", '"x"', '""', '"""',
        "'''", "true", "false", "\r\n", "\0", "é", "\\u0041", "1", "a.b", "{}", "=\n", "\\n",
        "\x7f", ".", "-", "x = [\n",
    ]
)  # fmt: skip


@settings(max_examples=1500)
@given(st.lists(PIECES, max_size=14).map("".join))
def test_what_is_accepted_means_what_it_means_in_toml(text):
    try:
        tables = toml.parse(text)
    except ValueError as error:
        assert str(error).startswith("line ")  # noqa: PT017 - most are none, some are one
    else:
        assert tables == tomllib.loads(text)


def written(value, gap):
    if isinstance(value, list):
        return f"[{gap}{f',{gap}'.join(written(item, gap) for item in value)}{gap}]"
    return json.dumps(value, ensure_ascii=False)


@given(
    st.dictionaries(KEYS, st.dictionaries(KEYS, VALUES, max_size=3), max_size=3), st.sampled_from([" ", "\n  # why\n"])
)
def test_tables_of_strings_booleans_and_arrays_are_read(tables, gap):
    lines = []
    for name, table in tables.items():
        lines += [f"[{name}] # a table", *(f"{key} = {written(value, gap)}" for key, value in table.items())]
    text = "\n".join(lines)
    assert toml.parse(text) == tomllib.loads(text) == tables


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a = true", "line 1: expected a [table] first"),
        ("[a]\n\nb = 1", "line 3: expected a string, true, false"),
        ("[a]\n[a]", "line 2: a second [a]"),
        ("[a]\nb = true\nb = true", "line 3: a second b"),
        ('[a]\nb = "x', 'line 2: expected a closing "'),
        ('[a]\nb = ["x" "y"]', "line 2: expected ,"),
        ('[a]\nb = "x" c', "line 2: expected the end of the line"),
        ("[a]\nb = \x01", "line 2: a control character"),
    ],
)
def test_a_mistake_is_told_with_its_line(text, why):
    with pytest.raises(ValueError, match="line") as told:
        toml.parse(text)
    assert str(told.value).startswith(why)
