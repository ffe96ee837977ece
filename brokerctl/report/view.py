"""An instance at one moment, as its admin would see it: brokers, jobs, housekeeping, resources, drained nodes.

The tables have the columns of `flux jobs`, `flux housekeeping list`, `flux resource list` and `flux resource drain`
(FLUX.md 81); whatever a table has nothing of is one line.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from brokerctl.durations import S, as_short
from brokerctl.ids import hostlist

# Whoever took the most time is of interest, not everybody.
SPENT_MAX = 5


class View(msgspec.Struct, frozen=True, kw_only=True):
    """What is shown. `states` has ranks by broker state; `about` is the job manager's answer to `jobs`.

    `spent` has the time that housekeeping took: by job, by user, by rank.
    """

    moment: str
    t_ns: int
    hosts: tuple[str, ...]
    states: Mapping[str, Sequence[int]]
    about: Mapping[str, Any]
    cores: int
    spent: tuple[Mapping[str, int], Mapping[str, int], Mapping[str, int]]


def text(view: View) -> str:
    """The whole view, with a final newline."""
    about = view.about
    parts = [
        f"{view.moment}: {view.t_ns / S:.3f} s after the beginning",
        _table(
            ("STATE", "NNODES", "NODELIST"),
            [(state, str(len(ranks)), _hosts(view, ranks)) for state, ranks in view.states.items()],
            "no broker lives",
        ),
        _table(
            ("JOBID", "NAME", "USER", "ST", "NNODES", "TIME", "NODELIST", "HELD BY"),
            [_job(view, job) for job in about["jobs"]],
            "no job is active",
        ),
        _table(
            ("JOBID", "NNODES", "#ACTIVE", "RUNTIME", "NODELIST"),
            [
                (
                    one["job"],
                    str(one["nodes"]),
                    str(one["active"]),
                    f"{one['runtime_ns'] / S:.3f}s",
                    _hosts(view, one["ranks"]),
                )
                for one in about["housekeeping"]
            ],
            "no housekeeping runs",
        ),
        _table(
            ("STATE", "NNODES", "NCORES", "NODELIST"),
            [
                (state, str(len(ranks)), str(len(ranks) * view.cores), _hosts(view, ranks))
                for state, ranks in about["resources"].items()
            ],
            "no resources",
        ),
        _table(
            ("STATE", "REASON", "NODELIST"),
            [("drained", reason, _hosts(view, ranks)) for reason, ranks in _by_reason(about["drained"]).items()],
            "no node is drained",
        ),
        *_spent(view),
    ]
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)


def _job(view: View, job: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        job["id"],
        job["name"],
        str(job["user"]),
        job["state"],
        str(len(job["ranks"])),
        as_short(job["held_ns"]),
        _hosts(view, job["ranks"]),
        ", ".join(job["held_by"]),
    )


def _hosts(view: View, ranks: Iterable[int]) -> str:
    return hostlist([view.hosts[rank] for rank in ranks])


def _by_reason(drained: Mapping[str, str]) -> dict[str, list[int]]:
    reasons: dict[str, list[int]] = {}
    for rank, reason in drained.items():
        reasons.setdefault(reason, []).append(int(rank))
    return reasons


def _spent(view: View) -> list[str]:
    by_job, by_user, by_rank = view.spent
    if not by_job:
        return []
    nodes: dict[str, int] = {}
    for rank, ns in by_rank.items():
        host = view.hosts[int(rank)]
        nodes[host] = nodes.get(host, 0) + ns
    lines = []
    for what, spent in (("job", by_job), ("user", by_user), ("node", nodes)):
        shown = ", ".join(f"{name} {as_short(ns)}" for name, ns in list(spent.items())[:SPENT_MAX])
        more = f", {len(spent) - SPENT_MAX} more" if len(spent) > SPENT_MAX else ""
        lines.append(f"housekeeping by {what}: {shown}{more}\n")
    return ["".join(lines)]


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]], nothing: str) -> str:
    """Columns as wide as their widest word, the first to the right, as Flux has them."""
    if not rows:
        return f"{nothing}\n"
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    lines = []
    for row in (head, *rows):
        words = [row[0].rjust(widths[0]), *(word.ljust(width) for word, width in zip(row[1:], widths[1:], strict=True))]
        lines.append(" ".join(words).rstrip())
    return "\n".join(lines) + "\n"
