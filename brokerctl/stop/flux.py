"""What the commands of Flux print, read: tolerant of what is missing or new, never of what is not meant.

All of it was recorded on a real Flux (tests/stop/recorded). What can't be read is left out: a partial answer is one.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec

from brokerctl import durations
from brokerctl.ids import f58, hostlist, idset, parse_idset
from brokerctl.records.stops import Holding, Limits, Peers
from brokerctl.stop.errands import printable

# What a look at the peers says of a rank that holds nothing any more.
GONE = frozenset({"offline", "lost"})
HOSTS_SHOWN = 200  # characters of a host list in a status

_UPTIME = re.compile(
    r"\s*\S+ (?P<state>[a-z][a-z0-9-]*) (?P<held>[0-9][^\s,]*),  owner \S+,  depth \d+,  size (?P<size>\d+)"
)
_NODE = re.compile(r"(?P<indent>[│├└─ ]*)(?P<rank>\d{1,9}) (?P<host>\S+): (?P<status>.*)")
_ARCHIVED = re.compile(r"flux-dump\(1\) has archived (\d{1,18}) keys")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class Uptime(NamedTuple):
    """`flux uptime`: the broker's state, and how long it has lasted at most, as two digits are shown (`1.7s`, `23s`).

    Not in RUN: there it tells the age of the instance.
    """

    state: str
    held_ns: int | None
    size: int


def uptime(text: str) -> Uptime | None:
    """` 21:20:58 shutdown 1.7s,  owner flux,  depth 0,  size 4`; None where it is no such line."""
    match = _UPTIME.match(text)
    if match is None:
        return None
    return Uptime(match["state"], None if match["state"] == "run" else _at_most(match["held"]), int(match["size"]))


def _at_most(text: str) -> int | None:
    """The longest duration that is shown as this: half of the second digit more."""
    number = text.rstrip("abcdefghijklmnopqrstuvwxyz")
    try:
        found_ns = durations.parse(text)
        digit = Decimal(1).scaleb(Decimal(number).adjusted() - 1)
        digit_ns = durations.parse(f"{digit:f}{text[len(number) :]}")
    except (ValueError, ArithmeticError):
        return None
    return None if found_ns is None or digit_ns is None else found_ns + digit_ns // 2


def attributes(text: str) -> dict[str, str]:
    """`flux lsattr -v`: a name and its value a line; `-` is no value."""
    found = {}
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        found[name] = "" if value.strip() == "-" else value.strip()
    return found


def limits(attrs: dict[str, str]) -> Limits:
    """The limits of CLEANUP and SHUTDOWN (flux-broker-attributes(7))."""
    return Limits(_limit(attrs.get("broker.cleanup-timeout")), _limit(attrs.get("broker.shutdown-timeout")))


def _limit(text: str | None) -> int | None:
    try:
        return None if text is None else durations.parse(text)
    except ValueError:
        return None


# ---- the status that a broker tells its service manager (FLUX.md 96, 97, 99)

_STATUS_STATES = (
    ("Joining Flux instance", "join"),
    ("Fetching configuration", "config-sync"),
    ("Waiting for instance quorum", "quorum"),
    ("Running as ", "run"),
    ("Waiting for overlay peers", "shutdown"),
    ("flux-restore(1)", "init"),
    ("flux-dump(1)", "finalize"),
    ("Exiting", "exit"),
)
RC1, RC3 = "flux modprobe rc1", "flux modprobe rc3"


def guess(status: str, attrs: dict[str, str]) -> str:
    """The state that a status speaks of; "" where it doesn't. It may be late: GOODBYE sends none."""
    for head, state in _STATUS_STATES:
        if status.startswith(head):
            return state
    command = status.removeprefix("Running ")
    if command == status:
        return ""
    if command == attrs.get("broker.rc1_path", RC1):
        return "init"
    return "finalize" if command == attrs.get("broker.rc3_path", RC3) else "cleanup"


def archived(status: str) -> int:
    """How many keys a dump has archived so far."""
    match = _ARCHIVED.match(status)
    return int(match[1]) if match else 0


# ---- the overlay network


class Node(NamedTuple):
    """A line of `flux overlay status`: a rank, how deep it stands, and what is said of it."""

    depth: int
    rank: int
    host: str
    status: str


def overlay(text: str) -> list[Node]:
    """The tree, each rank after its parent; a level is three columns deep."""
    found = []
    for line in _COLOUR.sub("", text).splitlines():
        match = _NODE.fullmatch(printable(line))
        if match is not None:
            found.append(Node(len(match["indent"]) // 3, int(match["rank"]), match["host"], match["status"]))
    return found


def subtree(nodes: list[Node], index: int) -> list[Node]:
    """All below a node, without it."""
    end = index + 1
    while end < len(nodes) and nodes[end].depth > nodes[index].depth:
        end += 1
    return nodes[index + 1 : end]


def peers(nodes: list[Node]) -> Peers:
    """Who is still there, and who of them is to blame.

    What stands below a rank that is gone, or doesn't answer, is only what was last heard of it. A rank that still waits
    for somebody below is not to blame itself.
    """
    there: list[Node] = []
    holding: list[Holding] = []
    index = 1  # after the root, which asks
    while index < len(nodes):
        node, below = nodes[index], subtree(nodes, index)
        if _is_gone(node):
            index += 1 + len(below)
            continue
        there.append(node)
        silent = not _is_known(node)
        waits = not silent and any(not _is_gone(child) for child in below if child.depth == node.depth + 1)
        if not waits:
            severs = idset(child.rank for child in below if silent or not _is_gone(child))
            status = f"does not answer ({node.status})" if silent else "has not said goodbye"
            holding.append(Holding(node.rank, node.host, status, severs))
        index += 1 + (len(below) if silent else 0)
    return Peers(_named([node.host for node in there]), tuple(holding))


def holding_cleanup(nodes: list[Node], acting: frozenset[int]) -> tuple[Holding, ...]:
    """Who holds CLEANUP: where a prolog or epilog still runs (`acting`), or who does not answer.

    Nobody says goodbye before SHUTDOWN, so all the others are there as they should be.
    """
    found = []
    for index, node in enumerate(nodes[1:], 1):
        if _is_gone(node) or (_is_known(node) and node.rank not in acting):
            continue
        severs = idset(below.rank for below in subtree(nodes, index))
        status = "a prolog or epilog runs there" if _is_known(node) else f"does not answer ({node.status})"
        found.append(Holding(node.rank, node.host, status, severs))
    return tuple(found)


def acting(text: str) -> frozenset[int]:
    """The ranks where a prolog or epilog still runs, by `flux jobtap query perilog.so`."""
    try:
        procs: Any = msgspec.json.decode(text)["procs"]
        idsets = [str(one["active_ranks"]) for one in procs.values()]
        return frozenset(rank for ranks in idsets if ranks for rank in parse_idset(ranks))
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError, AttributeError):
        return frozenset()


def _is_gone(node: Node) -> bool:
    return node.status.partition(" ")[0] in GONE


def _is_known(node: Node) -> bool:
    return node.status.partition(" ")[0] in {"full", "partial", "degraded"}


def _named(hosts: list[str]) -> str:
    """`3 peers: picl[4,7-8]`, or nothing."""
    if not hosts:
        return ""
    names = hostlist(hosts)
    if len(names) > HOSTS_SHOWN:
        names = names[: HOSTS_SHOWN - 1] + "…"
    return f"{len(hosts)} peer{'s' if len(hosts) > 1 else ''}: {names}"


# ---- jobs


class Job(msgspec.Struct, frozen=True):
    """A job that runs or is in its CLEANUP, as `flux job list` tells it: one JSON object a line."""

    id: int
    userid: int = -1
    state: int = 0
    nnodes: int = 0
    ranks: str = ""
    name: str = ""
    t_run: float = 0.0  # seconds since the epoch

    @property
    def f58(self) -> str:
        """Its id as Flux shows it."""
        return f58(self.id)

    @property
    def on(self) -> frozenset[int]:
        """Its ranks."""
        try:
            return frozenset(parse_idset(self.ranks)) if self.ranks else frozenset()
        except ValueError:
            return frozenset()


STATE_CLEANUP = 32  # flux_job_state_t, as `flux job list` prints it

_decode_job = msgspec.json.Decoder(Job).decode


def jobs(text: str) -> list[Job]:
    """All jobs of a list; a line that is none is left out."""
    found = []
    for line in text.splitlines():
        try:
            found.append(_decode_job(line))
        except msgspec.MsgspecError:
            continue
    return found


class Housekeeping(NamedTuple):
    """Housekeeping that runs for a job: since when (seconds since the epoch), where it still runs, what it holds."""

    job: str
    since_s: float
    pending: str
    allocated: str


def housekeeping(text: str) -> list[Housekeeping]:
    """Those of `flux module stats job-manager`, the oldest first."""
    try:
        stats: Any = msgspec.json.decode(text)
        running = stats["housekeeping"]["running"]
        found = [
            Housekeeping(str(job), float(one["t_start"]), str(one["pending"]), str(one["allocated"]))
            for job, one in running.items()
        ]
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError, AttributeError):
        return []
    return sorted(found, key=lambda one: one.since_s)
