"""The examples of the documentation: what a page shows, taken out of it, carried out, and compared.

A page has fenced blocks. ```` ```console ```` is a session: lines that begin with `$ ` are commands, the others what
they print; a line `…` stands for any lines, `…` within one for any text; times, numbers of processes and this machine's
name may differ. In a block that begins with `# ` the commands are root's, and begin so.
```` ```toml NAME ```` is a file that the commands find. All blocks of a page are one session in a directory of its own,
those of root another one in a systemd of its own; a command must exit with 0 unless `echo $?` is there to show what
else.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from brokerctl.worlds.systemd.private import PrivateSystemd

ROOT = Path(__file__).parent.parent
_BLOCK = re.compile(r"^```(?P<language>\w*)(?: (?P<name>\S+))?\n(?P<body>.*?)^```$", re.DOTALL | re.MULTILINE)
# A command that goes on in the background is a broker, or a worker: what comes next finds it running.
_WAIT = "for _ in {{1..200}}; do {} && break; sleep 0.05; done"
_BROKER_RUNS = "brokerctl status 2>&1 | grep -q ': run for'"
_WORKER_IS_READY = "brokerctl heartbeat check --ready {} >/dev/null"
_MARK = "=== example {} exits with "
_TIMEOUT_S = 120.0

_VARIES = (
    # A line of the journal; what `systemctl status` tells of times, and of a service's processes and cgroup.
    (re.compile(r"^\w{3} [ \d]\d \d\d:\d\d:\d\d \S+ ([\w.-]+)\[\d+\]:", re.MULTILINE), r"DATE HOST \1[N]:"),
    (re.compile(r"(?<= since ).* ago$", re.MULTILINE), "TIME"),
    (re.compile(r"(?<=[├└]─)\d+ "), "N "),
    (re.compile(r"(?<=Main PID: )\d+ \(\S+\)"), "N"),
    (re.compile(r"\S+/python[\d.]*(?= -I )"), "PYTHON"),
    # What is true of the interpreter that the tests have.
    (re.compile(r"^brokerctl units: warning: .*\n", re.MULTILINE), ""),
    # The columns of `heartbeat list` are as wide as a pid is long.
    (re.compile(r"(?<=PID) +BEAT"), " BEAT"),
    (re.compile(r"(?<= (?:ready|start)) +\d+ +"), " N "),
    (re.compile(r"^ *\d+\.\d{3} (?=\w+\.\w+\[)", re.MULTILINE), "TIME "),  # the time of a log entry
    (re.compile(r"\b\d+(\.\d+)?(ms|s|m)(?!\w)"), "TIME"),
    (re.compile(r"\b\d\d:\d\d:\d\d(\.\d+)?\b"), "TIME"),
    (re.compile(r'("\w+_ns"): ?\d+'), r"\1: TIME"),
    (re.compile(r"\bpid \d+"), "pid N"),
    (re.compile(r'"pid": ?\d+'), '"pid":N'),
    (re.compile(rf"\b{re.escape(os.uname().nodename)}\b"), "picl0"),
)


class Block(NamedTuple):
    """A fenced block: its language and the name of the file that it is, both may be empty; and what is in it."""

    language: str
    name: str
    body: str


class Example(NamedTuple):
    """A command, what the page says that it prints, and whether its code is told by the next command."""

    command: str
    output: str
    code_is_told: bool


class Page(NamedTuple):
    """The examples of a page, in order, those of root apart; and the files that they need."""

    files: dict[str, str]
    examples: list[Example]
    as_root: list[Example]


class Stage(NamedTuple):
    """What a session of root finds that no page shows: shell commands, at its beginning and before some examples.

    `codes` are exit codes other than 0 that a command rightly has.
    """

    setup: str = ""
    before: Mapping[str, str] = {}
    codes: Mapping[str, int] = {}


def blocks(text: str) -> list[Block]:
    """All fenced blocks of a page."""
    return [Block(found["language"], found["name"] or "", found["body"]) for found in _BLOCK.finditer(text)]


def page(text: str) -> Page:
    """Take the files and examples out of a page."""
    found = Page({}, [], [])
    for block in blocks(text):
        if block.name:
            found.files[block.name] = block.body
        elif block.language == "console":
            prompt = block.body[0]
            (found.as_root if prompt == "#" else found.examples).extend(_examples(block.body, prompt))
    return found


def _examples(body: str, prompt: str) -> Iterator[Example]:
    parts = [part for part in re.split(rf"^{re.escape(prompt)} ", body, flags=re.MULTILINE) if part]
    for index, part in enumerate(parts):
        command, _, output = part.partition("\n")
        told = "$?" in command or (index + 1 < len(parts) and parts[index + 1].startswith("echo $?"))
        yield Example(command, output, told)


def carry_out(found: Page, place: Path) -> list[tuple[int, str]]:
    """Each example's exit code and output, both streams together; AssertionError where the session itself fails."""
    # What is still there at the end is ended: a page whose example fails leaves nothing behind.
    setup = "trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT\n"
    return _carry_out(found.files, found.examples, place, Stage(setup), ["bash", "-c"])


def carry_out_as_root(found: Page, place: Path, manager: PrivateSystemd, stage: Stage) -> list[tuple[int, str]]:
    """The same of root's examples, inside of `manager`, which shares `place`."""
    shell = manager.argv(["bash", "-c"])
    return _carry_out(found.files, found.as_root, place, stage, shell)


def _carry_out(
    files: Mapping[str, str], examples: list[Example], place: Path, stage: Stage, shell: list[str]
) -> list[tuple[int, str]]:
    for name, text in files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)
    (place / "scenarios").symlink_to(ROOT / "scenarios")
    programs = place / "bin"
    programs.mkdir()
    (programs / "brokerctl").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m brokerctl "$@"\n')
    (programs / "brokerctl").chmod(0o755)
    env = {
        "PATH": f"{programs}:{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        "PYTHONPATH": str(ROOT),
        "SHELL": "/bin/bash",
        "BROKERCTL_RUNDIR": str(place / "rundir"),
        "LC_ALL": "C.UTF-8",
        "HOME": str(place),
    }
    script = f"cd {shlex.quote(str(place))}\n{stage.setup}\n"
    for index, example in enumerate(examples):
        script += f"{stage.before.get(example.command, '')}\n{_script(index, example)}"
    done = subprocess.run(
        [*shell, script], cwd=place, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, timeout=_TIMEOUT_S, check=False,
    )  # fmt: skip
    results = []
    rest = done.stdout.replace(str(place / "rundir"), "/run/brokerctl")
    for index, example in enumerate(examples):
        output, mark, rest = rest.partition(_MARK.format(index))
        assert mark, f"the session ended in $ {example.command}\n{output}"
        code, _, rest = rest.partition("\n")
        results.append((int(code), output))
    return results


def _script(index: int, example: Example) -> str:
    mark = f"code=$?; printf '{_MARK.format(index)}%d\\n' $code; (exit $code)\n"
    if not example.command.endswith("&"):
        return f"{example.command}\n{mark}"
    file = re.search(r"BROKERCTL_HEARTBEAT_FILE=(\S+)", example.command)
    condition = _WORKER_IS_READY.format(file[1]) if file else _BROKER_RUNS
    return f"{example.command}\n{_WAIT.format(condition)}\n{mark}"


def alike(expected: str, got: str) -> bool:
    """Whether they say the same, but for what may vary."""
    for pattern, word in _VARIES:
        expected, got = pattern.sub(word, expected), pattern.sub(word, got)
    pattern = re.sub(r"^…\\\n", "(?s:.*)", re.escape(expected), flags=re.MULTILINE).replace("…", ".*")
    return re.fullmatch(pattern, got) is not None


def alike_in_any_order(expected: str, got: str) -> bool:
    """The same of a journal, where each writer's lines come by a way of their own and may change places."""
    shown, left = expected.splitlines(), got.splitlines()
    for line in shown:
        if line != "…":
            found = next((one for one in left if alike(line, one)), None)
            if found is None:
                return False
            left.remove(found)
    return not left or "…" in shown
