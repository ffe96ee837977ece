"""`brokerctl run`: supervise a lifecycle here, in the foreground."""

from __future__ import annotations

import errno
import fcntl
import os
import sys
import time
from argparse import SUPPRESS, Namespace
from pathlib import Path
from typing import IO

import msgspec

from brokerctl import config, trace
from brokerctl.cli.options import Parser, split
from brokerctl.cli.status_file import StatusFile
from brokerctl.cli.stderr_log import StderrLog
from brokerctl.errors import EXIT_BUG, BrokerctlError, UsageError
from brokerctl.kernel.stdio import open_standard_streams
from brokerctl.model import lifecycle
from brokerctl.settings import Settings
from brokerctl.trace import Topology
from brokerctl.worlds.live.broker import LiveBroker
from brokerctl.worlds.live.rundir import Rundir, choose

BUFFER_SIZE = 256 << 10
USAGE = "brokerctl run [OPTION …] [-- COMMAND [ARGUMENT …]]"
EPILOG = """\
The command after -- is rc2: the broker stops when it ends. Without one it runs until it is told to stop: by SIGTERM,
or by brokerctl shutdown. Everything is checked before anything is started.

exit code: the lifecycle's, 0-255: the first nonzero one of rc1, rc2, cleanup and rc3; 2 if something was refused and
nothing started. --status-file tells one from the other.
"""


def main(argv: list[str]) -> int:
    """Run the verb; returns the lifecycle's code."""
    open_standard_streams()
    before, rc2 = split(argv)
    parser = _parser()
    options = parser.parse_args(before)
    if rc2 == []:
        raise UsageError("-- without a command; expected rc2 after it, or no --")
    status = StatusFile(Path(options.status_file)) if options.status_file else None
    try:
        code = _run(options, rc2 or [], status)
    except BrokerctlError as error:
        if status is not None:
            status.refused(error.exit_code, str(error))
        raise
    except Exception as error:
        if status is not None:
            status.bug(EXIT_BUG, f"{type(error).__name__}: {error}")
        raise
    return code


def _parser() -> Parser:
    parser = Parser("run", "Supervise a lifecycle here, in the foreground.", EPILOG, USAGE)
    parser.add_argument("--config", metavar="FILE", help="TOML: [attrs], [[rc1]], [[cleanup]], [[rc3]]")
    parser.add_argument("-S", dest="sets", metavar="ATTR=VALUE", action="append", default=[], help="set an attribute")
    parser.add_rundir()
    parser.add_argument("--trace", metavar="FILE", help="write every input and output of the model there")
    parser.add_argument("--policy", metavar="P", help=f"the defaults: {', '.join(config.POLICIES)} (default: hardened)")
    parser.add_argument("--status-file", metavar="F", help="JSON: kind, code and culprit of the end")
    # Of programs that start brokers: `start`, and the live world of scenarios.
    parser.add_argument("--settings", help=SUPPRESS)
    parser.add_argument("--rank", type=int, default=0, help=SUPPRESS)
    parser.add_argument("--parent", help=SUPPRESS)
    parser.add_argument("--starter", type=int, default=0, help=SUPPRESS)
    parser.add_argument("--breakable", action="store_true", help=SUPPRESS)
    return parser


def _run(options: Namespace, rc2: list[str], status: StatusFile | None) -> int:
    settings, topology = _settings(options, rc2)
    _check_place(options, topology)
    rundir = Rundir(choose(options.rundir))
    try:
        file = open_trace(options.trace) if options.trace else None
        if status is not None:
            status.running()
        try:
            return _supervise(settings, topology, rundir, file, status, options)
        finally:
            if file is not None:
                _close(file)
    finally:
        rundir.close()


def _supervise(
    settings: Settings,
    topology: Topology,
    rundir: Rundir,
    file: IO[bytes] | None,
    status: StatusFile | None,
    options: Namespace,
) -> int:
    writer = None if file is None else trace.Writer(file, _header(settings, topology, options.rank))
    log = StderrLog(topology.hosts)
    # Followers come by the dozen: they fire the plain table, which does the same and is 4 MB less.
    broker = LiveBroker(
        settings, topology, rundir.path, rank=options.rank,
        parent=None if options.parent is None else Path(options.parent),
        starter=options.starter, breakable=options.breakable,
        fire=None if options.rank else lifecycle.machine_fire(), trace=writer,
        sinks=[log] if status is None else [log, status],
    )  # fmt: skip
    try:
        code = broker.run()
    finally:
        log.close()
    if status is not None:
        status.exited(code)
    return code


def _settings(options: Namespace, rc2: list[str]) -> tuple[Settings, Topology]:
    if options.settings is None:
        shell = os.environ.get("SHELL") or config.SHELL_DEFAULT
        file = None if options.config is None else Path(options.config)
        settings = config.resolve(options.policy or "hardened", file, options.sets, rc2=rc2, shell=shell)
        return settings, Topology(hosts=(os.uname().nodename,))
    # For programs that have resolved everything already, such as the live world of scenarios: a JSON pair.
    if options.config is not None or options.sets or options.policy is not None or rc2:
        raise UsageError("--settings is everything; expected no --config, -S, --policy or command beside it")
    try:
        settings, topology = msgspec.json.decode(Path(options.settings).read_bytes(), type=tuple[Settings, Topology])
    except OSError as error:
        raise UsageError(f"--settings {options.settings}: cannot read: {error.strerror}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UsageError(f"--settings {options.settings}: {error}") from None
    return settings, topology


def _check_place(options: Namespace, topology: Topology) -> None:
    """Every follower has a rank and a parent's socket; the leader has none."""
    if not 0 <= options.rank < len(topology.parents):
        raise UsageError(f"--rank {options.rank}: is out of range; expected less than {len(topology.parents)}")
    if (options.rank > 0) != (options.parent is not None):
        raise UsageError("--parent: belongs to every rank but 0; expected the socket of the parent's rundir")


def _header(settings: Settings, topology: Topology, rank: int) -> trace.Header:
    return trace.header(
        settings,
        topology,
        rank=rank,
        host=topology.hosts[rank],
        boot_id=Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        realtime_offset_ns=time.time_ns() - time.monotonic_ns(),
    )


def open_trace(name: str) -> IO[bytes]:
    """The trace file, created or truncated; a FIFO must have its reader already: nothing here waits without bound."""
    try:
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    except OSError as error:
        why = "nobody reads this FIFO" if error.errno == errno.ENXIO else error.strerror
        raise UsageError(f"--trace {name}: cannot write: {why}") from None
    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) & ~os.O_NONBLOCK)
    # What a turn of the loop tells is written as a whole: half of it would not replay, should the broker be killed.
    return os.fdopen(fd, "wb", BUFFER_SIZE)


def _close(file: IO[bytes]) -> None:
    try:
        file.close()
    except OSError as error:  # a full disk must not change the lifecycle's code
        print(f"brokerctl run: --trace: cannot write: {error.strerror}", file=sys.stderr)
