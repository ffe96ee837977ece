"""`brokerctl start`: a tree of brokers on this machine, as many processes as ranks."""

from __future__ import annotations

import os
import re
import sys
from argparse import Namespace
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO

import msgspec

from brokerctl import config, durations, trace
from brokerctl.cli.options import Parser, split
from brokerctl.cli.run import open_trace
from brokerctl.cli.stderr_log import StderrLog
from brokerctl.errors import TraceError, UsageError
from brokerctl.ids import parse_idset
from brokerctl.kernel.stdio import open_standard_streams
from brokerctl.model.tree import flat, kary
from brokerctl.settings import Settings
from brokerctl.trace import Topology
from brokerctl.worlds.live import launch
from brokerctl.worlds.live.brokers import Brokers, reach
from brokerctl.worlds.live.rundir import Rundir, choose, control_path, remove_files

USAGE = "brokerctl start --size N [OPTION …] [-- COMMAND [ARGUMENT …]]"
EPILOG = """\
N brokers, rank 0 the leader; each has a rundir of its own, RUNDIR/RANK, for brokerctl status, shutdown and
cleanup-push. The command after -- is the leader's rc2. Signals go to the leader, each once; its stop takes the others
along. When it has ended, they get --exit-timeout, then SIGTERM, then SIGKILL.

exit code: the leader's, 128+N if signal N killed it; 2 if something was refused and nothing started.
"""
# As many processes, each of some 15 MB.
SIZE_MAX = 1000
SETTINGS = "settings.json"
_KARY = re.compile(r"kary:([1-9][0-9]{0,5})")


def main(argv: list[str]) -> int:
    """Run the verb; the leader's exit code."""
    open_standard_streams()
    before, rc2 = split(argv)
    options = _parser().parse_args(before)
    if rc2 == []:
        raise UsageError("-- without a command; expected rc2 after it, or no --")
    topology = Topology(parents(options.topology, options.size), (os.uname().nodename,) * options.size)
    shell = os.environ.get("SHELL") or config.SHELL_DEFAULT
    file = None if options.config is None else Path(options.config)
    settings = config.resolve(options.policy, file, options.sets, rc2=rc2 or [], shell=shell)
    _check_ranks(settings, options.size)
    tree = Rundir(choose(options.rundir))
    try:
        return _run(options, settings, topology, tree.path)
    finally:
        tree.close()


def _parser() -> Parser:
    parser = Parser("start", "Run a whole tree of brokers on this machine, in the foreground.", EPILOG, USAGE)
    parser.add_argument("--size", type=_size, required=True, metavar="N", help=f"how many brokers, 1 to {SIZE_MAX}")
    parser.add_argument("--topology", default="kary:2", metavar="T", help="kary:K or flat (default: kary:2)")
    parser.add_argument("--config", metavar="FILE", help="TOML, as of brokerctl run; a cleanup action may have ranks")
    parser.add_argument("-S", dest="sets", metavar="ATTR=VALUE", action="append", default=[], help="set an attribute")
    parser.add_rundir()
    parser.add_argument(
        "--trace", metavar="DIR|FILE", help="write every rank's trace into DIR as it comes, or all into FILE at the end"
    )
    policies = f"the defaults: {', '.join(config.POLICIES)} (default: hardened)"
    parser.add_argument("--policy", default="hardened", metavar="P", help=policies)
    parser.add_argument("--status-file", metavar="F", help="JSON: kind, code and culprit of the leader's end")
    parser.add_argument(
        "--exit-timeout", type=_duration, default="20s", metavar="T",
        help="how long the others may stay when the leader has ended (default: 20s)",
    )  # fmt: skip
    return parser


def _size(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= SIZE_MAX):
        raise UsageError(f"--size {text}: expected a number from 1 to {SIZE_MAX}")
    return int(text)


def _duration(text: str) -> int:
    try:
        value = durations.parse(text)
    except ValueError as error:
        raise UsageError(f"--exit-timeout: {error}") from None
    if value is None:
        raise UsageError("--exit-timeout: 'none' is not possible here; expected a duration")
    return value


def parents(topology: str, size: int) -> tuple[int, ...]:
    """Each rank's parent in `kary:K` or `flat`."""
    match = _KARY.fullmatch(topology)
    if match is not None:
        return kary(size, int(match[1]))
    if topology == "flat":
        return flat(size)
    raise UsageError(f"--topology {topology}: is no topology; expected kary:K or flat")


def _check_ranks(settings: Settings, size: int) -> None:
    for index, action in enumerate(settings.cleanup):
        if action.ranks not in {"", "all"} and max(parse_idset(action.ranks)) >= size:
            raise UsageError(f"cleanup[{index}].ranks: {action.ranks} is out of range; expected less than {size}")


def _run(options: Namespace, settings: Settings, topology: Topology, folder: Path) -> int:
    size = options.size
    control_path(launch.rundir(folder, size - 1))
    together = options.trace is not None and not os.path.isdir(options.trace)  # noqa: PTH112 - one stat
    file = open_trace(options.trace) if together else None
    try:
        _prepare(folder, size, settings, topology)
        try:
            log = StderrLog(topology.hosts)
            brokers = Brokers(
                size, _arguments(options, folder, topology),
                tell=log.write, pass_on=log.pass_on, exit_timeout_ns=options.exit_timeout,
            )  # fmt: skip
            log.write(reach(folder, size))
            try:
                code = brokers.run()
            finally:
                log.close()
            if file is not None:
                _merge(file, [_trace_of(folder, rank) for rank in range(size)], brokers.killed)
            return code
        finally:
            _remove(folder, size)
    finally:
        if file is not None:
            file.close()


def _arguments(options: Namespace, folder: Path, topology: Topology) -> Callable[[int], list[str]]:
    """What gives the argument list of each rank's broker."""

    def arguments(rank: int) -> list[str]:
        more = launch.own_pid()
        if options.trace is not None:
            own = Path(options.trace) / f"{rank}.jsonl"
            more += ["--trace", str(own if os.path.isdir(options.trace) else _trace_of(folder, rank))]  # noqa: PTH112
        if options.status_file is not None and rank == 0:
            more += ["--status-file", options.status_file]
        return launch.argv(folder, rank, topology, folder / SETTINGS, *more)

    return arguments


def _trace_of(folder: Path, rank: int) -> Path:
    return folder / f"{rank}.jsonl"


def _prepare(folder: Path, size: int, settings: Settings, topology: Topology) -> None:
    try:
        fd = os.open(folder / SETTINGS, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(fd, "wb") as file:  # noqa: PTH123 - from a descriptor
            file.write(msgspec.json.encode((settings, topology)))
        for rank in range(size):
            launch.rundir(folder, rank).mkdir(mode=0o700, exist_ok=True)
            # Refused where a broker of an earlier tree lives; what a killed one left is removed before any starts.
            Rundir(launch.rundir(folder, rank)).close()
    except OSError as error:
        raise UsageError(f"rundir {folder}: cannot write: {error.strerror}") from None


def _remove(folder: Path, size: int) -> None:
    """What was made here, and what killed brokers could not remove."""
    for rank in range(size):
        remove_files(launch.rundir(folder, rank))
        _trace_of(folder, rank).unlink(missing_ok=True)
        with suppress(OSError):
            launch.rundir(folder, rank).rmdir()
    (folder / SETTINGS).unlink(missing_ok=True)


def _merge(file: IO[bytes], paths: list[Path], killed: set[int]) -> None:
    """All ranks' traces as one; a failure changes nothing about the code of what has run."""
    try:
        traces = [
            trace.read(path, torn=rank in killed)
            for rank, path in enumerate(paths)
            if path.exists() and path.stat().st_size
        ]
        head, lines = trace.merge(traces)
        writer = trace.Writer(file, head)
        for line in lines:
            writer(line)
        writer.flush()
    except (TraceError, OSError) as error:
        print(f"brokerctl start: --trace: {error}", file=sys.stderr)
