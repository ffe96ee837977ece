"""A hook that runs as root what others can change."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

from brokerctl.lint.rule import Hit, rule
from brokerctl.lint.subject import Subject

# Where everybody may write, or where users' own files are.
_OPEN = ("/tmp/", "/var/tmp/", "/dev/shm/", "/home/", "/run/user/")  # noqa: S108


@rule(
    "error",
    why="whoever can write the program, or a directory above it, is root at the next start or stop",
    source="SYSTEMD.md 23, later findings",
    mend="install it where only root can write",
)
def check(unit: Subject) -> Iterator[Hit]:
    for key, command in unit.all_commands():
        root = unit.main_as_root or unit.as_root(key, command)
        if root and command.program.startswith("/") and (reason := _reason(command.program)):
            yield Hit(command, f"{key}= runs {command.program} as root, but {reason}")


def _reason(program: str) -> str:
    if program.startswith(_OPEN):
        return f"{program[: program.index('/', 1)]} is not root's alone"
    path = Path(program)
    for each in (path, *path.parents):
        try:
            found = each.stat()
        except OSError:
            continue
        if found.st_uid != 0:
            return f"{each} belongs to user {found.st_uid}"
        # In a sticky directory only the owner can replace what is there.
        if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
            return f"everybody may write {each}"
    return ""
