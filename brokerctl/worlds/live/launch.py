"""How brokers of a tree are started on this machine: one process a rank, each in a directory of its own below one.

`FOLDER/RANK` is a rank's rundir; a follower finds its parent's socket in the directory beside its own.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

import brokerctl
from brokerctl.kernel import proc
from brokerctl.worlds.live.rundir import TBON

if TYPE_CHECKING:
    from collections.abc import Mapping

    from brokerctl.trace import Topology

# From a checkout or installed, and whatever the directory: what an interpreter needs to find, and nothing else.
PATHS = ":".join(dict.fromkeys(str(Path(str(module.__file__)).parents[1]) for module in (brokerctl, msgspec)))
BOOT = "import sys; sys.path[:0] = sys.argv.pop(1).split(':'); "
BROKER = (sys.executable, "-Pc", BOOT + "from brokerctl.cli import main; sys.exit(main(sys.argv[1:]))", PATHS)
# What a broker answers for (FLUX.md 33; the model says what each does). Blocked until it can, so that none which comes
# early is lost, or kills it.
HELD = frozenset(
    {signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGALRM, signal.SIGUSR1, signal.SIGUSR2}
)


def rundir(folder: Path, rank: int) -> Path:
    """The rundir of a rank."""
    return folder / str(rank)


def argv(folder: Path, rank: int, topology: Topology, settings: Path, *more: str) -> list[str]:
    """The argument list of a rank's broker; `more` are further options of `brokerctl run`."""
    words = [*BROKER, "run", "--settings", str(settings), "--rundir", str(rundir(folder, rank))]
    if rank:
        words += ["--rank", str(rank), "--parent", str(rundir(folder, topology.parents[rank]) / TBON)]
    return [*words, *more]


def environment(base: Mapping[str, str], cookie: str, without: tuple[str, ...] = ()) -> dict[str, str]:
    """A broker's environment: it and all that descends from it carry the cookie `NAME:RANK`, beside outer ones."""
    env = {name: value for name, value in base.items() if name not in without}
    outer = env.get(proc.COOKIE)
    env[proc.COOKIE] = f"{outer},{cookie}" if outer else cookie
    return env


def own_pid() -> list[str]:
    """The options that let a broker know when this process, which starts it, has gone."""
    return ["--starter", str(os.getpid())]
