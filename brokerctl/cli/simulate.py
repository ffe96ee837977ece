"""`brokerctl simulate`: one scenario in virtual time, told as Flux would log it, then the verdict."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

from brokerctl import config, trace
from brokerctl.cli.options import Parser
from brokerctl.durations import S
from brokerctl.errors import EXIT_FOUND, UsageError
from brokerctl.model.lifecycle import State
from brokerctl.records import Exit, Line, Moved
from brokerctl.report import text, view
from brokerctl.report.result import Result, Told
from brokerctl.scenario import at, runner
from brokerctl.scenario import format as scenario_format
from brokerctl.worlds.contract import Resolved


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
    colour, size = sys.stdout.isatty(), len(resolved.topology.parents)
    progress = Progress(size) if size >= text.MANY and sys.stderr.isatty() else None

    def tell(told: Told) -> None:
        if progress is not None:
            progress.clear()
        print(text.entry(told, colour=colour))

    def run(sink: Callable[[Line], None] | None) -> Result:
        return runner.run(
            scenario,
            "sim",
            policy=options.policy,
            sets=options.sets,
            tell=tell,
            sink=sink,
            watch=progress,
        )

    if options.trace is None:
        result = run(None)
    else:
        try:
            with options.trace.open("wb") as file:
                result = run(trace.Writer(file, _header(resolved)))
        except BrokenPipeError:
            raise
        except OSError as error:
            raise UsageError(f"--trace {options.trace}: cannot write: {error.strerror}") from None
    if progress is not None:
        progress.clear()
    print()
    print(text.eventlogs(result), end="")
    print(text.verdict(result, colour=colour), end="")
    # A scenario may expect its deadlock, and its test passes then; who asks what will happen is told by the code too.
    return EXIT_FOUND if result.status == "failed" or result.deadlocks else 0


def _header(resolved: Resolved) -> trace.Header:
    if resolved.unit is None:
        return trace.header(resolved.settings, resolved.topology)
    return trace.header(resolved.settings, resolved.topology, unit=resolved.unit.settings, stop=resolved.unit.stop)


class Progress:
    """A line on the terminal that says how far a simulation of many ranks has come."""

    wants: frozenset[type] = frozenset({Moved, Exit})
    _EVERY_LINES = 2000
    _EVERY_S = 0.1

    def __init__(self, size: int) -> None:
        self._size = size
        self._lines = self._run = self._ended = 0
        self._next_s = 0.0
        self._shown = False

    def see(self, line: Line) -> None:
        """One more line; the clock is looked at now and then."""
        if isinstance(line.what, Exit):
            self._ended += 1
        elif isinstance(line.what, Moved):
            self._run += line.what.new == State.RUN
        self._lines += 1
        if self._lines % self._EVERY_LINES == 0 and time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + self._EVERY_S
            self._shown = True
            counts = f"{self._run:,} of {self._size:,} ranks have been in run, {self._ended:,} have ended"
            print(f"\r\x1b[K{line.t_ns / S:9.3f} {counts}", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Make room for other lines."""
        if self._shown:
            self._shown = False
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
