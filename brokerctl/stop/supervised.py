"""A broker of `brokerctl run` or `start`, asked over its control socket (docs/running.md)."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any

from brokerctl.durations import S
from brokerctl.errors import ControlError
from brokerctl.ids import parse_idset
from brokerctl.kernel import proc
from brokerctl.model.lifecycle import State
from brokerctl.records.stops import Holding, Limits, Look, Peers, ShedRank, Sheds
from brokerctl.stop.errands import Errand, nothing
from brokerctl.stop.target import Aim, verb_of
from brokerctl.worlds.live import client, rundir

# It answers within a turn of its loop (worlds.live.client); one that doesn't is stopped.
ANSWER_S = 1.0
# Ranks that don't answer are waited for one after the other.
BLAME_NS = 4 * S
SILENT = "does not answer"
_RANKS = re.compile(r"\(rank ([0-9,-]+)\)$")


class Supervised:
    """One broker, and what was learned of it."""

    def __init__(self, aim: Aim) -> None:
        self.aim = aim
        self.rank = 0
        self._tree = where(aim)
        self._rundir = self._tree / "0" if verb_of(proc.words(aim.pid)) == "start" else self._tree

    def look(self) -> Errand[Look]:
        """What it does now."""
        yield from nothing()
        asked_ns = time.monotonic_ns()
        told = self._status()
        self.rank = int(told["rank"])
        running = told["running"]
        pending = sum(told["pending"].values())
        text = f"{running[0]['run']}: {running[0]['command']}" if running else str(told["waits"])
        return Look(
            state=told["state"],
            held_ns=told["held_ns"] + time.monotonic_ns() - asked_ns,  # an upper bound: it answered meanwhile
            left_ns=told["left_ns"],
            rank=self.rank,
            size=told["size"],
            text=text,
            step=f"1 of {pending} left" if pending > 1 and running else "",
            limits=Limits(told.get("cleanup_timeout_ns"), told.get("shutdown_timeout_ns")),
            reason=told["reason"],
        )

    def peers(self) -> Errand[Peers]:
        """Who is waited for; to blame is who doesn't answer, or has nobody to wait for itself.

        One that has a limit for them sheds them itself. In CLEANUP all are there as they should be, but who is silent.
        """
        yield from nothing()
        told = self._status()
        text = str(told["peers"])
        deadline_ns = time.monotonic_ns() + BLAME_NS
        blamed = [] if told["left_ns"] is not None else self._to_blame(text, deadline_ns)
        if told["state"] == State.CLEANUP:
            blamed = [(rank, status) for rank, status in blamed if status == SILENT]
        return Peers(text, tuple(Holding(rank, status=status) for rank, status in blamed))

    def _to_blame(self, waiting: str, deadline_ns: int) -> list[tuple[int, str]]:
        found = []
        for rank in _ranks(waiting):
            if time.monotonic_ns() > deadline_ns:
                break  # the others have their turn at the next question
            try:
                told = client.ask(self._tree / str(rank), "status", timeout_s=ANSWER_S)
            except ControlError:
                found.append((rank, SILENT))
                continue
            below = str(told.get("peers", "")) if told.get("state") == State.SHUTDOWN else ""
            found += self._to_blame(below, deadline_ns) if below else [(rank, f"in {told.get('state')}")]
        return found

    def shed(self, ranks: str) -> Errand[Sheds]:
        """Have the leader disconnect these."""
        yield from nothing()
        done = []
        for rank in parse_idset(ranks):
            answer = client.ask(self._rundir, "disconnect", [str(rank)], ANSWER_S)
            done.append(ShedRank(rank, error=str(answer.get("error", ""))))
        return Sheds(tuple(done))

    def _status(self) -> dict[str, Any]:
        with client.Connection(self._rundir, ANSWER_S) as connection:
            pid = connection.peer_pid()
            parent = proc.stat(pid) if self._rundir != self._tree else None  # the leader of a tree is its starter's
            if pid != self.aim.pid and (parent is None or parent.ppid != self.aim.pid):
                raise ControlError(f"another process listens in {self._rundir}")
            connection.send("status")
            answer = connection.answer()
        if "error" in answer:
            raise ControlError(f"the broker refused: {answer['error']}")
        return answer


def _ranks(waiting: str) -> list[int]:
    """Of `3 peers: picl[4,7-8] (rank 4,7-8)`."""
    match = _RANKS.search(waiting)
    return list(parse_idset(match[1])) if match else []


def where(aim: Aim) -> Path:
    """The rundir of a broker, by its command line and its environment, as it has chosen it itself."""
    words = proc.words(aim.pid)
    option = None
    for at, word in enumerate(words):
        if word == "--":
            break  # what follows is the words of its program
        if word == "--rundir" and at + 1 < len(words):
            option = words[at + 1]
        elif word.startswith("--rundir="):
            option = word.removeprefix("--rundir=")
    entries = (entry.decode(errors="surrogateescape").partition("=") for entry in proc.environ(aim.pid).split(b"\0"))
    chosen = rundir.choose(option, {name: value for name, _, value in entries}, aim.owner.uid)
    try:
        return Path(os.readlink(f"/proc/{aim.pid}/cwd")) / chosen  # noqa: PTH115 - as it was when it began
    except OSError:
        return chosen
