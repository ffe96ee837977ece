"""How a Flux broker is asked: as its own user, by the `flux` of its own installation, never that of a PATH.

Lean: the first commands are on their way before what understands their answers is imported.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from brokerctl.durations import MS, S
from brokerctl.kernel import proc
from brokerctl.kernel.proc import User
from brokerctl.stop.errands import ENVIRONMENT, Command

if TYPE_CHECKING:
    from brokerctl.stop.target import Aim

# The broker answers in ~10 ms (FLUX.md 104).
STATE_NS, LIST_NS = 2 * S, 1500 * MS
# Where an installation has its broker; `flux` is in its bin.
_BROKER = re.compile(r"(?P<prefix>.*)/(?:libexec|lib|lib64|lib/[^/]+)/flux/cmd/(?:lt-)?flux-broker(?: \(deleted\))?")


class FluxCommand(NamedTuple):
    """How a broker is asked: the command, whom it runs as, and where the broker listens."""

    path: str
    user: User | None
    uri: str

    @classmethod
    def of(cls, aim: Aim) -> FluxCommand:
        """The one that asks this broker."""
        return cls(aim.flux or installed(aim.pid) or "flux", aim.owner, uri(proc.words(aim.pid), aim.name))

    def __call__(self, *words: str, within_ns: int = STATE_NS) -> Command:
        """A command of Flux."""
        return Command([self.path, *words], within_ns, self.user, {**ENVIRONMENT, "FLUX_URI": self.uri})

    def list_attributes(self) -> Command:
        """All attributes."""
        return self("lsattr", "-v")

    def list_jobs(self) -> Command:
        """All jobs that run or are in their CLEANUP."""
        return self("job", "list", "--user=all", "--states=run,cleanup", within_ns=LIST_NS)

    def job_manager(self) -> Command:
        """What the job manager tells of itself, the housekeeping with it."""
        return self("module", "stats", "job-manager", within_ns=LIST_NS)


def option(words: Sequence[str], name: str) -> str:
    """The last value that a broker's command line gives an attribute, as `-Sname=value` or `--setattr=name=value`."""
    found = ""
    for at, word in enumerate(words):
        for head in ("--setattr=", "-S"):
            if word.startswith(head):
                text = word[len(head) :] or next(iter(words[at + 1 :]), "")
                key, equals, value = text.partition("=")
                if equals and key.strip() == name:
                    found = value
    return found


def uri(words: Sequence[str], name: str) -> str:
    """Where a broker listens, by its command line and its name, `flux-broker-RANK`; "" where they don't tell.

    A FLUX_URI in its environment is of no use: that is the instance that it was started in.
    """
    if given := option(words, "local-uri"):
        return given
    rundir, rank = option(words, "rundir"), name.rpartition("-")[2]
    return f"local://{rundir}/local-{rank if rank.isdigit() else 0}" if rundir else ""


def installed(pid: int) -> str:
    """The `flux` of the installation that a broker runs from; "" where its place tells nothing."""
    try:
        match = _BROKER.fullmatch(os.readlink(f"/proc/{pid}/exe"))  # noqa: PTH115 - lean
    except OSError:
        return ""
    return f"{match['prefix']}/bin/flux" if match else ""
