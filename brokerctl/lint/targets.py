"""Which units are meant: files, directories, and names that the service manager knows."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from brokerctl.errors import UsageError
from brokerctl.unit import Unit, UnitError, load, merge

_CAT_LIMIT_S = 10
# What a service's name is short for.
_DEFAULT = ".service"


def units(words: Sequence[str], refused: list[UnitError]) -> Iterator[Unit]:
    """The units of a command line, each once, in its order. UsageError or UnitError where a word is none.

    Of a directory, what can't be read goes to `refused`, and the others are read.
    """
    seen: set[str] = set()
    for word in words:
        try:
            found = list(_of_word(word, refused))
        except OSError as error:
            raise UsageError(f"{error.filename or word}: cannot read: {error.strerror}") from None
        for unit in found:
            key = os.path.realpath(unit.files[0].path) if unit.files else unit.name
            if key not in seen:
                seen.add(key)
                yield unit


def _of_word(word: str, refused: list[UnitError]) -> Iterator[Unit]:
    path = Path(word)
    if path.is_dir():
        yield from _of_directory(path, refused)
    elif "/" in word or path.is_file():
        yield _of_file(path)
    else:
        yield _of_name(word)


def _of_directory(directory: Path, refused: list[UnitError]) -> Iterator[Unit]:
    """Every unit file in it; not those that are masked, nor those that another name stands for."""
    paths = [path for path in sorted(directory.iterdir()) if path.name.endswith(merge.SUFFIXES)]
    found = False
    for path in paths:
        if path.is_file() and not path.is_symlink() and path.stat().st_size:
            found = True
            try:
                yield load(path)
            except UnitError as error:
                refused.append(error)
    if not found:
        raise UsageError(f"{directory}: has no unit files")


def _of_file(path: Path) -> Unit:
    """A unit's file, or one of its drop-ins: then the unit is the file beside the directory, if there is one."""
    folder = path.parent
    if path.suffix != ".conf" or folder.suffix != ".d":
        return load(path)
    name = folder.name.removesuffix(".d")
    base = folder.parent / name
    if base.is_file():
        return load(base)
    return merge.from_files(name, [path])


def _of_name(word: str) -> Unit:
    """A unit as the service manager finds it, its drop-ins in their order (`systemctl cat`)."""
    name = word if word.endswith(merge.SUFFIXES) else word + _DEFAULT
    try:
        done = subprocess.run(
            ["systemctl", "cat", "--", name], capture_output=True, timeout=_CAT_LIMIT_S, check=False,
            stdin=subprocess.DEVNULL, env={**os.environ, "SYSTEMD_COLORS": "0", "SYSTEMD_PAGER": "cat"},
        )  # fmt: skip
    except FileNotFoundError:
        raise UsageError(f"{word}: is no file, and there is no systemctl that could know a unit of that name") from None
    except subprocess.TimeoutExpired:
        raise UsageError(f"{word}: systemctl cat has not answered for {_CAT_LIMIT_S}s") from None
    paths = shown_files(done.stdout)
    if done.returncode or not paths:
        # Of a masked unit it says so on stdout, as a comment.
        said = (done.stderr or done.stdout).decode(errors="replace").strip("# \n").splitlines()
        raise UsageError(f"{word}: is no file, and no unit: {said[0] if said else 'systemctl cat shows nothing'}")
    return merge.from_files(name, paths)


def shown_files(text: bytes) -> list[Path]:
    """The files that `systemctl cat` shows, in order: each after a line `# PATH`, as it is on the disk.

    A comment in a file may look like such a line; so what follows it is compared with the file itself.
    """
    found: list[Path] = []
    while text.startswith(b"# /"):
        head, _, rest = text.partition(b"\n")
        path = Path(os.fsdecode(head[2:]))
        body = merge.read_file(path)
        if not rest.startswith(body):
            break
        found.append(path)
        text = rest[len(body) :].lstrip(b"\n")
    return found
