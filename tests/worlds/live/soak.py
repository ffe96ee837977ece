"""Random rounds of a tree of real brokers under faults: `python -m tests.worlds.live.soak FIRST COUNT`.

Each seed is one round: a fault, in one state of its victim or of the leader, under hardened limits that are a few
seconds long. What must hold: the stop ends, every bound is held, nothing is left, no failed cleanup ends with 0.
"""

from __future__ import annotations

import signal
import sys
from random import Random

from brokerctl import config
from brokerctl.check.invariants import INVARIANTS
from brokerctl.durations import MS, S
from brokerctl.errors import KernelError
from brokerctl.kernel import proc
from brokerctl.model.puppet import Reaction
from brokerctl.model.tree import Tree, flat, kary
from brokerctl.records import Command, Signal
from brokerctl.scenario import moments
from brokerctl.settings import Action
from brokerctl.trace import Topology
from brokerctl.worlds.contract import Deliver, Fault, Outcome, Resolved, Step
from brokerctl.worlds.live import world as live
from brokerctl.worlds.puppets import FOREVER, PuppetSpec, Span

FAULTS = ("crash", "freeze", "freeze+thaw", "cut")
STATES = ("init", "quorum", "run", "cleanup", "shutdown", "finalize", "goodbye")
CELLS = tuple((fault, state) for fault in FAULTS for state in STATES)
HORIZON_NS = 60 * S
LIMITS = {
    "hardened": {
        "cleanup_timeout_ns": 1 * S,
        "ladder": config.parse_ladder("HUP:0.3s,TERM:0.3s,KILL:0.5s"),
        "finalize_timeout_ns": 2 * S,
        "shutdown_slack_ns": 2 * S,
        "goodbye_timeout_ns": 3 * S,
        "unload_timeout_ns": 3 * S,
        "output_grace_ns": S // 2,
        "heartbeat_period_ns": S // 2,
        "heartbeat_timeout_ns": 3 * S,
        "torpid_max_ns": 2 * S,
        "sd_notify": False,
    },
    "flux": {"cleanup_timeout_ns": 1 * S},
}


class Round:
    """What one seed means; `resolved` makes it anew for a world."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        random = Random(f"soak/{seed}")
        self.fault, self.state = CELLS[seed % len(CELLS)]
        self.size = random.randint(4, 8)
        self.topology = random.choice(("kary:2", "kary:3", "flat"))
        first = 1 if self.fault == "cut" or random.random() < 0.85 else 0
        self.victim = random.randrange(first, self.size) if first else 0
        self.watched = random.choice((self.victim, 0))
        self.delay_ns = random.choice((0, 0, random.randint(0, 100 * MS)))
        self.ignores_hup = random.random() < 0.3
        self.lasts = random.choice((0.05, 0.3, None))  # the cleanup action on all ranks
        self.saves = random.choice((0.05, 0.2, 0.2, None))  # rc3

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {self.fault} of rank {self.victim} in {self.state} of rank {self.watched}"
            f" + {self.delay_ns // MS} ms, {self.size} ranks, {self.topology}, action {self.lasts or 'forever'}"
            f"{' deaf to HUP' if self.ignores_hup else ''}, rc3 {self.saves or 'forever'}"
        )

    def parents(self) -> tuple[int, ...]:
        return flat(self.size) if self.topology == "flat" else kary(self.size, int(self.topology[-1]))

    def resolved(self, policy: str = "hardened") -> Resolved:
        puppets = {
            "rc1": _puppet("rc1", 0.1),
            "everywhere": _puppet(
                "everywhere", self.lasts, on={1: Reaction(ignore=True)} if self.ignores_hup else {}
            ),
            "rc3": _puppet("rc3", self.saves),
        }  # fmt: skip
        fields = {
            "rc1": (Action(Command("rc1", puppet="rc1")),),
            "cleanup": (Action(Command("everywhere", puppet="everywhere"), ranks="all"),),
            "rc3": (Action(Command("rc3", puppet="rc3")),),
        }
        hosts = tuple(f"n{rank}" for rank in range(self.size))
        return Resolved(
            name=f"soak {self.seed}",
            settings=config.with_fields(policy, {**LIMITS[policy], **fields}),
            topology=Topology(self.parents(), hosts),
            puppets=puppets,
            steps=self._steps(),
            seed=self.seed,
        )

    def _steps(self) -> tuple[Step, ...]:
        kind = self.fault.partition("+")[0]
        at = f"rank {self.watched} {self.state}" + (f" + {self.delay_ns}ns" if self.delay_ns else "")
        later = f"rank {self.watched} {self.state} + {self.delay_ns + 1500 * MS}ns"
        # Where a rank is missing, RUN never comes; the stop does.
        stop = "quorum + 1.5s" if self.state in {"init", "quorum"} else "run + 0.2s"
        steps = [(at, Fault(kind, (self.victim,))), (stop, Deliver(0, Signal(signal.SIGTERM)))]
        if self.fault == "freeze+thaw":
            steps.append((later, Fault("thaw", (self.victim,))))
        return tuple(Step(moments.parse(text, self.size).trigger(), deed, text) for text, deed in steps)

    def froze(self, outcome: Outcome) -> bool:
        """Its victim was frozen, and for good."""
        return self.fault == "freeze" and self._steps()[0].text not in outcome.undone

    def holds_for(self, rank: int) -> bool:
        """Promises hold for every rank but the one that was broken."""
        return rank != self.victim or self.fault == "cut"


def _puppet(name: str, runs_s: float | None, **more) -> PuppetSpec:
    span = FOREVER if runs_s is None else Span(int(runs_s * S), int(runs_s * S))
    return PuppetSpec(name=name, command=name, runs={-1: span}, statuses={-1: 0}, **more)


def broken(played: Round, resolved: Resolved, lines: list) -> list[str]:
    """What did not hold, of what must."""
    tree = Tree(resolved.topology)
    readers = [make(resolved.settings, tree) for make in INVARIANTS.values()]
    for line in lines:
        for reader in readers:
            reader.see(line)
    found = [finding for reader in readers for finding in reader.finish()]
    return [f"{each.name}: {each.text}" for each in found if each.rank is None or played.holds_for(each.rank)]


class _Watched(live.Run):
    """Looks for what is left before it is ended."""

    left: list[str]

    def _kill_all(self) -> None:
        for rank in self._ranks:
            if rank.over and not rank.crashed:
                pids = proc.carriers(f"{self._cookie}:{rank.rank}".encode())
                _Watched.left += [f"rank {rank.rank} left {proc.command(pid)}" for pid in pids]
        super()._kill_all()


def play(seed: int) -> list[str]:
    """Play a round with real processes; what did not hold."""
    played, lines = Round(seed), []
    resolved = played.resolved()
    live.Run, _Watched.left = _Watched, []
    try:
        outcome = live.LiveWorld().run(resolved, lines.append, HORIZON_NS)
    except KernelError as error:
        return [str(error)]
    problems = broken(played, resolved, lines) + _Watched.left
    if outcome.kind == "horizon" or (outcome.kind == "stuck" and not (played.froze(outcome) and played.victim == 0)):
        problems.append(f"{outcome.kind}: exits {dict(outcome.exits)}")
    return problems


def main(first: int, count: int) -> int:
    """Play rounds one after the other; 1 if anything did not hold in any of them."""
    failed = 0
    for seed in range(first, first + count):
        problems = play(seed)
        failed += bool(problems)
        print(f"{'FAILED' if problems else 'held'} {Round(seed)}", *problems, sep="\n    ", flush=True)
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
