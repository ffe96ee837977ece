"""Command lines: prefixes, quotes, escapes, several commands in a line, and where each word stands."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerctl.unit.execline import ExecError, commands
from brokerctl.unit.syntax import parse


def split(value):
    [setting] = parse(f"[Service]\nExecStart={value}\n".encode(), "x").settings
    return commands(setting)


def words(value):
    return [command.argv for command in split(value)]


def test_quotes_may_stand_anywhere_in_a_word():
    assert words("""/bin/echo "a b" 'c "d"' e"f g"h ''""") == [("/bin/echo", "a b", 'c "d"', "ef gh", "")]


def test_escapes_are_those_of_c():
    assert words(r"/x a\x20b \u00fc \101 \t \\ \s \"") == [("/x", "a b", "ü", "A", "\t", "\\", " ", '"')]


def test_an_unknown_escape_stands_for_itself():
    assert words(r"/x a\;b \q \x0") == [("/x", r"a\;b", r"\q", r"\x0")]


def test_a_lone_semicolon_separates_commands_and_an_escaped_one_is_a_word():
    assert words(r"/a b ; /c \; ';' d; ; /e") == [("/a", "b"), ("/c", ";", ";", "d;"), ("/e",)]


@pytest.mark.parametrize(
    ("text", "prefixes", "program"),
    [
        ("-/a", "-", "/a"), ("@/a b", "@", "/a"), ("-:/a", "-:", "/a"), ("+-/a", "+-", "/a"), ("!/a", "!", "/a"),
        ("!!/a", "!!", "/a"), ("-!!/a", "-!!", "/a"), ("echo", "", "echo"),
    ],
)  # fmt: skip
def test_prefixes_are_told_from_the_program(text, prefixes, program):
    [command] = split(text)
    assert (command.prefixes, command.program) == (prefixes, program)
    assert command.ignores_failure == ("-" in prefixes)


@pytest.mark.parametrize(
    ("text", "said", "offset"),
    [
        ("/a 'b c", "the quote ' is never closed", 3),
        ('/a "', 'the quote " is never closed', 3),
        ("-", "names no program", 0),
        ("./a", "is no absolute path and no plain name", 0),
        ("/usr/", "is a directory", 0),
        ("@/a", "no second word", 0),
        ("/a ; ../b", "is no absolute path and no plain name", 5),
    ],
)
def test_what_systemd_refuses_is_told_with_its_place(text, said, offset):
    with pytest.raises(ExecError, match=said) as caught:
        split(text)
    assert caught.value.offset == offset


def test_a_failing_command_that_may_fail_does_not_refuse_the_unit():
    with pytest.raises(ExecError) as caught:
        split("-./a")
    assert not caught.value.fatal


def test_a_record_has_the_specifiers_put_in_and_argv0_taken_out():
    [command] = split("-@/bin//sh zero %i %n")
    line = command.record("a@b.service")
    assert line.command.argv == ("/bin/sh", "b", "a@b.service")
    assert line.ignore_failure
    assert line.prefixes == "@"


ODD = st.text(alphabet="ab/ '\"\\;-@:+!%$x0\tü", max_size=30)


@given(ODD)
def test_any_line_is_split_or_refused_and_words_stand_where_they_say(value):
    with suppress(ExecError):
        for command in split(f"/p {value}"):
            ends = 0
            for word in command.words:
                assert ends <= word.start <= word.end <= len(command.setting.value)
                ends = word.end
