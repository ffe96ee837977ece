"""Drives a unit by hand: its processes live until a test ends them, its timers fire when a test says so."""

from __future__ import annotations

from brokerctl.durations import S
from brokerctl.model.unit import Unit
from brokerctl.records import (
    Arm,
    Cancel,
    Command,
    Exited,
    Fired,
    KillOthers,
    KillProcess,
    Notified,
    Populated,
    Returned,
    Start,
    Systemctl,
    UnitMoved,
)
from brokerctl.records.units import ExecLine, UnitSettings

T = 2 * S


def line(text="x", **more) -> ExecLine:
    return ExecLine(Command(text), **more)


def settings(**fields) -> UnitSettings:
    given = {"exec_start": (line("main"),), "timeout_stop_ns": T, "timeout_abort_ns": T, **fields}
    return UnitSettings(**given)


class Driver:
    """A unit, the processes that it has started, and its armed timers. SIGKILL ends a process at once."""

    def __init__(self, made: UnitSettings) -> None:
        self.unit = Unit(made)
        self.now_ns = 0
        self.alive: list[str] = []
        self.due: dict[str, int] = {}
        self.returned: dict[int, int] = {}
        self.effects: list = []
        self.clients = 0
        self.others = 0

    @property
    def state(self) -> str:
        return str(self.unit.state)

    def give(self, event) -> list:
        out: list = []
        self.unit.handle(self.now_ns, event, out)
        self.effects += out
        killed: list[str] = []
        for effect in out:
            match effect:
                case Start(run):
                    if run in self.alive:  # it has survived its life of the unit
                        self.alive.remove(run)
                        self.others += 1
                    self.alive.append(run)
                case KillProcess(run, 9):
                    killed.append(run)
                case KillOthers(9):
                    self.others = 0
                    killed.append("")
                case Arm(timer, after_ns):
                    self.due[timer] = self.now_ns + after_ns
                case Cancel(timer):
                    del self.due[timer]
                case Returned(client, rc):
                    assert client not in self.returned, "a client returns once"
                    self.returned[client] = rc
                case _:
                    pass
        for run in killed:
            if not run:
                self.give(Populated(0))
            elif run in self.alive:
                self.ends(run, 9)
        return out

    def systemctl(self, verb: str, **more) -> int:
        self.clients += 1
        self.give(Systemctl(verb, self.clients, **more))
        return self.clients

    def ends(self, run: str, status: int = 0) -> list:
        self.alive.remove(run)
        return self.give(Exited(run, status))

    def says(self, text: str, sender="main") -> list:
        return self.give(Notified(sender, text))

    def leaves(self, count: int) -> list:
        self.others = count
        return self.give(Populated(count))

    def fire(self) -> list:
        """The next timer."""
        timer = min(self.due, key=lambda name: self.due[name])
        self.now_ns = max(self.now_ns, self.due.pop(timer))
        return self.give(Fired(timer))

    def states(self) -> list[str]:
        return [effect.new for effect in self.effects if isinstance(effect, UnitMoved)]
