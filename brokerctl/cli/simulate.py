"""`brokerctl simulate`: one scenario in virtual time, told as Flux would log it, then the verdict."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from brokerctl import config, trace
from brokerctl.cli.options import Parser
from brokerctl.errors import EXIT_FOUND, UsageError
from brokerctl.records import Line
from brokerctl.report import text, view
from brokerctl.report.result import Result
from brokerctl.scenario import at, runner
from brokerctl.scenario import format as scenario_format


def main(argv: list[str]) -> int:
    """Returns 0 where all expectations and invariants hold and nothing waits for itself, else 1."""
    parser = Parser("simulate", "Run one scenario in virtual time: the stop as Flux would log it, then the verdict.")
    parser.add_argument("file", metavar="FILE", type=Path, help="the scenario (TOML)")
    parser.add_argument("--policy", choices=sorted(config.POLICIES), help="default: the scenario's own, else flux")
    parser.add_argument("--trace", metavar="F", type=Path, help="write the trace to this file")
    parser.add_argument(
        "-S", dest="sets", metavar="ATTR=VALUE", action="append", default=[], help="set a broker attribute"
    )
    parser.add_argument(
        "--at", metavar="MOMENT", help="show the instance at that moment instead, such as 'stuck finish + 5s'"
    )
    options = parser.parse_args(argv)
    scenario = scenario_format.load(options.file)
    resolved = runner.prepare(scenario, options.policy, options.sets)
    if options.at is not None:
        print(view.text(at.look(scenario, options.at, options.policy, options.sets)), end="")
        return 0
    colour = sys.stdout.isatty()

    def run(sink: Callable[[Line], None] | None) -> Result:
        return runner.run(
            scenario,
            "sim",
            policy=options.policy,
            sets=options.sets,
            tell=lambda told: print(text.entry(told, colour=colour)),
            sink=sink,
        )

    if options.trace is None:
        result = run(None)
    else:
        try:
            with options.trace.open("wb") as file:
                result = run(trace.Writer(file, trace.header(resolved.settings, resolved.topology)))
        except BrokenPipeError:
            raise
        except OSError as error:
            raise UsageError(f"--trace {options.trace}: cannot write: {error.strerror}") from None
    print()
    print(text.eventlogs(result), end="")
    print(text.verdict(result, colour=colour), end="")
    # A scenario may expect its deadlock, and its test passes then; who asks what will happen is told by the code too.
    return EXIT_FOUND if result.status == "failed" or result.deadlocks else 0
