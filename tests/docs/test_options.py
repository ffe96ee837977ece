"""An option that a page shows is there, and one that is there stands on a page."""

from __future__ import annotations

import functools
import re
import subprocess
import sys

import pytest

from brokerctl import cli
from tests import console
from tests.console import ROOT

PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text()
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
}
PARTS = ("check", "list", "exec")  # of `brokerctl heartbeat`
HELP = {"-h", "--help"}


@functools.cache
def options_of(*words: str) -> set[str]:
    """What `brokerctl VERB [PART] --help` has."""
    argv = [sys.executable, "-m", "brokerctl", *words, "--help"]
    text = subprocess.run(argv, stdout=subprocess.PIPE, text=True, timeout=60, check=True).stdout
    return set(re.findall(r"(?<![\w-])--?[A-Za-z][a-z-]*", text))


def shown(text: str) -> list[str]:
    """Each `brokerctl VERB …` of a page: what is typed, what its text quotes, what stands in its files."""
    found = console.page(text)
    typed = [example.command for example in (*found.examples, *found.as_root)]
    lines = [*typed, *re.findall(r"`(brokerctl [^`]+)`", text), *found.files.values()]
    calls = [call for line in lines for call in re.findall(r"(?<![\w./-])brokerctl [a-z][^|;&>`\n]*", line)]
    return [call.split(" -- ")[0] for call in calls if call.split()[1] in cli.VERBS]


def command_of(call: str) -> tuple[str, ...]:
    words = call.split()
    return tuple(words[1:3]) if words[1] == "heartbeat" and words[2:3] and words[2] in PARTS else (words[1],)


@pytest.mark.parametrize("name", PAGES)
def test_an_option_that_is_shown_is_one_of_that_verb(name):
    for call in shown(PAGES[name]):
        named = {word.strip("[]").split("=")[0] for word in call.split() if re.match(r"\[?--?[A-Za-z]", word)}
        assert named <= options_of(*command_of(call)) | HELP, call


def test_a_wrong_option_is_found():
    (call,) = shown("use `brokerctl heartbeat check --max-age 3s FILE`, not `brokerctl nothing --max-age`")
    assert "--max-age" in options_of(*command_of(call))
    assert "--max-age" not in options_of("heartbeat", "list")


@pytest.mark.parametrize("verb", [(verb,) for verb in cli.VERBS] + [("heartbeat", part) for part in PARTS])
def test_every_option_stands_on_a_page(verb):
    text = "\n".join(PAGES.values())
    missing = {option for option in options_of(*verb) - HELP if not re.search(rf"(?<![\w-]){option}(?![\w-])", text)}
    assert missing == set()
