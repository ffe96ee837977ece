"""`brokerctl compare`: two traces, recordings or runs of a scenario, told side by side where their stories part."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from brokerctl import config, trace
from brokerctl.cli.options import Parser
from brokerctl.errors import EXIT_FOUND, UsageError
from brokerctl.logs import recording
from brokerctl.model.lifecycle import State
from brokerctl.records import JobEvent, Line, Moved
from brokerctl.report.sides import side_by_side
from brokerctl.scenario import compare, runner
from brokerctl.scenario import format as scenario_format
from brokerctl.scenario.compare import Stories
from brokerctl.scenario.observed import observed

EPILOG = """\
A and B are files: a trace (of --trace), a recording of a real Flux (NAME.json, with NAME.log beside it), or a scenario,
which is run. One scenario alone is run twice: in two --worlds, or under two --policies.
Times and the interleaving of ranks are not compared, nor what only one world can know. Of a real Flux, recorded or
run, what can be seen from outside is compared: logs, eventlogs, drains, notifications, exit codes; of two policies too,
but for notifications where one of them sends none. A recording of several lives is of the last one.
Exit code: 0 both tell the same, 1 they don't, 2 nothing could be compared."""


class Side(msgspec.Struct, frozen=True):
    """One of the two. Of a real Flux it is known what can be seen from outside; `has_debug`, `jobs`: how much of it.

    `jobs` are those of a recording; None where it is none. `lives`: it tells more than one.
    """

    title: str
    size: int
    lines: Callable[[], list[Line]]
    real: bool = False
    has_debug: bool = True
    jobs: frozenset[str] | None = None
    lives: bool = False


def main(argv: Sequence[str]) -> int:
    """Print where they part, or that they don't."""
    parser = Parser("compare", "Where two stories part, side by side.", EPILOG)
    parser.add_argument("a", metavar="A", type=Path, help="a trace, a recording or a scenario")
    parser.add_argument("b", metavar="B", type=Path, nargs="?", help="another one")
    parser.add_argument("--worlds", metavar="W,W", help=f"run A in both of these: {', '.join(runner.WORLDS)}")
    parser.add_argument("--policies", metavar="P,P", help=f"run A under both: {', '.join(sorted(config.POLICIES))}")
    parser.add_argument("--policy", choices=sorted(config.POLICIES), help="of scenarios; default: each one's own")
    parser.add_argument(
        "-S", dest="sets", metavar="ATTR=VALUE", action="append", default=[], help="set a broker attribute"
    )
    options = parser.parse_args(argv)
    worlds = _two(options.worlds, "--worlds", runner.WORLDS)
    policies = _two(options.policies, "--policies", sorted(config.POLICIES))
    if (options.b is None) != bool(worlds or policies):
        raise UsageError("expected two files, or one scenario with --worlds or --policies")
    if options.b is None:
        pairs = zip(worlds or ("sim", "sim"), policies or (options.policy, options.policy), strict=True)
        one, two = (_run(options.a, world, policy, options.sets) for world, policy in pairs)
    else:
        one, two = (_side(path, options.policy, options.sets) for path in (options.a, options.b))
    return _tell(one, two, outside=one.real or two.real or bool(policies))


def _two(text: str | None, option: str, known: Sequence[str]) -> tuple[str, str] | None:
    if text is None:
        return None
    first, comma, second = text.partition(",")
    if not comma or first not in known or second not in known:
        raise UsageError(f"{option} {text}: expected two of {', '.join(known)}, such as {known[0]},{known[-1]}")
    return first, second


def _side(path: Path, policy: str | None, sets: Sequence[str]) -> Side:
    """What a file is, by its name and its beginning."""
    if path.suffix == ".json":
        real = recording.read(path)
        title = f"{real.name} (recorded)"
        return Side(title, real.size, lambda: recording.lines(real), True, real.has_debug, real.jobs)
    if path.suffix == ".toml":
        return _run(path, "sim", policy, sets)
    head, lazily = trace.read(path)
    lines = list(lazily)
    return Side(str(path), len(head.topology.parents), lambda: lines)


def _run(path: Path, world: str, policy: str | None, sets: Sequence[str]) -> Side:
    scenario = scenario_format.load(path)
    size = len(runner.prepare(scenario, policy, sets).topology.parents)
    title = f"{scenario.name} ({world}, {policy or scenario.file.policy})"

    def lines() -> list[Line]:
        found: list[Line] = []
        result = runner.run(scenario, world, policy=policy, sets=sets, sink=found.append)
        broken = [failure.text for failure in result.failures if failure.name == "world"]
        if result.status == "skipped" or broken:
            raise UsageError(f"{title}: {'; '.join(broken) or result.reason}")
        return found

    return Side(title, size, lines, real=world == "flux", lives=len(scenario.file.run) > 1)


def _tell(one: Side, two: Side, *, outside: bool) -> int:
    stories = _stories(one, two) if outside else (compare.story(one.lines()), compare.story(two.lines()))
    found = compare.differ(*stories)
    if found is None:
        print(f"equal: {compare.count(stories[0])} things that {one.title} and {two.title} both tell")
        return 0
    print(f"rank {found.rank}, {found.component}:")
    titles = one.title, two.title
    print(side_by_side(found, titles, colour=sys.stdout.isatty()), end="")
    return EXIT_FOUND


def _stories(one: Side, two: Side) -> tuple[Stories, Stories]:
    """What can be seen of both from outside."""
    debug = one.has_debug and two.has_debug
    jobs = one.jobs if two.jobs is None else two.jobs if one.jobs is None else one.jobs & two.jobs
    recorded = jobs is not None

    def told(side: Side) -> list[Line]:
        return _last_life(side.lines()) if recorded and side.lives else side.lines()

    first, second = (observed(told(side), side.size, debug=debug, jobs=jobs) for side in (one, two))
    if not (one.real or two.real) and len({_notifies(first), _notifies(second)}) > 1:
        first, second = ({key: said for key, said in each.items() if key[1] != "notify"} for each in (first, second))
    return first, second


def _last_life(lines: list[Line]) -> list[Line]:
    """What a recording tells of several lives: the last one, and what the eventlogs have of those before."""
    begun = {line.rank: at for at, line in enumerate(lines) if _begins(line)}
    return [line for at, line in enumerate(lines) if at >= begun.get(line.rank, 0) or isinstance(line.what, JobEvent)]


def _begins(line: Line) -> bool:
    return isinstance(line.what, Moved) and line.what.old == State.LOAD_BUILTINS


def _notifies(stories: Stories) -> bool:
    return any(component == "notify" for _rank, component in stories)
