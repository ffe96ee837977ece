"""The examples of the documentation: what a page shows, taken out of it, carried out, and compared.

A page has fenced blocks. ```` ```console ```` is a session: lines that begin with `$ ` are commands, the others what
they print; a line `…` stands for any lines, `…` within one for any text; times, numbers of processes and this machine's
name may differ.
```` ```toml NAME ```` is a file that the commands after it find. All blocks of a page are one session, in a directory
of its own; a command must exit with 0 unless `echo $?` is there to show what else.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
_BLOCK = re.compile(r"^```(?P<language>\w+)(?: (?P<name>\S+))?\n(?P<body>.*?)^```$", re.DOTALL | re.MULTILINE)
# A command that goes on in the background is a broker: what comes next finds it running.
_WAIT = "for _ in {1..200}; do brokerctl status 2>&1 | grep -q ': run for' && break; sleep 0.05; done"
_MARK = "=== example {} exits with "
_TIMEOUT_S = 120.0

_VARIES = (
    (re.compile(r"^ *\d+\.\d{3} (?=\w+\.\w+\[)", re.MULTILINE), "TIME "),  # the time of a log entry
    (re.compile(r"\b\d+(\.\d+)?(ms|s|m)(?!\w)"), "TIME"),
    (re.compile(r"\b\d\d:\d\d:\d\d(\.\d+)?\b"), "TIME"),
    (re.compile(r'("\w+_ns"): ?\d+'), r"\1: TIME"),
    (re.compile(r"\bpid \d+"), "pid N"),
    (re.compile(r'"pid": ?\d+'), '"pid":N'),
    (re.compile(rf"\b{re.escape(os.uname().nodename)}\b"), "picl0"),
)


class Example(NamedTuple):
    """A command, what the page says that it prints, and whether its code is told by the next command."""

    command: str
    output: str
    code_is_told: bool


class Page(NamedTuple):
    """The examples of a page, in order, and the files that they need."""

    files: dict[str, str]
    examples: list[Example]


def page(text: str) -> Page:
    """Take the files and examples out of a page."""
    files: dict[str, str] = {}
    examples: list[Example] = []
    for block in _BLOCK.finditer(text):
        if block["name"]:
            files[block["name"]] = block["body"]
        elif block["language"] == "console":
            examples += _examples(block["body"])
    return Page(files, examples)


def _examples(body: str) -> Iterator[Example]:
    parts = [part for part in re.split(r"^\$ ", body, flags=re.MULTILINE) if part]
    for index, part in enumerate(parts):
        command, _, output = part.partition("\n")
        told = "$?" in command or (index + 1 < len(parts) and parts[index + 1].startswith("echo $?"))
        yield Example(command, output, told)


def carry_out(found: Page, place: Path) -> list[tuple[int, str]]:
    """Each example's exit code and output, both streams together; AssertionError where the session itself fails."""
    for name, text in found.files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)
    (place / "scenarios").symlink_to(ROOT / "scenarios")
    programs = place / "bin"
    programs.mkdir()
    (programs / "brokerctl").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m brokerctl "$@"\n')
    (programs / "brokerctl").chmod(0o755)
    env = {
        "PATH": f"{programs}:{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
        "PYTHONPATH": str(ROOT),
        "SHELL": "/bin/bash",
        "BROKERCTL_RUNDIR": str(place / "rundir"),
        "LC_ALL": "C.UTF-8",
        "HOME": str(place),
    }
    script = "".join(_script(index, example) for index, example in enumerate(found.examples))
    # What is still there at the end is ended: a page whose example fails leaves nothing behind.
    script = f"trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT\n{script}"
    done = subprocess.run(
        ["bash", "-c", script], cwd=place, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, timeout=_TIMEOUT_S, check=False,
    )  # fmt: skip
    results = []
    rest = done.stdout.replace(str(place / "rundir"), "/run/brokerctl")
    for index in range(len(found.examples)):
        output, mark, rest = rest.partition(_MARK.format(index))
        assert mark, f"the session ended in example {index}: {output}"
        code, _, rest = rest.partition("\n")
        results.append((int(code), output))
    return results


def _script(index: int, example: Example) -> str:
    mark = f"code=$?; printf '{_MARK.format(index)}%d\\n' $code; (exit $code)\n"
    if example.command.endswith("&"):
        return f"{example.command}\n{_WAIT}\n{mark}"
    return f"{example.command}\n{mark}"


def alike(expected: str, got: str) -> bool:
    """Whether they say the same, but for what may vary."""
    for pattern, word in _VARIES:
        expected, got = pattern.sub(word, expected), pattern.sub(word, got)
    pattern = re.sub(r"^…\\\n", "(?s:.*)", re.escape(expected), flags=re.MULTILINE).replace("…", ".*")
    return re.fullmatch(pattern, got) is not None
