"""A small stage for stories of many ranks in virtual time: puppets by a line, steps by a time, and what came out."""

from __future__ import annotations

import msgspec

from brokerctl import config
from brokerctl.check.invariants import INVARIANTS
from brokerctl.durations import S
from brokerctl.logs.fluxlog import as_flux_log
from brokerctl.model.job import JobSpec
from brokerctl.model.tree import Tree, flat, kary
from brokerctl.records import Asked, Command, Drain, Freed, JobEvent, Line, Moved, Signal
from brokerctl.settings import Action
from brokerctl.trace import Topology
from brokerctl.worlds.contract import Deliver, Fault, Outcome, Resolved, Step
from brokerctl.worlds.puppets import FOREVER, PuppetSpec, Span
from brokerctl.worlds.sim.world import SimWorld

TERM = 15


class At:
    """A step's trigger: so many seconds after the beginning."""

    def __init__(self, seconds: float) -> None:
        self._ns = int(seconds * S)

    def begin(self) -> int:
        return self._ns

    def see(self, line: Line) -> None:
        del line


class Story:
    """Builds an instance, runs it in virtual time, and answers questions about its trace."""

    def __init__(self, size: int, *, fanout: int = 2, policy: str = "flux", **fields) -> None:
        parents = kary(size, fanout) if fanout else flat(size)
        self.topology = Topology(parents, tuple(f"n{rank}" for rank in range(size)))
        self.policy, self.fields = policy, fields
        self.puppets: dict[str, PuppetSpec] = {}
        self.steps: list[Step] = []
        self.lines: list[Line] = []

    def puppet(self, name: str, runs: float | dict | None, *, rc: int | dict = 0, **more) -> Action:
        """A puppet, and the action that starts it; `runs` and `rc` may differ by rank (-1 is every other)."""
        spans = runs if isinstance(runs, dict) else {-1: runs}
        codes = rc if isinstance(rc, dict) else {-1: rc}
        self.puppets[name] = PuppetSpec(
            name=name,
            command=name,
            runs={rank: FOREVER if s is None else Span(int(s * S), int(s * S)) for rank, s in spans.items()},
            statuses={rank: code << 8 for rank, code in codes.items()},
            **more,
        )
        return Action(Command(name, puppet=name))

    def signal(self, at: float, rank: int = 0, signum: int = TERM) -> Story:
        self.steps.append(Step(At(at), Deliver(rank, Signal(signum)), f"signal at {at}"))
        return self

    def ask(self, at: float, what: str, *words: str, rank: int = 0) -> Story:
        self.steps.append(Step(At(at), Deliver(rank, Asked(what, words=words)), f"{what} at {at}"))
        return self

    def job(self, at: float, name: str, task: Action, **spec) -> Story:
        """Submit a job then."""
        text = msgspec.json.encode(JobSpec(name=name, task=task.command, **spec)).decode()
        self.steps.append(Step(At(at), Deliver(0, Asked("submit", text=text)), f"{name} at {at}"))
        return self

    def four(self) -> Story:
        """Flux's own cleanup actions, 0.2 s each."""
        names = {"queue-stop": "queue-stop", "mute": "acquire-mute", "cancel": "cancel-running", "idle": "queue-idle"}
        self.fields["cleanup"] = tuple(self.puppet(name, 0.2, asks=(what,)) for name, what in names.items())
        return self

    def fault(self, at: float, kind: str, *ranks: int, delay: float = 0) -> Story:
        self.steps.append(Step(At(at), Fault(kind, ranks, int(delay * S)), f"{kind} at {at}"))
        return self

    @property
    def size(self) -> int:
        return len(self.topology.parents)

    def run(self, horizon: float = 3600, *, undone: bool = False) -> Outcome:
        """Run it; every step must come, but where some may be `undone`."""
        settings = config.with_fields(self.policy, self.fields)
        self.settings, self.tree = settings, Tree(self.topology)
        resolved = Resolved(
            name="story", settings=settings, topology=self.topology, puppets=self.puppets, steps=tuple(self.steps)
        )
        self.outcome = SimWorld().run(resolved, self.lines.append, int(horizon * S))
        assert undone or not self.outcome.undone
        return self.outcome

    # ---- questions

    def events(self, label: str, *, contexts: bool = False) -> list:
        """A job's eventlog: names, or names with contexts."""
        found = [line.what for line in self.lines if isinstance(line.what, JobEvent) and line.what.label == label]
        return [(event.name, event.context) if contexts else event.name for event in found]

    def at(self, label: str, name: str) -> float:
        """When that event of that job came, in seconds."""
        times = [
            line.t_ns
            for line in self.lines
            if isinstance(line.what, JobEvent) and (line.what.label, line.what.name) == (label, name)
        ]
        return times[0] / S

    def drained(self) -> dict[int, str]:
        """The reason of each rank that was drained."""
        facts = [line.what for line in self.lines if isinstance(line.what, Drain)]
        return {rank: fact.reason for fact in facts for rank in fact.ranks}

    def freed(self) -> dict[int, float]:
        """When each rank was given back to the scheduler (the last time), in seconds."""
        return {rank: line.t_ns / S for line in self.lines if isinstance(line.what, Freed) for rank in line.what.ranks}

    def log(self, rank: int | None = None, level: int = 3) -> list[str]:
        """The log lines of that level or worse, `broker.err[0]: …`."""
        texts = []
        for line in self.lines:
            text = as_flux_log(line, self.topology.hosts)
            if text is not None and int(text[1]) <= level and rank in {None, line.rank}:
                texts.append(text[3:])
        return texts

    def moves(self, rank: int) -> list[str]:
        return [
            f"{line.what.event}: {line.what.old}->{line.what.new}"
            for line in self.lines
            if line.rank == rank and isinstance(line.what, Moved)
        ]

    def entered(self, rank: int, state: str) -> float:
        """When that rank entered a state, in seconds."""
        (t_ns,) = [
            line.t_ns
            for line in self.lines
            if line.rank == rank and isinstance(line.what, Moved) and line.what.new == state
        ]
        return t_ns / S

    def broken(self) -> set[str]:
        """The names of the invariants that do not hold."""
        names = set()
        for make in INVARIANTS.values():
            reader = make(self.settings, self.tree)
            for line in self.lines:
                reader.see(line)
            names |= {finding.name for finding in reader.finish()}
        return names
