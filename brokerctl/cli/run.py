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
from brokerctl.model import lifecycle
from brokerctl.settings import Settings
from brokerctl.trace import Topology
from brokerctl.worlds.live.broker import LiveBroker
from brokerctl.worlds.live.rundir import Rundir, choose

USAGE = "brokerctl run [OPTION …] [-- COMMAND [ARGUMENT …]]"
EPILOG = """\
The command after -- is rc2: the broker stops when it ends. Without one it runs until it is told to stop: by SIGTERM,
or by brokerctl shutdown. Everything is checked before anything is started.

exit code: the lifecycle's, 0-255: the first nonzero one of rc1, rc2, cleanup and rc3; 2 if something was refused and
nothing started. --status-file tells one from the other.
"""


def main(argv: list[str]) -> int:
    """Run the verb; returns the lifecycle's code."""
    _open_standard_streams()
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
    parser.add_argument("--settings", help=SUPPRESS)
    return parser


def _run(options: Namespace, rc2: list[str], status: StatusFile | None) -> int:
    settings, topology = _settings(options, rc2)
    rundir = Rundir(choose(options.rundir))
    try:
        file = _open_trace(options.trace) if options.trace else None
        if status is not None:
            status.running()
        try:
            return _supervise(settings, topology, rundir, file, status)
        finally:
            if file is not None:
                _close(file)
    finally:
        rundir.close()


def _supervise(
    settings: Settings, topology: Topology, rundir: Rundir, file: IO[bytes] | None, status: StatusFile | None
) -> int:
    writer = None if file is None else trace.Writer(file, _header(settings, topology))
    log = StderrLog(topology.hosts)
    broker = LiveBroker(
        settings, topology, rundir.path, fire=lifecycle.machine_fire(), trace=writer,
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


def _header(settings: Settings, topology: Topology) -> trace.Header:
    return trace.header(
        settings,
        topology,
        rank=0,
        host=topology.hosts[0],
        boot_id=Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        realtime_offset_ns=time.time_ns() - time.monotonic_ns(),
    )


def _open_trace(name: str) -> IO[bytes]:
    """The trace file, created or truncated; a FIFO must have its reader already: nothing here waits without bound."""
    try:
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    except OSError as error:
        why = "nobody reads this FIFO" if error.errno == errno.ENXIO else error.strerror
        raise UsageError(f"--trace {name}: cannot write: {why}") from None
    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) & ~os.O_NONBLOCK)
    return os.fdopen(fd, "wb")


def _close(file: IO[bytes]) -> None:
    try:
        file.close()
    except OSError as error:  # a full disk must not change the lifecycle's code
        print(f"brokerctl run: --trace: cannot write: {error.strerror}", file=sys.stderr)


def _open_standard_streams() -> None:
    """Whatever was closed when we were started must not become the next file that is opened."""
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number: this one
            os.set_inheritable(fd, True)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)
