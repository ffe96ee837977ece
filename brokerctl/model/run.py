"""One run: a process from its start until it is complete, and the ladder that ends it.

It is complete when the process has exited *and* its output has ended (FLUX.md 22). Where the ladder reaches everything
that descends from it (scope `all`), an aborted run is complete only when nothing of it is left, or when the ladder is
used up: then it is told as still running, and abandoned.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from brokerctl.durations import as_short
from brokerctl.model.ladder import Ladder
from brokerctl.model.words import ENOENT, ESRCH, error_text, signal_name, signal_text
from brokerctl.records import (
    Abandon,
    CloseOutput,
    Command,
    Ended,
    Kill,
    KillFailed,
    Output,
    OutputEnded,
    Start,
)
from brokerctl.settings import Rung

if TYPE_CHECKING:
    from brokerctl.model.desk import Desk

CRIT, ERR, WARNING, INFO, DEBUG = 2, 3, 4, 6, 7
RC_NOT_FOUND = 127
RC_NOT_EXECUTABLE = 126
RC_ABORTED = 1  # aborted, and yet exited with 0 (FLUX.md 21)
SIGKILL = 9
STILL_RUNNING = "still running"
_KILLED = (Rung(SIGKILL, None),)


class Run:
    """A started process. `done(rc, how)` is called once, when it is complete; `rc` is 0–255 as a shell has it.

    `status` is its wait status then. It is ended by `rungs`, else by the ladder of its broker. `said(stream, text)`
    gets what it writes, which is else logged here.
    """

    __slots__ = (
        "_aborted", "_asked", "_command", "_desk", "_done", "_emptied", "_exited", "_ladder", "_output_ended", "_rungs",
        "_said", "_started_ns", "name", "status",
    )  # fmt: skip

    def __init__(
        self,
        desk: Desk,
        name: str,
        command: Command,
        done: Callable[[int, str], None],
        *,
        rungs: tuple[Rung, ...] = (),
        said: Callable[[Literal["out", "err"], str], None] | None = None,
    ) -> None:
        self._desk = desk
        self.name = name
        self._command = command
        self._done = done
        self._rungs = rungs
        self._said = said
        self._started_ns = desk.now_ns
        self.status = 0
        self._exited = self._emptied = self._aborted = False
        self._output_ended = command.inherit  # nothing to read: complete when it exits
        self._ladder: Ladder | None = None
        self._asked = 0  # by this signal, to end

    def begin(self) -> None:
        """Start it."""
        self._desk.runs[self.name] = self
        self._desk.emit(Start(self.name, self._command))

    # ---- what it is told by the world

    def exited(self, status: int) -> None:
        """The main process is gone."""
        self._exited, self.status = True, status
        grace_ns = self._desk.settings.output_grace_ns
        if not self._output_ended and grace_ns is not None:
            self._desk.arm(f"output-grace {self.name}", grace_ns, self._close_output)
        self._complete()

    def output(self, event: Output) -> None:
        """It wrote a line."""
        if self._said is not None:
            self._said(event.stream, event.text)
            return
        self._desk.log("broker", INFO if event.stream == "out" else ERR, f"{self.name}: {event.text}")

    def output_ended(self, event: OutputEnded) -> None:
        """Nobody can write to its output any more."""
        self._output_ended = True
        self._desk.cancel(f"output-grace {self.name}")
        if event.dropped:
            self._desk.log("broker", WARNING, f"{self.name}: {event.dropped} more bytes of output were not logged")
        if event.holder:
            self._desk.log("broker", WARNING, f"{self.name}: its output was still held by {event.holder}")
        self._complete()

    def emptied(self) -> None:
        """No process of it is left."""
        self._emptied = True
        self._complete()

    def spawn_failed(self, errno: int) -> None:
        """It could not be started (FLUX.md 18)."""
        rc = RC_NOT_FOUND if errno == ENOENT else RC_NOT_EXECUTABLE
        self.status = rc << 8
        if self._command.inherit and not self._desk.settings.explain:
            self._end(rc, "Exited")  # rc2 of Flux: its fork exits with the code (FLUX.md 18)
        else:
            self._end(rc, f"error launching process: {error_text(errno)}")

    def kill_failed(self, event: KillFailed) -> None:
        """A signal could not be sent, or reached nobody."""
        if event.errno != ESRCH:
            name = signal_name(event.signum)
            self._desk.log("broker", ERR, f"{self.name}: cannot send {name}: {error_text(event.errno)}")
        elif event.signum != SIGKILL:
            self._desk.log("broker", DEBUG, f"kill: killpg: {error_text(ESRCH)}")

    # ---- its end by force

    def abort(self, rungs: tuple[Rung, ...] = ()) -> None:
        """Step on the ladder, on that of `rungs` if there are any; it climbs by its own times from there."""
        if self._ladder is None:
            self._aborted = True
            self._ladder = Ladder(rungs or self._rungs or self._desk.settings.ladder)
            self._rung(self._ladder.hurry())

    def hurry(self) -> None:
        """A signal asks for the end: step on the ladder, or one rung further."""
        if self._ladder is None:
            self.abort()
        else:
            self._rung(self._ladder.hurry())

    def ask(self, signum: int) -> None:
        """Ask it to end by a signal, death by which is a clean end then, as for systemd (SYSTEMD.md 13)."""
        if self._ladder is None:
            self._asked = signum
            self.signal(signum)

    def signal(self, signum: int) -> None:
        """Hand it a signal that somebody sent to the broker for it (FLUX.md 33)."""
        self._desk.emit(Kill(self.name, signum, "group"))

    def kill(self) -> None:
        """End it at once: nobody is left who would wait for a ladder (FLUX.md 55)."""
        self._aborted = True
        self._ladder = Ladder(_KILLED)
        self._rung(self._ladder.hurry())

    def abandon(self) -> None:
        """Forget it: it is told as still running, and no end of it is waited for."""
        self._done = lambda _rc, _how: None
        self._give_up("its broker's end")

    def _rung(self, rung: Rung) -> None:
        desk = self._desk
        desk.cancel(f"ladder {self.name}")
        desk.emit(Kill(self.name, rung.signum, desk.settings.ladder_scope))
        if rung.wait_ns is not None:
            desk.arm(f"ladder {self.name}", rung.wait_ns, self._climb)

    def _climb(self) -> None:
        assert self._ladder is not None
        last, rung = self._ladder.rungs[self._ladder.rung], self._ladder.climb()
        if rung is not None:
            if self._desk.settings.explain and last.wait_ns is not None:
                held = f"{signal_name(last.signum)} did not end it within {as_short(last.wait_ns)}"
                self._desk.log("broker", WARNING, f"{self.name}: {held}; now {signal_name(rung.signum)}")
            self._rung(rung)
            return
        self._give_up(", ".join(signal_name(signum) for signum in self._ladder.sent()))

    def _give_up(self, sent: str) -> None:
        self._desk.log("broker", ERR, f"{self.name}: still running after {sent}: {self._command.text}")
        self._desk.emit(Abandon(self.name))
        if self._exited:
            self._end(*self._verdict())
        else:
            self.status = SIGKILL
            self._end(128 + SIGKILL, STILL_RUNNING)

    def _close_output(self) -> None:
        self._desk.emit(CloseOutput(self.name))

    # ---- completion

    def _complete(self) -> None:
        watched = self._aborted and self._desk.settings.ladder_scope == "all"
        if self._exited and self._output_ended and (self._emptied or not watched):
            self._end(*self._verdict())

    def _verdict(self) -> tuple[int, str]:
        """The code and what became of it, from the wait status (FLUX.md 13, 19, 21)."""
        signum = self.status & 0x7F
        if signum and signum == self._asked and not self._aborted:
            return 0, signal_text(signum)
        if signum:
            return 128 + signum, signal_text(signum)
        rc = self.status >> 8
        if rc == 0 and self._aborted:
            return RC_ABORTED, "aborted after exit with rc=0"
        return rc, "Exited"

    def _end(self, rc: int, how: str) -> None:
        desk = self._desk
        desk.cancel(f"output-grace {self.name}")
        desk.cancel(f"ladder {self.name}")
        del desk.runs[self.name]
        desk.emit(Ended(self.name, self._command.text, rc, how, desk.now_ns - self._started_ns))
        self._done(rc, how)

    def about(self) -> dict[str, object]:
        """What `status` says of it."""
        sent = self._ladder.sent() if self._ladder is not None else ()
        return {
            "run": self.name,
            "command": self._command.text,
            "for_ns": self._desk.now_ns - self._started_ns,
            "exited": self._exited,
            "signals": [signal_name(signum) for signum in sent],
        }
