"""Installing and removing what `brokerctl units` renders, so that nothing of anybody else is ever lost.

A file of ours ends with a mark, the digest of all above it: by that a later call knows that we wrote it and that nobody
has changed it since. What `--force` puts away is kept beside it, under a name that systemd ignores.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Literal

import brokerctl
from brokerctl.errors import UsageError
from brokerctl.kernel import trust

KEPT = ".before-brokerctl"
DISABLED = ".disabled"  # what `brokerctl stop --disable` adds to the name of a drop-in
_UNITS = frozenset({".service", ".socket", ".target", ".timer", ".slice", ".conf"})
_MARK = re.compile(rb"^# Written by brokerctl units, sha256 of all above: ([0-9a-f]{64})\n", re.MULTILINE)
FILE_SIZE_MAX = 1 << 20
# Both start an interpreter, or read a few units: tenths of a second.
CHECK_LIMIT_S = 60
RELOAD = "now: systemctl daemon-reload (not while a stop is under way: it takes back what was added to its deadline)"

Whose = Literal["nobody", "ours", "changed", "foreign"]


def is_unit(name: str) -> bool:
    """Whether systemd takes a file of this name for a unit or a drop-in."""
    return PurePosixPath(name).suffix in _UNITS


def mark(text: str) -> bytes:
    """The file for a text: with its mark at the end."""
    data = text.encode()
    return data + f"# Written by brokerctl units, sha256 of all above: {hashlib.sha256(data).hexdigest()}\n".encode()


def whose(path: Path) -> Whose:
    """Who wrote a file; links are not followed."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return "nobody"
    except OSError:
        return "foreign"
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return "foreign"
        data = file.read(FILE_SIZE_MAX)
    marks = list(_MARK.finditer(data))
    if not marks:
        return "foreign"
    last = marks[-1]
    intact = last.end() == len(data) and hashlib.sha256(data[: last.start()]).hexdigest().encode() == last[1]
    return "ours" if intact else "changed"


def install(folder: Path, texts: Mapping[str, str], python: str, *, force: bool) -> int:
    """Write texts, by their paths below a directory, which is made; all is checked before the first is written. 0."""
    _check_folder(folder if os.path.lexists(folder) else folder.parent)
    _check_interpreter(python)
    for warning in exposed(Path(python), Path(brokerctl.__file__).parent):
        print(f"brokerctl units: warning: {warning}", file=sys.stderr)
    paths = {name: folder / name for name in texts}
    states = {name: whose(path) for name, path in paths.items()}
    for name, state in states.items():
        _check_replaceable(paths[name], state, force=force)
    complaint = verify({name: text for name, text in texts.items() if is_unit(name)})
    if complaint:
        raise UsageError(f"systemd-analyze verify: {complaint}")
    drafts: dict[str, Path] = {}
    try:
        folder.mkdir(mode=0o755, exist_ok=True)
        for name, text in texts.items():
            drafts[name] = _draft(paths[name], text)
        for name, draft in drafts.items():
            if states[name] in {"foreign", "changed"}:
                paths[name].rename(_kept(paths[name]))
            draft.rename(paths[name])
            print(paths[name])
    except OSError as error:
        raise UsageError(f"{error.filename or folder}: cannot write: {error.strerror}") from None
    finally:
        for draft in drafts.values():
            draft.unlink(missing_ok=True)
    if any(map(is_unit, texts)):
        print(RELOAD)
    return 0


def uninstall(folder: Path, names: Iterable[str], *, force: bool) -> int:
    """Remove what we wrote at these paths below a directory, disabled or not, and bring back what was before; 0."""
    _check_folder(folder)
    paths = [folder / name for name in names]
    paths += [aside for path in paths for aside in sorted(path.parent.glob(f"{path.name}{DISABLED}*"))]
    states = {path: whose(path) for path in paths}
    for path, state in states.items():
        if state == "changed" and not force:
            raise UsageError(f"{path}: was changed since brokerctl wrote it; expected --force to remove it")
    gone = [path for path in paths if states[path] in {"ours", "changed"}]
    if not gone:
        raise UsageError(f"{folder}: nothing there was written by brokerctl units")
    try:
        for path in gone:
            place = path.with_name(path.name.partition(DISABLED)[0])
            if os.path.lexists(_kept(place)) and (path == place or not os.path.lexists(place)):
                _kept(place).replace(path)
                path.replace(place)
                print(f"{place}: as it was before")
            else:
                path.unlink()
                print(f"{path}: removed")
            if path.parent != folder:
                with contextlib.suppress(OSError):
                    path.parent.rmdir()  # refused while anything else is in it
    except OSError as error:
        raise UsageError(f"{error.filename or folder}: cannot remove: {error.strerror}") from None
    if any(is_unit(path.name) for path in gone):
        print(RELOAD)
    return 0


def _kept(path: Path) -> Path:
    return path.with_name(path.name + KEPT)


def _check_folder(folder: Path) -> None:
    """It is there, and nobody else can put links in our way."""
    try:
        found = folder.stat()
    except OSError as error:
        raise UsageError(f"{folder}: {error.strerror}; expected a directory") from None
    if not stat.S_ISDIR(found.st_mode):
        raise UsageError(f"{folder}: is no directory")
    if why := trust.untrusted(found, (0, os.geteuid()), sticky=True):
        raise UsageError(f"{folder}: {why}; expected a directory that only its owner, you or root, can write to")


def _check_replaceable(path: Path, state: Whose, *, force: bool) -> None:
    if path.parent.is_symlink() or (path.parent.exists() and not path.parent.is_dir()):
        raise UsageError(f"{path.parent}: is no directory (links are not followed)")
    if path.parent.exists():
        _check_folder(path.parent)
    if path.is_dir() and not path.is_symlink():
        raise UsageError(f"{path}: is a directory")
    if state in {"nobody", "ours"}:
        return
    if not force:
        what = "was changed since brokerctl wrote it" if state == "changed" else "is not from brokerctl"
        raise UsageError(f"{path}: {what}; expected --force to put it away as {_kept(path).name}")
    if os.path.lexists(_kept(path)):
        raise UsageError(f"{_kept(path)}: is there already; expected it to be put away")


def _draft(path: Path, text: str) -> Path:
    """The file beside its place, complete and on disk, not yet in force."""
    path.parent.mkdir(mode=0o755, exist_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(mark(text))
        file.flush()
        os.fchmod(fd, 0o755 if text.startswith("#!") else 0o644)
        os.fsync(fd)
    return draft


# ---- checks of what is rendered


def _check_interpreter(python: str) -> None:
    """Isolated, as units call it, it finds this package."""
    program = "import brokerctl; print(brokerctl.__file__)"
    try:
        done = subprocess.run(
            [python, "-I", "-c", program], cwd="/", env={}, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=CHECK_LIMIT_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"{python}: cannot be run: {error}") from None
    if done.returncode:
        why = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise UsageError(f"{python} -I cannot import brokerctl ({why}); expected it to be installed there")


def exposed(*paths: Path) -> list[str]:
    """Who else, beside root and the caller, can change what units will run, by one of these paths."""
    found = {}
    for path in paths:
        real = path.resolve()
        for part in (*reversed(path.absolute().parents), path, *reversed(real.parents), real):
            if why := trust.untrusted(part.stat(), (0, os.geteuid()), sticky=True):
                found[str(part)] = f"{part}: {why}: who can write there decides what root runs"
    return list(found.values())


def verify(texts: Mapping[str, str]) -> str:
    """What systemd itself has to say against unit files, in one line; nothing where there is no systemd.

    A drop-in is looked at with a unit of a few lines below it.
    """
    tool = shutil.which("systemd-analyze")
    if tool is None or not texts:
        return ""
    with tempfile.TemporaryDirectory(prefix="brokerctl-units-") as name:
        place = Path(name)
        checked = set()
        for unit, text in texts.items():
            path = place / unit
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
            base = place / unit.partition(".d/")[0]
            checked.add(base)
            if base != path and base.name not in texts:
                base.write_text("[Service]\nType=notify\nExecStart=/bin/true\n")
        try:
            done = subprocess.run(
                [tool, "--man=no", "verify", *sorted(map(str, checked))],
                env={"LANG": "C.UTF-8", "SYSTEMD_UNIT_PATH": f"{place}:"}, stdin=subprocess.DEVNULL,
                capture_output=True, text=True, errors="replace", timeout=CHECK_LIMIT_S, check=False,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
    # It tells of other units of the machine as well.
    names = {path.name for path in checked} | {Path(unit).name for unit in texts}
    lines = [line for line in done.stderr.splitlines() if any(name in line for name in names)]
    return lines[0].replace(f"{place}/", "") if lines else ""
