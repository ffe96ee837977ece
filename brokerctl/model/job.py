"""One job: what was asked for, its eventlog, and what the job manager knows of it (RFC 18, 21; FLUX.md G)."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from brokerctl.records import Command

# RFC 21 gives user ids; the owner of the instance raises what the job manager itself raises.
OWNER = 0
# The events that begin and finish an action, which a `description` names; those of plugins may be called as they like.
BEGINS = {"prolog-start": "prolog", "epilog-start": "epilog"}
FINISHES = frozenset({"prolog-finish", "epilog-finish"})


class JobState(StrEnum):
    """RFC 21."""

    NEW = "NEW"
    DEPEND = "DEPEND"
    PRIORITY = "PRIORITY"
    SCHED = "SCHED"
    RUN = "RUN"
    CLEANUP = "CLEANUP"
    INACTIVE = "INACTIVE"


class JobSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a job wants: so many `nodes`, or these `ranks`, whole or `cores` of each; and what it runs there.

    `name` is how people call it; the job manager gives it an id of its own.
    """

    task: Command
    name: str = ""
    user: int = OWNER
    nodes: int = 1
    ranks: tuple[int, ...] = ()
    cores: int | None = None

    @property
    def width(self) -> int:
        """How many nodes."""
        return len(self.ranks) or self.nodes


class Job:
    """A job that was submitted.

    `active` counts the prolog and epilog actions that hold it; `holding` has their names. `pending` says that its
    tasks, or their release, are still to come. `fatal` is the type of its first exception of severity 0. `begun` names
    the scripts that have been started for it in this life: none is started twice, whatever events people post.
    """

    __slots__ = (
        "active", "alloc", "begun", "events", "fatal", "holding", "hung", "id", "label", "pending", "resources",
        "since_ns", "spec", "started", "state",
    )  # fmt: skip

    def __init__(self, number: str, spec: JobSpec) -> None:
        self.id = number
        self.spec = spec
        self.label = spec.name or number
        self.state = JobState.NEW
        self.since_ns = 0  # when it entered its state
        self.events: list[tuple[int, str, dict[str, Any]]] = []
        self.alloc: dict[int, tuple[int, ...]] = {}  # rank → its cores there
        self.resources = False  # they are its own: allocated, and not freed
        self.active = 0
        self.holding: dict[str, str] = {}  # description of an action that has not finished → prolog or epilog
        self.begun: tuple[str, ...] = ()
        self.pending = False
        self.started = False
        self.hung = False  # a shell of it has failed: nothing more will be heard of its tasks (FLUX.md 65)
        self.fatal = ""

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks that it was given."""
        return tuple(self.alloc)

    def is_running(self) -> bool:
        """It counts as running: what `flux queue idle` waits for (FLUX.md 44)."""
        return self.state in {JobState.RUN, JobState.CLEANUP}

    def note(self, now_ns: int, name: str, context: dict[str, Any]) -> None:
        """Add an event to its log, and take from it what can be known without anybody else."""
        self.events.append((now_ns, name, context))
        old, new = self.state, _TRANSITIONS.get((self.state, name))
        if new is not None:
            self._enter(new, now_ns)
        match name:
            case "alloc" if old is JobState.SCHED:
                self.resources = True
            case "free":
                self.resources = False
            case "start":
                self.started = True
            case "exception" if context["severity"] == 0:
                self.fatal = self.fatal or context["type"]
                if self.state not in {JobState.CLEANUP, JobState.INACTIVE}:
                    self._enter(JobState.CLEANUP, now_ns)
            case _:
                pass

    def _enter(self, state: JobState, now_ns: int) -> None:
        if self.state is not state:
            self.state, self.since_ns = state, now_ns

    def begins(self, script: str) -> bool:
        """That script of it is about to be started; False where it has been."""
        if script in self.begun:
            return False
        self.begun = (*self.begun, script)
        return True

    def begin(self, phase: str, description: str, *, counted: bool) -> None:
        """A prolog or epilog action begins; one that is not counted holds nothing (FLUX.md 75)."""
        if counted:
            self.active += 1
            self.holding[description] = phase

    def finish(self, description: str) -> None:
        """That action has finished, or somebody says so."""
        if self.active:
            self.active -= 1
        self.holding.pop(description, None)


# An event moves a job on from one state only; people may post any in any state (RFC 21).
_TRANSITIONS = {
    (JobState.NEW, "validate"): JobState.DEPEND,
    (JobState.DEPEND, "depend"): JobState.PRIORITY,
    (JobState.PRIORITY, "priority"): JobState.SCHED,
    (JobState.SCHED, "flux-restart"): JobState.PRIORITY,
    (JobState.SCHED, "alloc"): JobState.RUN,
    (JobState.RUN, "finish"): JobState.CLEANUP,
    (JobState.CLEANUP, "clean"): JobState.INACTIVE,
}
