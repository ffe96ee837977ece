"""A Flux broker, asked by commands: what it does, who holds it, and ranks of it sent away."""

from __future__ import annotations

import os
import time
from typing import NamedTuple

from brokerctl.durations import MS, S
from brokerctl.ids import idset, parse_idset
from brokerctl.kernel import proc
from brokerctl.model.lifecycle import STOPPING, State
from brokerctl.records.stops import Look, Peers, ShedRank, Sheds
from brokerctl.stop import flux
from brokerctl.stop.errands import Command, Errand, Said, printable
from brokerctl.stop.fluxcommand import FluxCommand
from brokerctl.stop.journal import read, reading
from brokerctl.stop.protocol import STATUS_PREFIX
from brokerctl.stop.report import as_bytes
from brokerctl.stop.story import story
from brokerctl.stop.target import Aim

# The manager answers in ~10 ms, as the broker does.
STATUS_NS, REASON_NS = 1 * S, 300 * MS
OVERLAY_NS, SHED_NS = 4 * S, 4 * S


def status_of(unit: str) -> Command:
    """What the manager knows as the unit's status: the last STATUS= of main, or of whoever may send one."""
    return Command(["systemctl", "show", "--property=StatusText", "--value", "--", unit], STATUS_NS)


class FluxBroker:
    """One Flux broker, and what was learned of it."""

    def __init__(self, aim: Aim) -> None:
        self.flux = FluxCommand.of(aim)
        self.aim = aim
        self.attrs: dict[str, str] = {}
        self.text = ""  # main's last own status
        at = proc.stat(aim.pid)
        self.began_s = time.time() - (proc.age_ns(at) / S if at else 0)  # a dump of this life is younger
        self.reason = ""  # how the stop began
        self._state = ""  # at the last look
        self._asked_why = False
        self.asked = False  # for its attributes
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
        said = yield commands
        told = printable(said[1].text.strip()) if self.aim.unit else ""
        found = flux.uptime(said[0].text)
        if not self.attrs and not (found and found.state == State.RUN):
            yield from self.learn()  # a stop that is under way can't be judged without its limits
        guessed = ""
        if told and not told.startswith(STATUS_PREFIX):
            self.text = told
            guessed = "" if found else flux.guess(told, self.attrs)
        state = self._state = found.state if found else guessed
        if not state and said[0].why:
            raise OSError(said[0].why)
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

    def learn(self) -> Errand[None]:
        """Its attributes, among them the limits of its stop: they do not change."""
        self.asked = True
        said = (yield [self.flux.list_attributes()])[0]
        self.attrs = flux.attributes(said.text)
        self.asked = not said.why

    def _jobs_here(self) -> Errand[int]:
        said = (yield [self.flux.list_jobs()])[0]
        return sum(self.rank in job.on for job in flux.jobs(said.text))

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
        """Who holds the stop: in SHUTDOWN those that have not said goodbye, in CLEANUP those with work of a job."""
        nodes = yield from self._overlay()
        found = flux.peers(nodes)
        if self._state != State.CLEANUP:
            return found
        # Where the plugin is not loaded, it refuses: there is no prolog or epilog of its then.
        said = (yield [self.flux("jobtap", "query", "perilog.so", within_ns=OVERLAY_NS)])[0]
        return Peers(found.text, flux.holding_cleanup(nodes, flux.acting(said.text)))

    def _overlay(self) -> Errand[list[flux.Node]]:
        said = (yield [self.flux("overlay", "status", "--color=never", within_ns=OVERLAY_NS)])[0]
        nodes = flux.overlay(said.text)
        if not nodes and said.why:
            raise OSError(said.why)
        return nodes

    def shed(self, words: str) -> Errand[Sheds]:
        """Disconnect ranks; which jobs that cuts off is asked first."""
        ranks = parse_idset(words)
        listed = (yield [self.flux.list_jobs()])[0]
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
