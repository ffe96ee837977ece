"""Drives one rank's model by hand: what a world would deliver, in the order that a test says."""

from __future__ import annotations

import signal

from brokerctl import config
from brokerctl.durations import S
from brokerctl.model.node import Node
from brokerctl.model.tree import Tree
from brokerctl.records import (
    Arm,
    Booted,
    Cancel,
    Command,
    Effect,
    Emptied,
    Ended,
    Event,
    Exit,
    Exited,
    Fired,
    Kill,
    Log,
    Moved,
    Notify,
    OutputEnded,
    Signal,
    Start,
)
from brokerctl.settings import Action, Settings
from brokerctl.trace import Topology

HUP, TERM, KILL = signal.SIGHUP, signal.SIGTERM, signal.SIGKILL


def action(text: str, **kwargs) -> Action:
    return Action(Command(text, ("/bin/sh", "-c", text)), **kwargs)


def settings(policy: str = "flux", **fields) -> Settings:
    return config.with_fields(policy, fields)


class Driver:
    """A node, its clock, its armed timers and its started runs."""

    def __init__(self, made: Settings, topology: Topology | None = None, rank: int = 0) -> None:
        self.tree = Tree(topology or Topology())
        self.node = Node(rank, made, self.tree)
        self.now_ns = 0
        self.effects: list[Effect] = []
        self.timers: dict[str, Arm] = {}
        self.due: dict[str, int] = {}
        self.running: list[str] = []

    def give(self, event: Event) -> list[Effect]:
        out: list[Effect] = []
        self.node.handle(self.now_ns, event, out)
        self.effects += out
        for effect in out:
            match effect:
                case Arm(timer, after_ns):
                    self.timers[timer] = effect
                    self.due[timer] = self.now_ns + after_ns
                case Cancel(timer):
                    del self.timers[timer], self.due[timer]
                case Start(run):
                    self.running.append(run)
                case Ended(run):
                    self.running.remove(run)
                case _:
                    pass
        if "unload" in self.timers:  # the last millisecond of a Flux broker: nothing to test there
            out += self.fire("unload")
        return out

    def boot(self) -> Driver:
        self.give(Booted())
        return self

    def until_run(self) -> Driver:
        """Boot, let rc1 succeed, and the online batch pass."""
        self.boot()
        while self.running and self.running[0].startswith("rc1"):
            self.exits(self.running[0])
        if self.state == "quorum":
            self.fire("online")
        assert self.state == "run", self.state
        return self

    @property
    def state(self) -> str:
        return str(self.node.broker.state)

    def signal(self, signum: int = TERM, after_s: float = 0) -> list[Effect]:
        self.now_ns += int(after_s * S)
        return self.give(Signal(signum))

    def exits(self, run: str, rc: int = 0, *, by: int = 0, after_s: float = 0, emptied: bool = False) -> list[Effect]:
        self.now_ns += int(after_s * S)
        out = self.give(OutputEnded(run))
        out += self.give(Exited(run, by or rc << 8))
        if emptied:
            out += self.give(Emptied(run))
        return out

    def fire(self, timer: str) -> list[Effect]:
        self.now_ns = max(self.now_ns, self.due.pop(timer))
        del self.timers[timer]
        return self.give(Fired(timer))

    # ---- what came out

    def of(self, kind: type) -> list:
        return [effect for effect in self.effects if isinstance(effect, kind)]

    @property
    def moves(self) -> list[str]:
        return [f"{move.event}: {move.old}->{move.new}" for move in self.of(Moved)]

    @property
    def ended(self) -> list[tuple[str, int, str]]:
        return [(end.run, end.rc, end.how) for end in self.of(Ended)]

    @property
    def kills(self) -> list[tuple[str, int]]:
        return [(kill.run, kill.signum) for kill in self.of(Kill)]

    @property
    def started(self) -> list[str]:
        return [start.command.text for start in self.of(Start)]

    @property
    def logs(self) -> list[str]:
        return [log.text for log in self.of(Log)]

    @property
    def notes(self) -> list[str]:
        return [note.text for note in self.of(Notify)]

    @property
    def code(self) -> int:
        """The exit code; nothing of the node is left armed or running."""
        (code,) = [effect.code for effect in self.of(Exit)]
        assert isinstance(self.effects[-1], Exit), "nothing follows Exit"
        assert not self.node.runs, "no run is left"
        left = {name for name, timer in self.timers.items() if not timer.reminder}
        assert left <= {"shutdown-timeout"}, left  # Flux never disarms that one
        return code

    def finish(self) -> int:
        """Let everything that still runs succeed; the exit code."""
        while self.running:
            self.exits(self.running[0])
        return self.code

    def exits_only(self, run: str, rc: int = 0) -> list[Effect]:
        return self.give(Exited(run, rc << 8))

    def give_emptied(self, run: str) -> list[Effect]:
        return self.give(Emptied(run))
