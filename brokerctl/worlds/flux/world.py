"""The world of scenarios in which a real Flux acts them out.

It is driven as an administrator would: by its own commands, and by signals to its brokers. What came of it is kept as a
recording, and the lines of the trace are those that the recording tells. Steps are timed by what is logged and by the
eventlogs, as they come; the start of an action is not logged, and taken from the end of what came before it.

A later life begins with the state directory of the one before, and with no process of it. Jobs of earlier lives are
followed anew when the leader runs; what their eventlogs have of those lives is in the recording, and not told again.
"""

from __future__ import annotations

import re
import shutil
import signal
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Literal

from brokerctl.durations import MS, S
from brokerctl.errors import KernelError
from brokerctl.logs import eventlog, recording
from brokerctl.logs.fluxlog import ABORTED, parse
from brokerctl.logs.recording import Recording, numbered
from brokerctl.records import (
    AnyEffect,
    AnyEvent,
    Asked,
    Command,
    Ended,
    Exit,
    JobEvent,
    Line,
    Moved,
    Notify,
    Signal,
    Start,
)
from brokerctl.worlds.contract import Capability, Deliver, Fault, Outcome, Resolved, Sink
from brokerctl.worlds.flux import fit
from brokerctl.worlds.flux.instance import Instance
from brokerctl.worlds.flux.observing import Observations
from brokerctl.worlds.flux.stage import Stage
from brokerctl.worlds.live.ways import decode_job

if TYPE_CHECKING:
    from brokerctl.worlds.contract import Deed, Step

# What is asked about a job that has not been accepted yet is asked again so much later.
AGAIN_NS = 20 * MS
# Flux's commands take 10 to 300 ms; one that a frozen broker does not answer is not waited for.
REQUEST_NS = 5 * S
FAULT_SIGNALS = {"crash": signal.SIGKILL, "freeze": signal.SIGSTOP, "thaw": signal.SIGCONT}
_LISTS = {"init": "rc1", "run": "rc2", "cleanup": "cleanup", "finalize": "rc3"}
_ENDED = re.compile(r"flux-start: (\d+) \(pid \d+\) (.*)")
HANGUP = signal.strsignal(signal.SIGHUP)  # how an action ends that was aborted and does nothing about it


class FluxWorld:
    """The world of a real Flux; `recorded` is the last run."""

    name = "flux"
    capabilities: frozenset[Capability] = frozenset({"real-processes", "ranks", "jobs"})
    recorded: Recording | None = None

    def run(self, scenario: Resolved, sink: Sink, horizon_ns: int, wants: frozenset[type] | None = None) -> Outcome:
        """Run it to its end, or to the horizon; KernelError where it can't be run here, or broke down.

        All lines come at the end, when the eventlogs are complete.
        """
        reason = fit.unfit(scenario)
        flux = shutil.which("flux")
        if reason or flux is None:
            raise KernelError(f"{scenario.name}: {reason}")
        stage = Stage(scenario, flux)
        try:
            with Instance(stage, notify=scenario.settings.sd_notify) as instance:
                run = _Run(stage, scenario, instance, horizon_ns)
                kind = run.run()
            self.recorded = run.seen.recording(stage, scenario.name)
            return run.outcome(kind, self.recorded, sink, wants)
        finally:
            stage.close()


class _Run:
    """One run of one scenario."""

    def __init__(self, stage: Stage, scenario: Resolved, instance: Instance, horizon_ns: int) -> None:
        self._stage = stage
        self._scenario = scenario
        self._instance = instance
        self._horizon_ns = horizon_ns
        self.seen = Observations(instance.clock, lambda: instance.realtime_ns)
        self._steps = list(scenario.steps)  # those whose moment has not come yet
        self._due: list[tuple[int, int, Step]] = []
        self._begun_ns = 0
        # Until then what is due waits: what was asked for before it must have been done before it.
        self._busy_ns = 0
        # What no recording has: what was asked of brokers, and when their actions began.
        self._asked: list[Line] = []
        self._starts: list[Line] = []
        self._texts = {name: self._texts_of(name) for name in _LISTS.values()}
        self._left = set(range(stage.size))  # ranks that have neither ended nor crashed
        self._frozen: set[int] = set()

    def run(self) -> Literal["ended", "horizon"]:
        """Start it, and do what is due until it has ended or the time is up."""
        self.seen.step(f"launch: {' '.join(self._stage.as_told(word) for word in self._stage.argv())}", 0)
        for label, job in self._stage.earlier.items():
            self.seen.submitted(label, "in an earlier life", job)
        self._instance.launch(self._logged)
        while not self._instance.over:
            self._do_due()
            now_ns = self._instance.clock()
            if now_ns >= self._horizon_ns:
                self.seen.step(f"NOT exited after {now_ns / S:.0f}s")
                return "horizon"
            self._end_frozen()
            due_ns = max(self._due[0][0], self._busy_ns) if self._due else self._horizon_ns
            self._instance.wait(min(due_ns, self._horizon_ns) - now_ns, self._notified)
        if not self._begun_ns:
            raise KernelError(f"{self._scenario.name}: no broker came: {self.seen.last_words()}")
        self.seen.step(f"flux start exited rc={self._instance.code}")
        self.seen.exit_code = self._instance.code
        return "ended"

    def outcome(
        self, kind: Literal["ended", "horizon"], made: Recording, sink: Sink, wants: frozenset[type] | None
    ) -> Outcome:
        """What the recording tells goes to the sink, and what it has not; in the log, times are milliseconds."""
        exits = {}
        told = [line for line in recording.lines(made) if line.t_ns >= 0]  # an earlier life has told its events
        for line in numbered([*self._asked, *told, *_begun(self._starts, told)]):
            if isinstance(line.what, Exit):
                exits[line.rank] = line.what.code
            if wants is None or type(line.what) in wants:
                sink(line)
        undone = tuple(step.text for step in [*self._steps, *(step for _, _, step in self._due)])
        return Outcome(kind, self._instance.clock(), exits, undone, self._stage.stored(self.seen.jobs))

    # ---- what comes

    def _logged(self, text: str) -> None:
        text = self._stage.as_told(text)
        self.seen.log(text)
        ended = _ENDED.fullmatch(text)
        if ended is not None:
            self.seen.broker_rc[ended[1]] = ended[2]
            self._left.discard(int(ended[1]))
        found = parse(text)
        if found is not None:
            self._see(found.rank, found.what)

    def _notified(self, rank: int, text: str) -> None:
        text = self._stage.as_told(text)
        self.seen.notify(rank, text)
        self._see(rank, Notify(text))

    def _event(self, label: str, text: str) -> None:
        if text.startswith("{"):
            event = eventlog.parse_line(text)
            self.seen.event(label, event)
            if event.t_ns >= self._instance.realtime_ns:
                self._see(0, JobEvent(label, label, event.name, event.context))

    def _see(self, rank: int, what: AnyEffect) -> None:
        """Something has been told just now: what waits for it becomes due."""
        now_ns = self._instance.clock()
        line = Line(now_ns, rank, 0, ">", what)
        if not self._begun_ns:
            self._begun_ns = now_ns
            for step in self._steps.copy():
                self._schedule(step, now_ns, step.trigger.begin())
        for step in self._steps.copy():
            self._schedule(step, now_ns, step.trigger.see(line))
        if isinstance(what, Moved):
            self._moved(rank, what)
        elif isinstance(what, Ended):
            name, _, number = what.run.partition(".")
            if what.how not in {ABORTED, HANGUP}:
                self._starting(rank, name, int(number) + 1)

    def _moved(self, rank: int, what: Moved) -> None:
        if what.new == "exit":
            self._left.discard(rank)
        if what.new == "run" and rank == 0 and not self._scenario.settings.rc2:
            self._push(self._stage.pushes)
        if what.new == "run" and rank == 0:
            for label, job in self._stage.earlier.items():
                self._follow(label, job)
        if what.new in _LISTS and (rank == 0 or what.new not in {"run", "cleanup"}):
            self._starting(rank, _LISTS[what.new], 0)

    def _starting(self, rank: int, name: str, number: int) -> None:
        texts = self._texts.get(name, [])
        if number < len(texts):
            start = Start(f"{name}.{number}", Command(texts[number]))
            self._starts.append(Line(round(self._instance.clock() / MS) * MS, rank, 0, ">", start))
            self._see(rank, start)

    def _texts_of(self, name: str) -> list[str]:
        return [action.command.text for action in getattr(self._scenario.settings, name)]

    def _ask_line(self, rank: int, what: AnyEvent) -> None:
        self._asked.append(Line(self._instance.clock() // MS * MS, rank, 0, "<", what))

    # ---- steps

    def _schedule(self, step: Step, from_ns: int, delay_ns: int | None) -> None:
        if delay_ns is not None:
            self._steps.remove(step)
            heappush(self._due, (from_ns + delay_ns, len(self._scenario.steps) - len(self._steps), step))

    def _do_due(self) -> None:
        while self._due and max(self._due[0][0], self._busy_ns) <= self._instance.clock():
            _, number, step = heappop(self._due)
            if not self._do(step.deed):
                heappush(self._due, (self._instance.clock() + AGAIN_NS, number, step))
                return

    def _do(self, deed: Deed) -> bool:
        """False where it can't be done yet."""
        match deed:
            case Deliver(rank, Signal(signum)):
                self._signal(rank, signal.Signals(signum))
            case Deliver(0, Asked("submit", text=text)):
                self._submit(text)
            case Deliver(rank, Asked(what, words=words, puppet=puppet)):
                return self._ask(rank, what, words, puppet)
            case Fault(kind, ranks):
                for rank in ranks:
                    self._signal(rank, FAULT_SIGNALS[kind])
        return True

    def _signal(self, rank: int, signum: signal.Signals) -> None:
        if self._instance.signal(rank, signum):
            self.seen.step(f"kill -{signum.name} rank {rank}")
            if signum not in FAULT_SIGNALS.values():
                self._ask_line(rank, Signal(signum))
            if signum == signal.SIGSTOP:
                self._frozen.add(rank)
            elif signum == signal.SIGCONT:
                self._frozen.discard(rank)
            elif signum == signal.SIGKILL:
                self._left.discard(rank)

    def _end_frozen(self) -> None:
        """Nobody else is left, and nobody will thaw it: what is frozen for good is ended."""
        if self._left and self._left <= self._frozen and 0 not in self._left and not self._due:
            for rank in sorted(self._left):
                self._signal(rank, signal.SIGKILL)

    def _push(self, texts: list[str]) -> None:
        """Put actions on the cleanup list, one after the other."""
        if texts:
            self._request(0, ["admin", "cleanup-push", texts[0]], over=lambda: self._push(texts[1:]))

    def _request(
        self,
        rank: int,
        argv: list[str],
        said: Callable[[str], None] = lambda _line: None,
        over: Callable[[], None] = lambda: None,
    ) -> None:
        """Ask for something, and do nothing else before it is done, or takes too long."""
        last = ""

        def heard(line: str) -> None:
            nonlocal last
            last = line
            said(line)

        def done(code: int) -> None:
            self._busy_ns = 0
            if code:
                self.seen.step(f"flux {argv[0]} failed, rc={code}: {self._stage.as_told(last)}")
            over()

        self._busy_ns = self._instance.clock() + REQUEST_NS
        self._instance.ask(rank, argv, heard, done)

    def _ask(self, rank: int, what: str, words: tuple[str, ...], puppet: str) -> bool:
        job = self.seen.jobs.get(words[0], "") if what in {"cancel", "post-event", "housekeeping-kill"} else ""
        match what, words:
            case "shutdown", _:
                # It follows the stop to its end, and is not waited for.
                self._ask_line(rank, Asked(what))
                self.seen.step(f"flux shutdown{f' (rank {rank})' if rank else ''}")
                self._instance.ask(rank, ["shutdown"])
                return True
            case "disconnect", (other,):
                argv = ["overlay", "disconnect", other]
            case "cleanup-push", (text,):
                self._texts["cleanup"].insert(0, text)
                argv = ["admin", "cleanup-push", self._stage.command(Command(text, puppet=puppet))]
            case "housekeeping-kill", ("all",):
                argv = ["housekeeping", "kill", "--all"]
            case _ if not job:
                return False
            case "cancel", _:
                argv = ["cancel", job]
            case "post-event", (_, *rest):
                argv = ["post-job-event", job, *rest]
            case _:
                argv = ["housekeeping", "kill", f"--jobid={job}"]
        self.seen.step(f"flux {self._stage.as_told(' '.join(argv))}{f' (rank {rank})' if rank else ''}")
        self._request(rank, argv)
        return True

    def _submit(self, text: str) -> None:
        spec = decode_job(text)
        path = self._stage.folder / f"job-{spec.name}.json"
        path.write_bytes(self._stage.jobspec(text))

        def said(line: str) -> None:
            if line.startswith("ƒ"):
                self.seen.submitted(spec.name, f"flux submit -N{spec.width} {spec.task.text}", line)
                self._follow(spec.name, line)

        self._request(0, ["job", "submit", str(path)], said)

    def _follow(self, label: str, job: str) -> None:
        """Hear of each event of a job, from its first one on."""
        follow = ["job", "eventlog", "--follow", "--format=json", job]
        self._instance.ask(0, follow, lambda event: self._event(label, event))


def _begun(starts: Iterable[Line], told: Iterable[Line]) -> list[Line]:
    """Without the starts of actions that were dropped: their list is over, and nothing was told of their end."""
    ended, over = set[tuple[int, str]](), set[tuple[int, str]]()
    for line in told:
        if isinstance(line.what, Ended):
            ended.add((line.rank, line.what.run))
        elif isinstance(line.what, Moved) and line.what.old in _LISTS:
            over.add((line.rank, _LISTS[line.what.old]))
    runs = [(line, line.what.run) for line in starts if isinstance(line.what, Start)]
    return [line for line, run in runs if (line.rank, run) in ended or (line.rank, run.partition(".")[0]) not in over]
