"""Workers: processes that the leader starts in order on entry to RUN, watches, and stops in reverse order in CLEANUP.

A worker that notifies is `starting` until it says READY=1; another one is ready at once. From then on the world watches
how long it is silent and how much memory it has, and tells `Late` and `Grown`; what is done about that is decided here,
as systemd does it: SIGABRT to a silent one, SIGTERM to the others, SIGKILL after its stop timeout (SYSTEMD.md 82). The
end of a required worker ends RUN; nothing is ever restarted here, that is the service manager's part.

Its stop is an essential action at the front of the cleanup list, within a slice of its own. It can't be extended by
what the worker says then: the bound of a stop is promised.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from brokerctl.durations import S, as_short
from brokerctl.model.lifecycle import State
from brokerctl.model.run import ERR, INFO, SIGKILL, WARNING, Run
from brokerctl.model.words import signal_name
from brokerctl.records import Grown, Heard, Late, Served, Waiting, Watch
from brokerctl.settings import Rung

if TYPE_CHECKING:
    from brokerctl.model.broker import Broker
    from brokerctl.model.node import Node
    from brokerctl.settings import Action
    from brokerctl.settings import Worker as Spec

SIGABRT, SIGTERM = 6, 15
# After SIGKILL: as the last rung of the hardened ladder.
KILL_WAIT_NS = 5 * S
_USEC_NS = 1000
_DIGITS_MAX = 15  # of a number of microseconds: three decades


class Workers:
    """All workers of the leader. `then` is called when the last one is ready."""

    __slots__ = ("_all", "_broker", "_node", "_pending", "_starting", "_then", "culprit")

    def __init__(self, node: Node, broker: Broker, then: Callable[[], None]) -> None:
        self._node = node
        self._broker = broker
        self._pending = list(node.settings.workers)
        self._all: dict[str, Worker] = {}  # by the name of their run, in the order of their start
        self._then = then
        self._starting = False  # `start` is under way
        self.culprit = ""  # the first required one that has failed

    def start(self) -> None:
        """Start one after the other, up to the first that is to become ready, as long as the broker runs."""
        broker = self._broker
        self._starting = True
        while self._pending and broker.state is State.RUN:
            worker = Worker(self._node, self._pending.pop(0), came_up=self._came_up, ended=self._ended)
            self._all[worker.name] = worker
            broker.manager.action(f"worker {worker.spec.name}")
            broker.await_worker(worker.name)
            worker.begin()
            if worker.state == "starting":
                break
        else:
            if broker.state is State.RUN:
                self._then()
        self._starting = False

    def _came_up(self, worker: Worker) -> None:
        self._node.log("broker", INFO, f"{worker.name}: ready after {as_short(worker.age_ns())}")
        self._broker.await_worker("")
        if not self._starting:
            self.start()

    def _ended(self, worker: Worker, rc: int) -> None:
        """It has come to its end; nobody had told it to stop."""
        broker = self._broker
        if not worker.was_ready:
            broker.await_worker("")
        if worker.spec.required:
            self._pending.clear()
            self._node.log("broker", ERR if rc else WARNING, f"{worker.name} has ended, and is required")
            if rc:
                self.culprit = self.culprit or f"{worker.name}: {worker.spec.command.text}"
            broker.worker_ended(rc)
        elif not worker.was_ready:
            self.start()

    def end_all(self) -> None:
        """The broker leaves RUN without CLEANUP: they are ended by force."""
        for worker in self._all.values():
            if worker.state != "over":
                worker.end_by_force("is ended with its broker", SIGTERM)

    def abandon(self) -> None:
        """The broker exits: those that live still are told as such."""
        for worker in self._all.values():
            if worker.state != "over":
                worker.run.abandon()

    def stops(self) -> list[Action]:
        """The stops of those that live, in the order of their start."""
        return [worker.spec.stop_action() for worker in self._all.values() if worker.state != "over"]

    def stop_of(self, action: Action, name: str, done: Callable[[int, str], None]) -> WorkerStop:
        """What an action of `stops` runs."""
        return WorkerStop(self._node, self._all[f"worker.{action.worker}"], name, done)

    def heard(self, event: Heard | Late | Grown) -> None:
        """One of them said something, or was found silent or too big; nothing is known of one that is over."""
        worker = self._all[event.run]
        if worker.state in {"stopping", "over"}:
            return
        match event:
            case Heard(text=text):
                worker.said(text)
            case Late(silent_ns=silent_ns):
                worker.end_by_force(f"was silent for {as_short(silent_ns)}", SIGABRT)
            case Grown():
                worker.end_by_force(f"has more than {(worker.spec.memory or 0) >> 20} MiB of memory", SIGTERM)

    def about(self) -> list[dict[str, object]]:
        """What `status` says of them."""
        return [worker.about() for worker in self._all.values()]


class Worker:
    """One worker's life. `ended(worker, rc)` is called unless its stop waits for it."""

    __slots__ = (
        "_came_up", "_ended", "_limit_ns", "_node", "_ready_by_ns", "_started_ns", "_status", "_stopped",
        "_watched", "name", "run", "spec", "state", "was_ready",
    )  # fmt: skip

    def __init__(
        self, node: Node, spec: Spec, *, came_up: Callable[[Worker], None], ended: Callable[[Worker, int], None]
    ) -> None:
        self._node = node
        self.spec = spec
        self.name = f"worker.{spec.name}"
        self.state: Literal["starting", "ready", "stopping", "over"] = "starting"
        self.run = Run(node, self.name, spec.command, self._over)
        self.was_ready = False
        self._started_ns = node.now_ns
        self._ready_by_ns = node.now_ns + spec.ready_timeout_ns
        self._limit_ns = spec.watchdog_ns
        self._status = ""
        self._watched = False  # the world has been told to watch it
        self._came_up = came_up
        self._ended = ended
        self._stopped: Callable[[int, str], None] | None = None  # its stop waits for it

    def age_ns(self) -> int:
        """How long ago it was started."""
        return self._node.now_ns - self._started_ns

    def begin(self) -> None:
        """Start it."""
        self.run.begin()
        if not self.spec.command.notifies:
            self._ready()
            return
        self._watch()
        self._node.arm(f"ready {self.name}", self.spec.ready_timeout_ns, self._not_ready)

    # ---- what it says

    def said(self, text: str) -> None:
        """A message in the words of sd_notify(3)."""
        for line in text.split("\n"):
            key, _, value = line.partition("=")
            match key:
                case "READY" if value == "1" and self.state == "starting":
                    self._ready()
                case "STOPPING" if value == "1":
                    self._stops()
                case "STATUS":
                    self._status = value
                case "WATCHDOG" if value == "trigger":
                    self.end_by_force("has triggered its watchdog", SIGABRT)
                case "WATCHDOG_USEC" if (limit_ns := _usec(value)) is not None:
                    # Without a watchdog the message starts one, 0 ends it (SYSTEMD.md 84).
                    self._limit_ns = limit_ns or None
                    self._watch()
                case "EXTEND_TIMEOUT_USEC" if more_ns := _usec(value):
                    self._extend(more_ns)
                case _:
                    pass

    def _ready(self) -> None:
        self._node.cancel(f"ready {self.name}")
        self.state, self.was_ready = "ready", True
        self._watch()
        self._came_up(self)

    def _not_ready(self) -> None:
        self.end_by_force(f"was not ready within {as_short(self.age_ns())}", SIGTERM)

    def _extend(self, more_ns: int) -> None:
        """SYSTEMD.md 38, 85: never earlier than it was."""
        until_ns = self._node.now_ns + more_ns
        if self.state == "starting" and until_ns > self._ready_by_ns:
            self._ready_by_ns = until_ns
            self._node.arm(f"ready {self.name}", more_ns, self._not_ready)
        elif self.state == "ready":
            self._watch(more_ns)

    def _watch(self, first_ns: int = 0) -> None:
        """Have it watched from now on; no watchdog bites before it is ready, nor when it stops (SYSTEMD.md 83)."""
        limit_ns = self._limit_ns if self.state == "ready" else None
        memory = None if self.state == "stopping" else self.spec.memory
        if (limit_ns, memory) != (None, None) or self._watched:
            self._watched = True
            self._node.emit(Watch(self.name, limit_ns, memory, first_ns if limit_ns else 0))

    def _stops(self) -> None:
        """It ends of its own accord (STOPPING=1): within its stop timeout (SYSTEMD.md 44)."""
        if self.state == "ready":
            self.state = "stopping"
            self._watch()
            self._node.log("broker", INFO, f"{self.name} is stopping by itself")
            self._node.arm(f"stopping {self.name}", self.spec.stop_timeout_ns, self._too_slow)

    def _too_slow(self) -> None:
        self.end_by_force(f"did not end within {as_short(self.spec.stop_timeout_ns)}", SIGTERM)

    # ---- its end

    def end_by_force(self, why: str, signum: int) -> None:
        """That signal now, SIGKILL after its stop timeout."""
        self._quiet()
        self.state = "stopping"
        self._watch()
        self._node.log("broker", ERR, f"{self.name} {why}; now {signal_name(signum)}")
        self.run.abort((Rung(signum, self.spec.stop_timeout_ns), Rung(SIGKILL, KILL_WAIT_NS)))

    def stop(self, stopped: Callable[[int, str], None]) -> None:
        """It is told to stop; `stopped(rc, how)` when it has."""
        if self.state == "over":
            stopped(0, "Exited")  # what it has ended with counted when it did
            return
        self._stopped = stopped
        self._quiet()
        if self.state != "stopping":
            self.state = "stopping"
            self._watch()
        self.run.ask(SIGTERM)

    def kill(self) -> None:
        """It was told to stop, and its time is over."""
        self.run.abort((Rung(SIGKILL, KILL_WAIT_NS),))

    def _quiet(self) -> None:
        self._node.cancel(f"ready {self.name}")
        self._node.cancel(f"stopping {self.name}")

    def _over(self, rc: int, how: str) -> None:
        self._quiet()
        self.state = "over"
        if self._stopped is not None:
            self._stopped(rc, how)
        else:
            self._ended(self, rc)

    def about(self) -> dict[str, object]:
        """What `status` says of it."""
        return {"name": self.spec.name, "state": self.state, "for_ns": self.age_ns(), "status": self._status}


class WorkerStop:
    """The stop of a worker as an action of the cleanup list; to that it is a run like any other."""

    __slots__ = ("_done", "_node", "_worker", "name")

    def __init__(self, node: Node, worker: Worker, name: str, done: Callable[[int, str], None]) -> None:
        self._node = node
        self._worker = worker
        self.name = name
        self._done = done

    def begin(self) -> None:
        """Tell it to stop."""
        self._node.emit(Waiting(self.name, f"{self._worker.name} to end"))
        self._worker.stop(self._stopped)

    def abort(self) -> None:
        """Its time is over."""
        self._worker.kill()

    def hurry(self) -> None:
        """A signal asks for its end."""
        self._worker.kill()

    def _stopped(self, rc: int, how: str) -> None:
        self._node.emit(Served(self.name, f"{self._worker.name} to end"))
        self._done(rc, how)

    def about(self) -> dict[str, object]:
        """What `status` says of it."""
        return {**self._worker.run.about(), "run": self.name}


def _usec(text: str) -> int | None:
    """The nanoseconds of a plain decimal number of microseconds (SYSTEMD.md 41)."""
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX):
        return None
    return int(text) * _USEC_NS
