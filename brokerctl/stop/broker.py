"""A Flux broker, asked by commands: as its own user, by the `flux` of its own installation, never that of a PATH."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from typing import NamedTuple

from brokerctl.durations import MS, S
from brokerctl.ids import idset, parse_idset
from brokerctl.kernel import proc
from brokerctl.kernel.proc import User
from brokerctl.model.lifecycle import STOPPING, State
from brokerctl.records.stops import Look, Peers, ShedRank, Sheds
from brokerctl.stop import flux
from brokerctl.stop.errands import ENVIRONMENT, Command, Errand, Said, printable
from brokerctl.stop.journal import read, reading, story
from brokerctl.stop.protocol import STATUS_PREFIX
from brokerctl.stop.report import as_bytes
from brokerctl.stop.target import Aim

# The broker answers in ~10 ms (FLUX.md 104); the manager in about as long.
STATE_NS, STATUS_NS, REASON_NS = 2 * S, 1 * S, 300 * MS
LIST_NS, OVERLAY_NS, SHED_NS = 1500 * MS, 4 * S, 4 * S
# Where an installation has its broker; `flux` is in its bin.
_BROKER = re.compile(r"(?P<prefix>.*)/(?:libexec|lib|lib64|lib/[^/]+)/flux/cmd/(?:lt-)?flux-broker(?: \(deleted\))?")


class FluxCommand(NamedTuple):
    """How a broker is asked: the command, whom it runs as, and where the broker listens."""

    path: str
    user: User | None
    uri: str

    def __call__(self, *words: str, within_ns: int = STATE_NS) -> Command:
        """A command of Flux."""
        return Command([self.path, *words], within_ns, self.user, {**ENVIRONMENT, "FLUX_URI": self.uri})


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


def status_of(unit: str) -> Command:
    """What the manager knows as the unit's status: the last STATUS= of main, or of whoever may send one."""
    return Command(["systemctl", "show", "--property=StatusText", "--value", "--", unit], STATUS_NS)


class FluxBroker:
    """One Flux broker, and what was learned of it."""

    def __init__(self, aim: Aim) -> None:
        words = proc.words(aim.pid)
        self.flux = FluxCommand(aim.flux or installed(aim.pid) or "flux", aim.owner, uri(words, aim.name))
        self.aim = aim
        self.attrs: dict[str, str] = {}
        self.text = ""  # main's last own status
        at = proc.stat(aim.pid)
        self.began_s = time.time() - (proc.age_ns(at) / S if at else 0)  # a dump of this life is younger
        self.reason = ""  # how the stop began
        self._asked_why = False
        self._done = 0

    @property
    def rank(self) -> int:
        """Its rank, by its attributes or its name."""
        told = self.attrs.get("rank") or self.aim.name.rpartition("-")[2]
        return int(told) if told.isdigit() else 0

    @property
    def statedir(self) -> str:
        """Where it keeps what outlives it; "" where it keeps nothing."""
        return self.attrs.get("statedir", "") if self.attrs.get("statedir-cleanup") != "1" else ""

    def look(self) -> Errand[Look]:
        """What it does now.

        How long its state has lasted is an upper bound: what is done to processes that were started since its beginning
        must not miss the first.
        """
        began_ns = time.monotonic_ns()
        commands = [self.flux("uptime"), *([status_of(self.aim.unit)] if self.aim.unit else [])]
        if not self.attrs:
            commands.append(self.flux("lsattr", "-v"))
        said = yield commands
        if not self.attrs:
            self.attrs = flux.attributes(said[-1].text)
        told = printable(said[1].text.strip()) if self.aim.unit else ""
        found = flux.uptime(said[0].text)
        guessed = ""
        if told and not told.startswith(STATUS_PREFIX):
            self.text = told
            guessed = "" if found else flux.guess(told, self.attrs)
        state = found.state if found else guessed
        if state and flux.guess(self.text, self.attrs) not in {"", state}:
            self.text = ""  # of an earlier state: a later one of main's was overwritten by ours before it was read
        jobs, progress = 0, ""
        if state == State.RUN and self.rank:
            jobs = yield from self._jobs_here()
        elif state == State.FINALIZE:
            progress = yield from self._progress()
        if state in STOPPING and not self._asked_why:
            self._asked_why = True
            self.reason = yield from _reason(self.rank)
        return Look(
            state=state,
            guessed=not found and bool(guessed),
            held_ns=found.held_ns + time.monotonic_ns() - began_ns if found and found.held_ns is not None else None,
            rank=self.rank,
            size=found.size if found else int(self.attrs.get("size", "1")),
            text=self.text,
            done=self._done,
            progress=progress,
            limits=flux.limits(self.attrs) if self.attrs else None,
            reason=self.reason,
            jobs=jobs,
        )

    def _jobs_here(self) -> Errand[int]:
        said = (yield [self.list_jobs()])[0]
        return sum(self.rank in job.on for job in flux.jobs(said.text))

    def list_jobs(self) -> Command:
        """All jobs that run or are in their CLEANUP."""
        return self.flux("job", "list", "--user=all", "--states=run,cleanup", within_ns=LIST_NS)

    def _progress(self) -> Errand[str]:
        """How far the dump is: keys archived, by its status, and bytes in its file."""
        keys = flux.archived(self.text)
        dump = None
        for said in (yield self.finding()):
            if not said.why:
                dump = self.dump(said)
        size = dump.size if dump else 0
        self._done = max(self._done, keys + size)
        words = [f"{keys} keys archived"] if keys else []
        if dump and size:
            words.append(f"{as_bytes(size)} in {dump.name}")
        return ", ".join(words)

    @property
    def dumps(self) -> bool:
        """Whether rc3 is to write a dump that outlives it."""
        where = self.attrs.get("content.dump", "")
        return bool(where) and (where != "auto" or bool(self.statedir))

    def finding(self) -> list[Command]:
        """The command that looks for the file that this stop dumps to; none where nothing is dumped."""
        if not self.dumps:
            return []
        where = self.attrs["content.dump"]
        folder, name = (f"{self.statedir}/dump", "*.tgz") if where == "auto" else os.path.split(where)
        argv = ["find", folder or "/", "-maxdepth", "1", "(", "-name", name, "-o", "-name", "RESTORE", ")"]
        return [Command([*argv, *_PRINTED], STATUS_NS, self.flux.user)]

    def dump(self, said: Said) -> Dump | None:
        """What it found, None where there is no dump yet; OSError where nobody can tell.

        rc3 points the link RESTORE to a dump that is complete, unless a file was named (`content.dump`).
        """
        if said.why and "No such file" not in said.why:
            raise OSError(said.why)
        return newest(said.text, self.began_s - _CLOCK_SLACK_S, linked=self.attrs["content.dump"] == "auto")

    def peers(self) -> Errand[Peers]:
        """Who holds SHUTDOWN."""
        said = yield from self._overlay()
        return flux.peers(said)

    def _overlay(self) -> Errand[list[flux.Node]]:
        said = (yield [self.flux("overlay", "status", "--color=never", within_ns=OVERLAY_NS)])[0]
        nodes = flux.overlay(said.text)
        if not nodes and said.why:
            raise OSError(said.why)
        return nodes

    def shed(self, words: str) -> Errand[Sheds]:
        """Disconnect ranks; which jobs that cuts off is asked first."""
        ranks = parse_idset(words)
        listed = (yield [self.list_jobs()])[0]
        try:
            nodes = yield from self._overlay()
        except OSError:
            nodes = []
        said = yield [self.flux("overlay", "disconnect", str(rank), within_ns=SHED_NS) for rank in ranks]
        return Sheds(
            tuple(_shed(rank, one, nodes, flux.jobs(listed.text)) for rank, one in zip(ranks, said, strict=True))
        )


def _reason(rank: int) -> Errand[str]:
    """How a stop began, as far as the journal tells it: what no signal began was requested."""
    invocation = os.environ.get("INVOCATION_ID", "")
    if not invocation:
        return ""
    said = (yield [reading(invocation)._replace(within_ns=REASON_NS)])[0]
    told = story(read(said.text), rank)
    return ("signal" if told.signals else "request") if told.stopping else ""


class Dump(NamedTuple):
    """A dump's file: when it was last written (seconds since the epoch), its bytes, its path, whether it is whole."""

    at_s: float
    size: int
    path: str
    complete: bool = True

    @property
    def name(self) -> str:
        """Its last part."""
        return self.path.rpartition("/")[2]


_PRINTED = ("-printf", "%y %T@ %s %l %p\\n")  # of what is no link, %l is empty
_CLOCK_SLACK_S = 2.0  # a file system's clock may be a little behind


def newest(listing: str, since_s: float, linked: bool) -> Dump | None:
    """The newest dump that was written since then; `linked`: it is complete when RESTORE points to it."""
    found, target = [], ""
    for line in listing.splitlines():
        words = line.split(" ", 4)
        try:
            kind, at_s, size = words[0], float(words[1]), int(words[2])
        except (ValueError, IndexError):
            continue
        if kind == "l":
            target = words[3]
        elif kind == "f" and at_s >= since_s:
            found.append(Dump(at_s, size, words[4]))
    last = max(found, default=None)
    return last._replace(complete=not linked or last.name == target) if last else None


def _shed(rank: int, said: Said, nodes: list[flux.Node], jobs: list[flux.Job]) -> ShedRank:
    at = next((index for index, node in enumerate(nodes) if node.rank == rank), None)
    host = nodes[at].host if at is not None else ""
    if said.why:
        return ShedRank(rank, host, error=said.why)
    below = [node.rank for node in flux.subtree(nodes, at)] if at is not None else []
    cut = {rank, *below}
    return ShedRank(rank, host, idset(below), tuple(job.f58 for job in jobs if cut & job.on))
