"""Which files are scenarios: those that are named, and those found in a directory.

A directory may hold other TOML too (`pyproject.toml`, configurations of `brokerctl run`). A scenario is
known by its first key, `about`, and by a table that only scenarios and their like have.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from brokerctl.config import FILE_SIZE_MAX
from brokerctl.errors import ScenarioError

_FIRST_KEY = re.compile(rb"(?:[ \t]*(?:#[^\n]*)?\r?\n)*[ \t]*about[ \t]*=")
_TABLE = re.compile(rb"^[ \t]*\[(?:expect\b|\[cleanup\]|\[step\]|\[fault\]|puppet\.)", re.MULTILINE)


def is_scenario(path: Path) -> bool:
    """The file looks like a scenario; whether it is a good one, reading it will tell."""
    if path.suffix != ".toml":
        return False
    try:
        with path.open("rb") as file:
            data = file.read(FILE_SIZE_MAX)
    except OSError:
        return False
    data = data.removeprefix(b"\xef\xbb\xbf")
    return _FIRST_KEY.match(data) is not None and _TABLE.search(data) is not None


def collect(paths: Iterable[Path]) -> list[Path]:
    """The scenario files of the paths, each once, those of a directory sorted; ScenarioError where there is none."""
    found: dict[Path, None] = {}
    for path in paths:
        if path.is_dir():
            inside = sorted(one for one in path.rglob("*.toml") if one.is_file() and is_scenario(one))
            if not inside:
                raise ScenarioError(f"{path}: no scenario in this directory; expected *.toml that begin with about = …")
            found.update(dict.fromkeys(inside))
        else:
            found[path] = None  # named: not being one is an error that reading tells
    return list(found)
