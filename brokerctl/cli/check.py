"""`brokerctl check`: what a running Flux carries from an earlier life, and the commands that repair it."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

from brokerctl import durations
from brokerctl.cli.options import Parser
from brokerctl.durations import S
from brokerctl.errors import EXIT_FOUND, ControlError, TraceError, UsageError
from brokerctl.logs import eventlog
from brokerctl.stop import check
from brokerctl.stop.errands import attempt
from brokerctl.stop.fluxcommand import FluxCommand

URI = "local:///run/flux/local"  # of flux.service
WITHIN_NS = 120 * S
EVENTLOG_SIZE_MAX = 16 << 20
EPILOG = """\
Looks only; nothing is changed. Found are jobs whose prolog or epilog began before Flux was last started and has no end,
housekeeping that takes too long, and flux-prolog@, flux-epilog@, flux-housekeeping@ units on this node that belong to
no job any more. Each finding is followed by the command that repairs it, for Flux's owner or root to type.

exit code: 0 nothing was found; 1 something was; 2 Flux can't be asked.
"""


def main(argv: list[str]) -> int:
    """Run the verb."""
    parser = Parser("check", "Look for what a running Flux carries from an earlier life.", EPILOG)
    parser.add_argument("--uri", help=f"where Flux listens; default: $FLUX_URI, else {URI}")
    parser.add_argument("--flux", metavar="FILE", help="the flux command; default: that of $PATH")
    parser.add_argument(
        "--housekeeping", metavar="T", default="1h", help="how long it may take (RFC 23; default 1h; none: for ever)"
    )
    parser.add_argument(
        "--eventlogs", metavar="DIR", help="look at saved eventlogs instead, one file a job, named for it"
    )
    options = parser.parse_args(argv)
    try:
        limit_ns = durations.parse(options.housekeeping)
    except ValueError as error:
        raise UsageError(f"--housekeeping: {error}") from None
    if options.eventlogs is not None:
        return _tell(_saved(Path(options.eventlogs)), "")
    path = options.flux or shutil.which("flux")
    if not path:
        raise UsageError("there is no flux in $PATH; expected --flux FILE")
    uri = options.uri or os.environ.get("FLUX_URI") or URI
    command = FluxCommand(os.path.abspath(path), check.owner(uri), uri)  # noqa: PTH100 - links stay as they are
    found, why = attempt(check.running(check.Asked(command, limit_ns)), WITHIN_NS)
    if found is None:
        raise ControlError(why)
    return _tell(found, check.prefix(command, URI))


def _saved(folder: Path) -> list[check.Finding]:
    """The findings in a directory of eventlogs: whatever has no end, as nobody tells when Flux was started."""
    found = []
    try:
        for path in sorted(folder.iterdir()):
            if not path.is_file():
                continue
            if path.stat().st_size > EVENTLOG_SIZE_MAX:
                found.append(check.Finding(f"{path}: larger than {EVENTLOG_SIZE_MAX >> 20} MiB, not looked at"))
                continue
            job = path.name.partition(".")[0]
            try:
                entries = eventlog.parse(path.read_text(encoding="utf-8"))
            except (TraceError, UnicodeDecodeError) as error:
                raise TraceError(f"{path}: {error}") from None
            found += check.of_job(job, "", entries, time.time(), None)
    except OSError as error:
        raise UsageError(f"--eventlogs {error.filename or folder}: {error.strerror}") from None
    return found


def _tell(found: list[check.Finding], prefix: str) -> int:
    for one in found:
        print(one.text)
        if one.repair:
            print(f"    {one.typed(prefix)}")
    print(f"{len(found)} finding{'' if len(found) == 1 else 's'}")
    return EXIT_FOUND if found else 0
