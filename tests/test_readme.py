"""What the README and the documentation show is so: a user's commands; root's are in tests/docs/test_commands.py."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib

import pytest

from brokerctl.cli import VERBS
from tests import console
from tests.console import ROOT

PAGES = {
    path.relative_to(ROOT).as_posix(): path for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
}
WITH_EXAMPLES = [name for name, path in PAGES.items() if "```console\n" in path.read_text()]


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_the_examples_of_a_page_print_what_the_page_shows(name, tmp_path):
    found = console.page(PAGES[name].read_text())
    for example, (code, output) in zip(found.examples, console.carry_out(found, tmp_path), strict=True):
        assert console.alike(example.output, output), f"$ {example.command}\n{output}"
        assert code == 0 or example.code_is_told, f"$ {example.command}\nexits with {code}"


def test_a_page_that_shows_something_else_is_found(tmp_path):
    text = "```console\n$ echo one\ntwo\n$ false\n$ exit 3 | cat; (exit 3)\n$ echo $?\n3\n```\n"
    found = console.page(text)
    results = console.carry_out(found, tmp_path)
    assert [code for code, _ in results] == [0, 1, 3, 0]
    assert [example.code_is_told for example in found.examples] == [False, False, True, True]
    assert not console.alike(found.examples[0].output, results[0][1])
    assert console.alike(found.examples[3].output, results[3][1])


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("run for 604ms\n", "run for 1.2s\n"),
        ("   45.900 broker.info[0]: exit\n", "    2.103 broker.info[0]: exit\n"),
        ("a\n…\nz\n", "a\nb\nc\nz\n"),
        ("[…]\n", "[1,2]\n"),
        ('{"held_ns":0}\n', '{"held_ns":434509}\n'),
        ("Nov 29 21:49:42 picl1 app[65]: it says\n", "Dec  1 09:00:00 host app[7]: it says\n"),
        ("  ├─62 /opt/bin/python3 -I -m x\n  └─66 sleep 300\n", "  ├─7 /usr/bin/python3.11 -I -m x\n  └─8 sleep 300\n"),
        ("Active: active since Sun 2026-11-29; 4min ago\n", "Active: active since Mon 2026-11-30; 9ms ago\n"),
    ],
)
def test_times_may_differ(shown, printed):
    assert console.alike(shown, printed)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("rc=129\n", "rc=137\n"),
        ("3 of cleanup\n", "4 of cleanup\n"),
        ("[…]\n", "[1\n2]\n"),
        ("└─66 sleep 300\n", "└─66 sleep 30\n"),
    ],
)
def test_codes_and_counts_may_not_differ(shown, printed):
    assert not console.alike(shown, printed)


@pytest.mark.parametrize(
    ("printed", "same"),
    [
        ("Stopping a...\nended 2.0s\n", True),
        ("ended 1.0s\nStopping a...\n", True),
        ("ended 1.0s\n", False),
        ("ended 1.0s\nStopping a...\nmore\n", False),
        ("ended 1.0s\nStopping b...\n", False),
    ],
)
def test_lines_of_a_journal_may_change_places_and_nothing_else(printed, same):
    assert console.alike_in_any_order("Stopping a...\nended 1.0s\n", printed) is same
    assert console.alike_in_any_order("…\nStopping a...\nended 1.0s\n", f"{printed}before\n") is (
        same or "more" in printed
    )


def made(text):
    return set(re.findall(r"(?:^|`)make ([a-z]+)", text, re.MULTILINE))


def test_every_target_of_make_that_is_shown_exists():
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    for name, path in PAGES.items():
        assert made(path.read_text()) <= targets, name
    assert {"demo", "test", "check", "bench"} <= made(PAGES["README.md"].read_text())


def test_every_verb_is_explained_and_no_other_is_named():
    text = PAGES["README.md"].read_text()
    assert set(re.findall(r"^\| `brokerctl ([a-z-]+)` \|", text, re.MULTILINE)) == set(VERBS)
    for name, path in PAGES.items():
        named = set(re.findall(r"(?:`|^[$#] )brokerctl ([a-z][a-z-]*)", path.read_text(), re.MULTILINE))
        assert named <= set(VERBS), name


def anchors(path):
    """What `#…` may name on a page: its headings, as GitHub spells them."""
    text = re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_lead_somewhere():
    for name, path in PAGES.items():
        for link, anchor in re.findall(r"\]\((?!https?://)([^)#]*)#?([^)]*)\)", path.read_text()):
            target = (path.parent / link) if link else path
            assert target.exists(), f"{name}: {link}"
            assert not anchor or anchor in anchors(target), f"{name}: {link}#{anchor}"


def test_the_readme_leads_to_every_page():
    links = set(re.findall(r"\]\(([^)#]+)", PAGES["README.md"].read_text()))
    assert set(PAGES) - {"README.md"} <= links


def test_a_block_that_begins_with_a_hash_is_roots_and_any_other_may_print_one():
    found = console.page("```console\n# id -u\n0\n# id -g\n```\n```console\n$ cat x\n# a comment\n```\n")
    assert [(example.command, example.output) for example in found.as_root] == [("id -u", "0\n"), ("id -g", "")]
    assert [(example.command, example.output) for example in found.examples] == [("cat x", "# a comment\n")]


def test_files_that_are_shown_are_toml():
    for path in PAGES.values():
        for file, text in console.page(path.read_text()).files.items():
            if file.endswith(".toml"):
                tomllib.loads(text)


def test_the_readme_is_read_in_one_sitting():
    assert len(PAGES["README.md"].read_text().splitlines()) <= 200


DEMO = (
    (0, "stuck-epilog (sim, flux): ok", "cleanup.3: flux queue idle --quiet", "exit code 129"),
    (0, "stuck-epilog-hardened (sim, hardened): ok", "cleanup.3: flux queue idle --quiet", "exit code 129"),
    (1, "stuck-epilog (sim, flux)", "stuck-epilog (sim, hardened)", "≠"),
    (0, "stuck-cleanup (live, flux): ok", "cleanup.3: flux queue idle --quiet", "exit code 129"),
    (0, "equal: ", "stuck-cleanup (sim, flux) and stuck-cleanup (live, flux)"),
)


def test_the_commands_of_make_demo_work(capfd):
    recipe = (ROOT / "Makefile").read_text().split("\ndemo:")[1].split("\n\n")[0]
    commands = re.findall(r"^\t@\$\(BIN\)/brokerctl (.*)$", recipe, re.MULTILINE)
    for command, (code, *told) in zip(commands, DEMO, strict=True):
        words = re.split(r" \|\|? ", command)[0].split()
        done = subprocess.run([sys.executable, "-m", "brokerctl", *words], cwd=ROOT, check=False, timeout=60)
        out = capfd.readouterr().out
        assert done.returncode == code
        assert all(text in out for text in told)
