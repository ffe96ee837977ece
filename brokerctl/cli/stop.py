"""`brokerctl stop`: the ExecStop of a service with a phased stop, and, with `--post`, its ExecStopPost.

The lean path is a stop as systemd calls it: no option, or `--pid`. Everything else may take its time.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from typing import TYPE_CHECKING

from brokerctl.errors import UsageError
from brokerctl.kernel import stdio

if TYPE_CHECKING:
    from argparse import Namespace

    from brokerctl.records import Line
    from brokerctl.settings import StopSettings
    from brokerctl.stop.aide import Aide
    from brokerctl.stop.core import Sink
    from brokerctl.stop.settings import Configuration
    from brokerctl.stop.target import Aim

CONFIG = "/etc/brokerctl/stop.toml"
# msgspec would import it, if it is installed, for types that no record here has: a fifth of this program's start.
_NOT_NEEDED = "typing_extensions"
USAGE = (
    "brokerctl stop [--pid PID] [--config FILE] [--trace FILE]"
    " | (--dry-run [--timeout-stop T] | --post | --disable) [--unit UNIT]"
)
EPILOG = """\
Asks main (a Flux broker, a broker of brokerctl run, or any process) what it does, runs the actions of the site, sends
SIGTERM once, and stays until main has ended. Where a stop is under way, it joins: nothing is sent.

exit code: 0; 1 an action failed, or the service's own cleanup or rc3; 3 a bound was broken, or a rank was shed;
70 a bug; 75 told to end before main had; 2 if something was refused and nothing done.
"""


def main(argv: list[str]) -> int:
    """Run the verb."""
    stdio.open_standard_streams()
    sys.modules.setdefault(_NOT_NEEDED, None)  # type: ignore[arg-type]
    gc.disable()  # nothing that is imported is garbage: looking for it, now and at the end, is a seventh of the whole
    try:
        return _run(argv)
    finally:
        gc.enable()
        if sys.modules.get(_NOT_NEEDED) is None:
            del sys.modules[_NOT_NEEDED]


def _run(argv: list[str]) -> int:  # noqa: PLR0911 - one a form
    """What units say is understood without a parser, which costs as much as Python itself."""
    match argv:
        case []:
            return _stop(None)
        case ["--pid"]:  # the word after it has vanished (SYSTEMD.md 20)
            return _stop("")
        case ["--pid", pid]:
            return _stop(pid)
        case ["--post"]:
            return _post("")
        case _:
            options = _parsed(argv)
    if options.post:
        return _post(options.unit or "")
    if options.disable or options.dry_run:
        return _other(options)
    return _stop(options.pid, options.config, options.trace)


def _parsed(argv: list[str]) -> Namespace:
    from brokerctl.cli.options import Parser

    parser = Parser("stop", "Stop a service under systemd, as its ExecStop.", EPILOG, USAGE)
    parser.add_argument("--pid", nargs="?", const="", help="the service's main process; default: $MAINPID")
    parser.add_argument("--config", metavar="FILE", help=f"site actions and limits; default: {CONFIG}, if it is there")
    parser.add_argument("--trace", metavar="FILE", help="write every input and output of the model there")
    parser.add_argument("--dry-run", action="store_true", help="say what would be done, and how long it may take")
    parser.add_argument("--timeout-stop", metavar="T", help="of --dry-run: the unit's TimeoutStopSec; default: asked")
    parser.add_argument("--post", action="store_true", help="as ExecStopPost: one line about how the service ended")
    parser.add_argument("--disable", action="store_true", help="back to the unit as it was without brokerctl")
    parser.add_argument(
        "--unit", metavar="UNIT", help="of --dry-run, --post and --disable; default: that of PID, else flux.service"
    )
    options = parser.parse_args(argv)
    if options.post + options.disable + options.dry_run > 1:
        raise UsageError("--post, --disable and --dry-run: expected one of them")
    return options


def _post(unit: str) -> int:
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # what is no stop may be ended by any signal
    from brokerctl.stop import post

    return post.main(unit)


def _other(options: Namespace) -> int:
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    if options.disable:
        from brokerctl.stop import disable

        return disable.main(options.unit or "")
    from brokerctl.stop import plan, target

    pid = target.main_pid(options.pid, os.environ)
    found = _configured(options.config)
    print("\n".join(plan.describe(found, options.unit or "", options.timeout_stop, pid)))
    return 0


def _stop(given_pid: str | None, given_config: str | None = None, trace: str | None = None) -> int:
    from brokerctl.stop import target

    pid = target.main_pid(given_pid, os.environ)
    # Main may end between systemd's look and ours: then there is nothing to stop either.
    if pid is None or (taken := target.take(pid)) is None:
        from brokerctl.stop import post

        return post.ended()
    fd, aim = taken
    found, complaint, sink = None, "", None
    try:
        if given_config is not None or os.path.lexists(CONFIG):
            found = _configured(given_config)
            aim = aim._replace(kind=found.kind or aim.kind, flux=found.flux)
    except Exception as error:  # noqa: BLE001 - whatever is wrong with what was configured, main is stopped in order
        complaint = _left_out(error)
    from brokerctl.settings import StopSettings  # and with it what core and helper share, once for both

    helper = _first_helper(aim)
    from brokerctl.stop import core
    from brokerctl.stop.saying import say

    settings, environment = (found.settings, found.environment) if found else (StopSettings(), {})
    try:
        if trace is not None:
            sink = _traced(trace, settings)
    except Exception as error:  # noqa: BLE001 - nor does a trace that can't be written change a stop
        complaint = complaint or _left_out(error)
    if aim.unit and aim.unit != target.unit_of(os.getpid()):
        say(4, f"systemd may start {aim.unit} again after this; it does not after systemctl stop {aim.unit}")
    gc.freeze()
    gc.enable()
    return core.stop(aim, fd, settings, environment=environment, complaint=complaint, trace=sink, helper=helper)


def _left_out(error: Exception) -> str:
    return f"left out, as it can't be used: {error}"


def _first_helper(aim: Aim) -> Aide | None:
    """Begun before all that the core needs is imported, so that both start at once; without it, the core begins one."""
    if aim.kind == "other":
        return None
    from brokerctl.stop import aide

    try:
        return aide.begin(aim, aide.serve_first if aim.kind == "flux" else aide.serve)
    except OSError:
        return None


def _configured(given: str | None) -> Configuration:
    from brokerctl.stop import settings

    if given is None and not os.path.lexists(CONFIG):
        return settings.Configuration()
    return settings.load(CONFIG if given is None else given)


def _traced(name: str, settings: StopSettings) -> Sink:
    import time
    from pathlib import Path

    from brokerctl import trace
    from brokerctl.cli.run import open_trace
    from brokerctl.records.base import WRAPPER
    from brokerctl.settings import Settings

    head = trace.header(
        Settings(), trace.Topology(), rank=WRAPPER, host=os.uname().nodename,
        boot_id=Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        realtime_offset_ns=time.time_ns() - time.monotonic_ns(), stop=settings,
    )  # fmt: skip
    file = open_trace(name)
    writer = trace.Writer(file, head)

    def write(line: Line) -> None:
        try:
            writer(line)
            writer.flush()
        except OSError:
            return  # a full disk must not change a stop

    return write
