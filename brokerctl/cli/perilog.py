"""`brokerctl perilog`: one run of a prolog, epilog or housekeeping unit; what `flux-run-KIND` does."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from brokerctl import durations
from brokerctl.cli.options import Parser
from brokerctl.errors import EXIT_FOUND, UsageError
from brokerctl.perilog import helper, runner, settings
from brokerctl.perilog.names import KINDS
from brokerctl.report.text import printable

EPILOG = """\
The job is the one in the environment, FLUX_JOB_ID (f58, decimal or hexadecimal). Flux starts the executables
flux-run-prolog, flux-run-epilog and flux-run-housekeeping (brokerctl units), which do the same without arguments.

exit code: the script's own, 128+N if signal N killed it; 143 canceled, 124 timed out, 125 could not start.
With --check: 0; 1 if a script would be refused; 2 if the settings can't be used.
"""


def main(argv: Sequence[str]) -> int:
    """Run one kind, or show what would be run; the exit code."""
    parser = Parser("perilog", "Run a prolog, epilog or housekeeping in a unit of its own.", EPILOG)
    parser.add_argument("kind", metavar="KIND", nargs="?", choices=KINDS, help=", ".join(KINDS))
    parser.add_argument("--check", action="store_true", help="read the settings, show what would be run, run nothing")
    options = parser.parse_args(argv)
    if options.check:
        return max(_check(kind) for kind in ([options.kind] if options.kind else KINDS))
    if options.kind is None:
        raise UsageError(f"expected one of {', '.join(KINDS)}")
    return helper.main(options.kind)


def _check(kind: str) -> int:
    chosen = settings.load(kind)
    print(f"{kind}: limit {durations.as_text(chosen.timeout_ns)}")
    for name in chosen.environment:
        print(f"  hands over {name}")
    refused = False
    for path, why in runner.scripts(chosen):
        refused = refused or bool(why)
        print(printable(f"  refuses {path}: {why}" if why else f"  runs {path}"))
    if chosen.exit_on_first_error:
        print("  up to the first that fails")
    for command in chosen.on_failure:
        print(f"  on failure {shlex.join(command)}")
    return EXIT_FOUND if refused else 0
