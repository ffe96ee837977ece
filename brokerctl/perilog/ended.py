"""`python -I -m brokerctl.perilog.ended KIND INSTANCE`: the ExecStopPost of a unit that failed.

The helper reacts to a failure. Where there is none, since it was killed, or since Flux's own helper or an administrator
started the unit, this does.
"""

from __future__ import annotations

import os
import sys

from brokerctl.errors import BrokerctlError, ConfigError
from brokerctl.kernel import stdio
from brokerctl.perilog import endings, failure, processes, settings
from brokerctl.perilog.names import KINDS
from brokerctl.perilog.rundir import Rundir


def main(argv: list[str]) -> int:
    """React to the failure, unless a helper has this run; returns the exit code."""
    processes.hold_signals()
    stdio.open_standard_streams()
    if len(argv) != 2 or argv[0] not in KINDS or "/" in argv[1]:
        print("usage: python -I -m brokerctl.perilog.ended prolog|epilog|housekeeping INSTANCE", file=sys.stderr)
        return 2
    kind, instance = argv
    try:
        rundir = Rundir(kind, instance)
        if not rundir.acquire():
            return 0
        words = [os.environ.get(name, "") for name in ("SERVICE_RESULT", "EXIT_CODE", "EXIT_STATUS")]
        ending = endings.of_unit(*words)
        failure.react(_settings(kind), f"flux-{kind}@{instance}.service", ending)
        rundir.finish(ending.code, ending.how)
    except BrokerctlError as error:
        print(f"brokerctl.perilog.ended: {error}", file=sys.stderr)
        return 1
    return 0


def _settings(kind: str) -> settings.Settings:
    """Those of the site, or, where they can't be used, the defaults: as the helper does, it reacts all the same."""
    try:
        return settings.load(kind)
    except ConfigError as error:
        print(f"brokerctl.perilog.ended: {error}", file=sys.stderr)
        return settings.Settings(kind)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
