"""The tables of a scenario file that are about jobs; what they mean is `jobs`'."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

JOBS_MAX = 100_000


class Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    """A table about jobs; names have dashes in the file, underscores here."""


class JobEntry(Table, frozen=True):
    """`[[job]]`: submitted at a moment, acted out by a puppet on each of its nodes.

    It wants so many `nodes`, or these `ranks`: whole, or so many `cores` of each. `count` submits it so many times, the
    later ones as NAME-2, NAME-3, `every` so long after each other. `nodes` and `every` may be drawn from the seed for
    each: `1..64`, `10s..2m`.
    """

    name: str
    puppet: str
    at: str = "run"
    nodes: Annotated[int, Meta(ge=1)] | str | None = None
    ranks: str | None = None
    cores: Annotated[int, Meta(ge=1)] | None = None
    user: Annotated[int, Meta(ge=0)] = 0
    count: Annotated[int, Meta(ge=1, le=JOBS_MAX)] = 1
    every: str = "0s"


class ScriptEntry(Table, frozen=True):
    """`[perilog.prolog]` and `[perilog.epilog]`: the script before and after each job (FLUX.md 67)."""

    puppet: str
    per_rank: bool = False
    timeout: str | None = None
    kill_timeout: str = "60s"
    cancel_on_exception: bool | None = None


class Perilog(Table, frozen=True):
    """`[perilog]`: Flux's defaults are a prolog timeout of 30 m, and a prolog that is canceled by an exception."""

    prolog: ScriptEntry | None = None
    epilog: ScriptEntry | None = None


class HousekeepingEntry(Table, frozen=True):
    """`[housekeeping]`: what runs on a job's nodes when it is over; `release-after` unset gives them back together."""

    puppet: str
    release_after: str | None = None


class HoldEntry(Table, frozen=True):
    """`[[hold]]`: an action that a plugin holds each job with, until a service is active on its nodes, or for a time.

    With neither `until` nor `for`, only the step `release-action JOB NAME` finishes it. Before its end it `posts` an
    event, which scripts that `asks = "wait-event NAME"` wait for.
    """

    name: str
    phase: Literal["prolog", "epilog"] = "epilog"
    until: str = ""
    posts: str = ""
    for_: str | None = msgspec.field(default=None, name="for")


class ServiceEntry(Table, frozen=True):
    """`[service.NAME]`: a daemon on each node, which scripts of jobs start and stop where they succeed."""

    active: bool = True
    started_by: Literal["", "prolog", "epilog", "housekeeping"] = ""
    stopped_by: Literal["", "prolog", "epilog", "housekeeping"] = ""
    quiet: bool = False
