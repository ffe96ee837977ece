"""Whom a stop is about: the main process that systemd names, never one that was looked for.

A pid file or a name may mean another process by now; `$MAINPID` is what systemd watches, and a pidfd of it can't mean
another one any more (P2). Without it there is nothing to stop: the service has ended (SYSTEMD.md 56).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from brokerctl.errors import UsageError
from brokerctl.kernel import cgroup, pidfd, proc
from brokerctl.kernel.proc import User

if TYPE_CHECKING:
    from brokerctl.records.stops import Kind

FLUX_BROKER = "flux-broker"
BROKERCTL = "brokerctl"
BROKERS = frozenset({"run", "start"})


class Aim(NamedTuple):
    """Main: what it is, its number and name, its unit ("" where it has none), whom it runs as.

    `flux` is the command that asks it, "" for that of its own installation; `timeout_stop_ns` its unit's, if known.
    """

    kind: Kind
    pid: int
    name: str
    unit: str
    owner: User
    flux: str = ""


def main_pid(given: str | None, environment: Mapping[str, str]) -> int | None:
    """The pid from `--pid`, else from the environment; None where systemd knows of none.

    With main dead, `$MAINPID` vanishes from the command line, and `${MAINPID}` is an empty word (SYSTEMD.md 20).
    """
    text = environment.get("MAINPID", "") if given is None else given
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and 1 < int(text) < 1 << 22):
        raise UsageError(f"--pid {text}: is no process; expected the number of the service's main process")
    return int(text)


def take(pid: int, flux: str = "", kind: Kind | None = None) -> tuple[int, Aim] | None:
    """A pidfd of it, and what it is; None where it has gone."""
    fd = pidfd.open_pid(pid)
    if fd is None:
        return None
    owner, words = proc.credentials(pid), proc.words(pid)
    if owner is None:
        os.close(fd)
        return None
    name = proc.comm(pid)
    kind = kind or kind_of(words, name)
    # An interpreter's name says nothing.
    shown = BROKERCTL if kind == "brokerctl" else name
    return fd, Aim(kind, pid, shown, unit_of(pid), owner, flux)


def kind_of(words: list[str], name: str) -> Kind:
    """What a process is, by its argument list and its short name.

    `flux broker` runs the broker as `broker`; it calls itself flux-broker-RANK.
    """
    first = os.path.basename(words[0]) if words else ""  # noqa: PTH119 - lean
    if any(one.removeprefix("lt-").startswith(FLUX_BROKER) for one in (name, first)):
        return "flux"
    return "brokerctl" if verb_of(words) else "other"


def verb_of(words: list[str]) -> str:
    """Which of `BROKERS` an argument list of brokerctl calls; "" where it is none."""
    for at, word in enumerate(words[:4]):
        name = os.path.basename(word)  # noqa: PTH119 - lean
        if name == BROKERCTL or (name == "__main__.py" and f"/{BROKERCTL}/" in word):
            return next((one for one in words[at + 1 : at + 3] if one in BROKERS), "")
    return ""


def unit_of(pid: int) -> str:
    """The service unit that a process is in, by its cgroup; "" where it is in none."""
    for name in reversed((cgroup.folder_of(pid) or "").split("/")):
        if name.endswith(".service"):
            return name
    return ""
