"""`brokerctl status`: what a running broker does, since when, until when, and what it waits for."""

from __future__ import annotations

from typing import Any

import msgspec

from brokerctl.cli.options import Parser
from brokerctl.cli.shown import shown
from brokerctl.durations import as_short
from brokerctl.errors import ControlError
from brokerctl.worlds.live.client import Connection
from brokerctl.worlds.live.rundir import choose

EPILOG = """\
exit code: 0; 2 if there is no broker, or it doesn't answer.
"""

# How a stop began (model.broker.Reason), for people.
REASONS = {
    "signal": "a signal asked for the stop",
    "request": "a request (shutdown) asked for the stop",
    "parent": "its parent's stop is the reason",
    "failure": "a failure is the reason of the stop",
    "done": "rc2 came to its end",
}


class Running(msgspec.Struct, frozen=True):
    """A run: its name, its command, since when, and which signals it got already."""

    run: str
    command: str
    for_ns: int
    exited: bool = False
    signals: list[str] = []


class Worker(msgspec.Struct, frozen=True):
    """A worker of `[[worker]]`: since when it was started, and what it said last of itself."""

    name: str
    state: str
    for_ns: int
    status: str = ""


class Status(msgspec.Struct, frozen=True):
    """A broker's answer to `status`; durations in nanoseconds, `left_ns` None is no bound."""

    rank: int
    size: int
    host: str
    state: str
    held_ns: int
    left_ns: int | None = None
    reason: str = ""
    signalled: bool = False
    running: list[Running] = []
    pending: dict[str, int] = {}
    failed: dict[str, str] = {}
    waits: str = ""
    peers: str = ""
    lost: str = ""
    code: int = 0
    workers: list[Worker] = []


def main(argv: list[str]) -> int:
    """Run the verb."""
    parser = Parser("status", "Tell what a running broker does and what it waits for.", EPILOG)
    parser.add_rundir()
    parser.add_argument("--json", action="store_true", help="the broker's answer as it is; durations in nanoseconds")
    options = parser.parse_args(argv)
    rundir = choose(options.rundir)
    with Connection(rundir) as connection:
        connection.send("status")
        answer = connection.answer()
        pid = connection.peer_pid()
    if "error" in answer:
        raise ControlError(f"the broker refused: {shown(str(answer['error']))}")
    if options.json:
        print(msgspec.json.encode({"pid": pid, "rundir": str(rundir), **answer}).decode())
        return 0
    print("\n".join(describe(read(answer), f"pid {pid}, {rundir}")))
    return 0


def read(answer: dict[str, Any]) -> Status:
    """The answer, checked; ControlError where a field is missing or of another type."""
    try:
        return msgspec.convert(answer, Status)
    except msgspec.ValidationError as error:
        raise ControlError(f"cannot read the broker's answer: {error}") from None


def describe(status: Status, where: str) -> list[str]:
    """The answer for people, line by line: first what matters most."""
    who = f"broker {status.host}" + (f" (rank {status.rank} of {status.size})" if status.size > 1 else "")
    lines = [f"{who}: {status.state} for {as_short(status.held_ns)}, {_bound(status)}  [{where}]"]
    if status.reason:
        also = "; a signal came later" if status.signalled and status.reason != "signal" else ""
        lines.append(f"  reason:    {REASONS.get(status.reason, status.reason)}{also}")
    lines += [f"  {'running:' if index == 0 else '':<10} {_run(run)}" for index, run in enumerate(status.running)]
    lines += [f"  {'workers:' if index == 0 else '':<10} {_worker(one)}" for index, one in enumerate(status.workers)]
    if status.waits:
        lines.append(f"  waits for: {status.waits}")
    if status.peers:
        lines.append(f"  peers:     {status.peers}")
    if status.lost:
        lines.append(f"  lost:      {status.lost}")
    if after := [text for name, count in status.pending.items() if (text := _after(name, count, status))]:
        lines.append(f"  then:      {', '.join(after)}")
    lines += [f"  failed:    {what}" for what in status.failed.values()]
    if status.code:
        lines.append(f"  exit code: {status.code}, as it stands now")
    return list(map(shown, lines))


def _bound(status: Status) -> str:
    if status.left_ns is None:
        return "no time limit"
    return f"at most {as_short(status.left_ns)} more" if status.left_ns else "its time is over"


def _run(run: Running) -> str:
    text = f"{run.run}, {as_short(run.for_ns)}: {run.command}"
    if run.exited:
        text += "  (has exited; what it started is still there or holds its output)"
    if run.signals:
        text += f"  (got {', '.join(run.signals)})"
    return text


def _worker(worker: Worker) -> str:
    said = f": {worker.status}" if worker.status else ""
    return f"{worker.name}, {worker.state}, {as_short(worker.for_ns)}{said}"


def _after(name: str, count: int, status: Status) -> str:
    # The list's length has the running action in it.
    left = count - sum(run.run.partition(".")[0] == name for run in status.running)
    if left <= 0:
        return ""
    return f"{left} more of {name}" if left < count else f"{left} of {name}"
