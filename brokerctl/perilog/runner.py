"""`python -I -m brokerctl.perilog.runner KIND`: the main process of a unit. Runs the site's scripts, one after another.

First what packages brought, then what the site wrote, each directory in the order of names (as `LC_ALL=C ls`), as Flux
itself does (flux-admin(1), system-scripts). Each gets a line in the journal with how it ended and how long it took. A
script that root must not trust is refused, which counts as a failure, as does every other: the largest code wins.
"""

from __future__ import annotations

import os
import stat
import sys
import time

from brokerctl.errors import BrokerctlError
from brokerctl.kernel.trust import untrusted
from brokerctl.perilog import endings, processes
from brokerctl.perilog.names import KINDS
from brokerctl.perilog.settings import Settings, load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

REFUSED = 126
# What editors and package managers leave beside a script.
_IGNORED_SUFFIXES = (
    "~", ".swp", ".orig", ".rpmsave", ".rpmorig", ".rpmnew", ".dpkg-old", ".dpkg-new", ".dpkg-dist", ".dpkg-bak",
    ".dpkg-tmp", ".dpkg-remove",
)  # fmt: skip


def main(argv: list[str]) -> int:
    """Run the scripts of a kind; returns the exit code."""
    processes.hold_signals()
    if len(argv) != 1 or argv[0] not in KINDS:
        print("usage: python -I -m brokerctl.perilog.runner prolog|epilog|housekeeping", file=sys.stderr)
        return 2
    if not os.environ.get("FLUX_JOB_ID"):
        _say("nothing is run: the unit's environment has no FLUX_JOB_ID")
        return endings.NOT_STARTED
    try:
        settings = load(argv[0])
    except BrokerctlError as error:
        _say(f"nothing is run: {error}")
        return endings.NOT_STARTED
    try:
        return run(settings)
    except processes.Told as told:
        _say("stopped: what is left is not run")
        processes.die_of(told.signum)
        return 128 + told.signum


def run(settings: Settings) -> int:
    """Run what there is; returns the largest code, or with `exit-on-first-error` the first. Told when it is stopped."""
    worst = 0
    steps = scripts(settings)
    for nth, (path, why) in enumerate(steps):
        code = _run_one(path, why)
        worst = max(worst, code)
        if code and settings.exit_on_first_error and nth + 1 < len(steps):
            _say(f"{len(steps) - nth - 1} more not run: exit-on-first-error")
            break
    if not steps:
        _say(f"no scripts in {settings.package_scripts} or {settings.site_scripts}")
    return worst


def scripts(settings: Settings) -> list[tuple[str, str]]:
    """What is to be run, in order, each with the reason why it must not be, if there is one.

    The legacy script, where there is one, stands for the site's directory.
    """
    found = _in_directory(settings.package_scripts)
    if os.path.lexists(settings.legacy_script):
        if os.path.isdir(settings.site_scripts) and os.listdir(settings.site_scripts):  # noqa: PTH112, PTH208 - lean
            _say(f"{settings.legacy_script} stands for all of {settings.site_scripts}")
        return [*found, (settings.legacy_script, refusal(settings.legacy_script))]
    return [*found, *_in_directory(settings.site_scripts)]


def _in_directory(folder: str) -> list[tuple[str, str]]:
    try:
        names = sorted(os.listdir(folder), key=os.fsencode)  # noqa: PTH208 - lean
    except FileNotFoundError:
        return []
    except OSError as error:
        return [(folder, error.strerror or str(error))]
    found = []
    for name in names:
        if not name.startswith(".") and not name.endswith(_IGNORED_SUFFIXES):
            path = f"{folder}/{name}"
            found.append((path, refusal(path)))
    return found


def refusal(path: str) -> str:
    """Why root must not run a file; empty where it may: everything on the way to it can be changed by root only."""
    try:
        real = os.path.realpath(path, strict=True)
        info = os.stat(real)  # noqa: PTH116 - lean
        if not stat.S_ISREG(info.st_mode):
            return "is no regular file"
        if not info.st_mode & stat.S_IXUSR:
            return "is not executable"
        if why := untrusted(info):
            return f"{why}; expected one that only root can write"
        for folder in _passed(path):
            if why := untrusted(os.lstat(folder)):
                return f"is below {folder}, which {why}; expected one that only root can write"
    except OSError as error:
        return f"cannot be looked at: {error.strerror}"
    return ""


def _passed(path: str) -> Iterator[str]:
    """Every directory in which something is looked up on the way to a file, links and what they lead through included.

    Who can write one of them can put another file there. The path can be resolved: there is no loop of links.
    """
    at, left = "/", path.split("/")
    while left:
        name = left.pop(0)
        if name in {"", "."}:
            continue
        if name == "..":
            at = os.path.dirname(at)  # noqa: PTH120 - lean
            continue
        yield at
        found = f"{at.rstrip('/')}/{name}"
        if os.path.islink(found):  # noqa: PTH114 - lean
            target = os.readlink(found)  # noqa: PTH115 - lean
            at = "/" if target.startswith("/") else at
            left = [*target.split("/"), *left]
        else:
            at = found


def _run_one(path: str, why: str) -> int:
    if why:
        _say(f"{path}: not run: {why}")
        return REFUSED
    processes.pause(0, None)  # told to stop before it is started
    began_ns = time.monotonic_ns()
    try:
        pid = processes.start([path], os.environ)
    except OSError as error:
        code = processes.not_started(error)
        _say(f"{path}: cannot be started: {error.strerror} ({code})")
        return code
    for signum in processes.pending():
        os.killpg(pid, signum)  # systemd told us when there was no script yet to be told
    stopped: processes.Told | None = None
    while True:
        try:
            code = processes.wait(pid, None)
            break
        except processes.Told as told:
            stopped = told  # systemd has told the whole cgroup; the script ends in its own way
    how = f"exited with {code}" if code >= 0 else f"was killed by {endings.signal_name(-code)}"
    _say(f"{path}: {how} after {(time.monotonic_ns() - began_ns) / 1e9:.3f}s")
    if stopped is not None:
        raise stopped
    return code if code >= 0 else 128 - code


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    os._exit(main(sys.argv[1:]))  # nothing is buffered; the interpreter's own end takes 2 ms
