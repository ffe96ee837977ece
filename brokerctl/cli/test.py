"""`brokerctl test`: scenarios, in one or several worlds, reported as text, TAP or JUnit XML."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from brokerctl import config
from brokerctl.cli.options import Parser
from brokerctl.errors import EXIT_FOUND, UsageError
from brokerctl.report import text
from brokerctl.report.result import Result, Told
from brokerctl.scenario import format as scenario_format
from brokerctl.scenario import runner
from brokerctl.scenario.collect import collect
from brokerctl.scenario.format import Scenario

JOBS_MAX = 256
EPILOG = """\
-k takes words: `timeout` is a part of a name, `not`, `and`, `or` and parentheses combine them.
Exit code: 0 all passed or were skipped, 1 something failed, 2 nothing could be run."""


class Case(msgspec.Struct, frozen=True):
    """One scenario in one world, to be run."""

    scenario: Scenario
    world: str
    policy: str | None
    sets: tuple[str, ...]
    record: Path | None = None

    def run(self, tell: Callable[[Told], None] | None = None) -> Result:
        """Run it here; `tell` gets each log entry as it comes."""
        return runner.run(self.scenario, self.world, policy=self.policy, sets=self.sets, tell=tell, record=self.record)


def main(argv: list[str]) -> int:
    """Returns 0 where nothing failed, else 1."""
    options = _parser().parse_args(argv)
    if options.schema:
        print(json.dumps(scenario_format.schema(), indent=2))
        return 0
    if not options.paths:
        raise UsageError("no PATH; expected scenario files or directories")
    if options.story and (options.output or options.jobs > 1 or options.format != "text"):
        raise UsageError("--story is told here, as it happens; expected no -o, -j or --format beside it")
    cases = _cases(options)
    if options.story:
        return _tell(cases)
    out = _output(options.output, "-o")
    results = _run(cases, options.jobs, _progress(options, len(cases)))
    if out is None:
        sys.stdout.write(_report(options.format, results, colour=sys.stdout.isatty()))
    else:
        try:
            out.write_text(_report(options.format, results, colour=False), encoding="utf-8")
        except OSError as error:
            raise UsageError(f"-o {out}: cannot write: {error.strerror}") from None
    return EXIT_FOUND if any(result.status == "failed" for result in results) else 0


def _parser() -> Parser:
    parser = Parser("test", "Run scenarios, in one or several worlds, and report.", EPILOG)
    parser.add_argument("paths", metavar="PATH", nargs="*", type=Path, help="scenario files, or directories of them")
    parser.add_argument(
        "--world", metavar="W,…", type=_worlds, default=["sim"], help=f"of {', '.join(runner.WORLDS)}; default: sim"
    )
    parser.add_argument("--format", choices=["text", "tap", "junit"], default="text", help="default: text")
    parser.add_argument("-o", dest="output", metavar="F", type=Path, help="write the report to this file")
    parser.add_argument("-j", dest="jobs", metavar="N", type=_jobs, default=1, help="run N scenarios at a time")
    parser.add_argument("-k", dest="select", metavar="EXPR", default="", help="only those whose name matches")
    parser.add_argument("--policy", choices=sorted(config.POLICIES), help="default: each scenario's own, else flux")
    parser.add_argument(
        "-S", dest="sets", metavar="ATTR=VALUE", action="append", default=[], help="set a broker attribute"
    )
    parser.add_argument("--story", action="store_true", help="tell each run as it happens, then its verdict")
    parser.add_argument(
        "--record", metavar="F.json", type=Path, help="write what the real Flux did, with its log in F.log beside it"
    )
    parser.add_argument("--schema", action="store_true", help="print the JSON Schema of a scenario and end")
    return parser


def _worlds(value: str) -> list[str]:
    names = list(dict.fromkeys(name.strip() for name in value.split(",")))
    for name in names:
        if name not in runner.WORLDS:
            raise argparse.ArgumentTypeError(f"unknown world {name!r}; expected one of {', '.join(runner.WORLDS)}")
    return names


def _jobs(value: str) -> int:
    if not value.isascii() or not value.isdigit() or not 1 <= int(value) <= JOBS_MAX:
        raise argparse.ArgumentTypeError(f"{value!r} is no number of jobs; expected 1 to {JOBS_MAX}")
    return int(value)


def _cases(options: argparse.Namespace) -> list[Case]:
    """Everything is read, resolved and checked before anything is run."""
    scenarios = [scenario_format.load(path) for path in collect(options.paths)]
    wanted = matcher(options.select)
    scenarios = [scenario for scenario in scenarios if wanted(scenario.name)]
    if not scenarios:
        raise UsageError(f"-k {options.select}: no scenario has such a name")
    for scenario in scenarios:
        runner.prepare(scenario, options.policy, options.sets)
    record: Path | None = options.record
    if record is not None:
        if len(scenarios) != 1 or options.world != ["flux"] or record.suffix != ".json":
            raise UsageError(
                f"--record {record}: expected one scenario in --world flux, and a name that ends with .json"
            )
        _output(record, "--record")
    return [
        Case(scenario, world, options.policy, tuple(options.sets), record)
        for scenario in scenarios
        for world in options.world
    ]


def _output(path: Path | None, option: str) -> Path | None:
    """A file that can be written: known before an hour of tests, not after it."""
    if path is not None:
        try:
            path.open("ab").close()
        except OSError as error:
            raise UsageError(f"{option} {path}: cannot write: {error.strerror}") from None
    return path


def _report(form: str, results: Sequence[Result], *, colour: bool) -> str:
    if form == "tap":
        from brokerctl.report import tap

        return tap.report(results)
    if form == "junit":
        from brokerctl.report import junit

        return junit.report(results)
    return text.report(results, colour=colour)


# ---- running
# --------------------------------------------------------------------------------------------------------


def _run(cases: Sequence[Case], jobs: int, progress: Callable[[Result], None]) -> list[Result]:
    """The results in the order of the cases."""
    results = []
    for result in _parallel(cases, jobs) if jobs > 1 and len(cases) > 1 else map(Case.run, cases):
        progress(result)
        results.append(result)
    return results


def _tell(cases: Sequence[Case]) -> int:
    """Each run as it happens, as `simulate` tells it, then its verdict; the exit code."""
    colour, failed = sys.stdout.isatty(), False
    for index, case in enumerate(cases):
        if index:
            print()
        result = case.run(lambda told: print(text.entry(told, colour=colour), flush=True))
        if result.story:
            print()
        print(text.verdict(result, colour=colour), end="", flush=True)
        failed = failed or result.status == "failed"
    return EXIT_FOUND if failed else 0


def _parallel(cases: Sequence[Case], jobs: int) -> Iterator[Result]:
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    # Spawned, not forked: each worker has signal handlers, pidfds and children of its own.
    with ProcessPoolExecutor(min(jobs, len(cases)), mp_context=get_context("spawn")) as pool:
        yield from pool.map(Case.run, cases)


def _progress(options: argparse.Namespace, total: int) -> Callable[[Result], None]:
    """On a terminal, say what has been done; the report itself may go elsewhere."""
    if not sys.stderr.isatty():
        return lambda _result: None
    count = 0

    def progress(result: Result) -> None:
        nonlocal count
        count += 1
        end = "\n" if result.status == "failed" and options.output is not None else "\r"
        print(f"\x1b[K[{count}/{total}] {text.line(result, colour=True)}", end=end, file=sys.stderr)
        if count == total:
            print("\x1b[K", end="", file=sys.stderr, flush=True)

    return progress


# ---- -k
# -------------------------------------------------------------------------------------------------------------

_WORD = re.compile(r"\s*(?:(\(|\))|([^\s()]+))")


def matcher(expression: str) -> Callable[[str], bool]:
    """A test of names from `a and not (b or c)`; words are parts of names. UsageError where it can't be read."""
    words = [match[1] or match[2] for match in _WORD.finditer(expression)]
    if not words:
        return lambda _name: True
    rest = list(reversed(words))
    wanted = _either(rest, expression)
    if rest:
        raise UsageError(f"-k {expression}: {rest[-1]!r} is not expected there")
    return wanted


def _either(rest: list[str], whole: str) -> Callable[[str], bool]:
    parts = [_both(rest, whole)]
    while rest and rest[-1] == "or":
        rest.pop()
        parts.append(_both(rest, whole))
    return lambda name: any(part(name) for part in parts)


def _both(rest: list[str], whole: str) -> Callable[[str], bool]:
    parts = [_single(rest, whole)]
    while rest and rest[-1] == "and":
        rest.pop()
        parts.append(_single(rest, whole))
    return lambda name: all(part(name) for part in parts)


def _single(rest: list[str], whole: str) -> Callable[[str], bool]:
    negated = False
    while rest and rest[-1] == "not":
        rest.pop()
        negated = not negated
    word = rest.pop() if rest else ""
    if word == "(":
        inner = _either(rest, whole)
        if not rest or rest.pop() != ")":
            raise UsageError(f"-k {whole}: a parenthesis is open")
        return lambda name: inner(name) != negated
    if word in {"", ")", "and", "or"}:
        raise UsageError(f"-k {whole}: {word or 'its end'!r} is not expected there")
    return lambda name: (word in name) != negated
