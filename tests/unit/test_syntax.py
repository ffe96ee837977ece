"""The syntax of a unit file: continuations, comments, sections, and where each character of a value stands."""

from hypothesis import given
from hypothesis import strategies as st

from brokerctl.unit.syntax import LINE_MAX, Place, parse


def read(text):
    return parse(text if isinstance(text, bytes) else text.encode(), "x.service")


def values(text):
    return [(setting.section, setting.key, setting.value) for setting in read(text).settings]


def test_blanks_around_key_and_value_are_no_part_of_them():
    assert values("[Service]\n \tExecStart \t=  /bin/true  x \n") == [("Service", "ExecStart", "/bin/true  x")]


def test_a_value_may_have_equals_signs_and_comment_characters():
    assert values("[S]\nA=b=c # not a comment\n") == [("S", "A", "b=c # not a comment")]


def test_each_continuation_is_a_blank_and_the_next_line_as_it_stands():
    assert values("[S]\nA=one\\\n  two \\\nthree\n") == [("S", "A", "one   two  three")]


def test_comments_in_a_continuation_are_skipped_and_an_empty_line_ends_it():
    assert values("[S]\nA=one \\\n# two\n; three\n four\nB=x \\\n\nC=y\n") == [
        ("S", "A", "one   four"), ("S", "B", "x"), ("S", "C", "y"),
    ]  # fmt: skip


def test_two_backslashes_at_the_end_are_no_continuation():
    assert values("[S]\nA=one\\\\\nB=two\n") == [("S", "A", "one\\\\"), ("S", "B", "two")]


def test_a_comment_does_not_continue():
    assert values("[S]\n# a \\\nA=b\n") == [("S", "A", "b")]


def test_a_byte_order_mark_and_other_line_ends_are_taken():
    assert values("\ufeff[S]\r\nA=b\rC=d\n\rE=f") == [("S", "A", "b"), ("S", "C", "d"), ("S", "E", "f")]


def test_every_character_of_a_value_has_its_place():
    text = "[S]\nA= one \\\n# between\n  two\\\nthree\n"
    [setting] = read(text).settings
    lines = text.splitlines()
    for offset, char in enumerate(setting.value):
        place = setting.place(offset)
        at = lines[place.line - 1][place.column - 1]
        assert at == char or (at == "\\" and char == " ")
    assert setting.at == Place("x.service", 2, 1)


def problems(text):
    return [(problem.at.line, problem.text, problem.fatal) for problem in read(text).problems]


def test_what_systemd_ignores_is_told_once_a_line():
    assert problems("A=b\nB=c\n[S]\nnonsense\n=x\n") == [
        (1, "'A=b' stands before any [Section]; it is ignored", False),
        (4, "'nonsense' has no '='; systemd ignores the line", False),
        (5, "'=x' has no key before its '='; systemd ignores the line", False),
    ]


def test_a_broken_section_header_ends_the_file():
    read_file = read("[Good]\nA=b\n[Bad\nC=d\n")
    assert [setting.key for setting in read_file.settings] == ["A"]
    assert read_file.problems[-1].fatal
    assert read_file.problems[-1].at.line == 3


def test_bytes_that_are_no_text_end_the_file_with_their_place():
    assert problems(b"[S]\nA=\xff\n") == [(2, "is not UTF-8: systemd refuses the whole file", True)]
    assert problems(b"\x7fELF\0\1\2")[0][1] == "has a NUL byte: a binary, no unit file"


def test_a_line_longer_than_a_mebibyte_is_no_unit_file():
    assert problems(b"[S]\nA=" + b"x" * LINE_MAX) == [(2, "a line is longer than 1 MiB: no unit file", True)]
    long = b"[S]\nA=" + b"\\\n".join([b"x" * 1000] * 1100)
    assert problems(long)[0][1:] == ("a line is longer than 1 MiB: no unit file", True)


def test_comments_are_kept_with_their_lines():
    assert read("# one\n[S]\n  ; two\n").comments == ((1, "# one"), (3, "; two"))


@given(st.binary(max_size=200))
def test_any_bytes_are_read_without_a_traceback(data):
    found = parse(data, "x")
    for setting in found.settings:
        for offset in range(len(setting.value) + 1):
            place = setting.place(offset)
            assert 1 <= place.line <= len(found.lines)
            assert place.column >= 1


LINES = st.lists(
    st.sampled_from(["[S]", "A=b", "A=", "A = b \\", "# c", "; \\", "", "\\", "  x\\\\", "[X", "=", "é=ü \\", "'\"\\"]),
    max_size=12,
)


@given(LINES)
def test_any_order_of_odd_lines_is_read_and_every_value_is_found_in_its_file(lines):
    text = "\n".join(lines)
    found = read(text)
    for setting in found.settings:
        for offset, char in enumerate(setting.value):
            place = setting.place(offset)
            assert found.lines[place.line - 1][place.column - 1] in (char, "\\")
