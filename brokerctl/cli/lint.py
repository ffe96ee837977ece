"""`brokerctl lint`: what in a unit makes its stop lose data, and which limits contradict each other."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import msgspec

from brokerctl.cli.options import Parser
from brokerctl.errors import EXIT_FOUND, EXIT_USAGE, ConfigError, UsageError
from brokerctl.lint import chain, engine, fluxconfig, output, targets
from brokerctl.lint.fluxconfig import FluxConfig
from brokerctl.lint.rule import rules
from brokerctl.lint.subject import Subject
from brokerctl.stop import settings as stop_settings
from brokerctl.unit import UnitError
from brokerctl.unit.broker import option

EPILOG = """\
UNIT is a file, a directory of units, or a name that systemctl knows; drop-ins count. A comment in a unit takes a rule
out of it: # brokerctl: ignore=RULE why it is right here

exit code: 0, 1 there are errors (with --strict: or warnings), 2 a unit can't be read."""


def main(argv: list[str]) -> int:
    """Returns 1 where a unit has an error."""
    options = _parser().parse_args(argv)
    if options.list:
        print(output.listed(rules().values()), end="")
        return 0
    if options.explain is not None:
        return _explain(options.explain)
    if not options.units:
        raise UsageError("no UNIT; expected files, directories or names of units (--help tells more)")
    refused: list[UnitError] = []
    found = [Subject(unit) for unit in targets.units(options.units, refused)]
    flux = fluxconfig.load(options.flux_config) if options.flux_config else _own_config(found)
    for unit in found:
        unit.flux = flux
        _read_stop_settings(unit)
    code = _chain(found, options) if options.chain else _judge(found, options)
    for error in refused:
        print(f"brokerctl lint: {error}", file=sys.stderr)
    return EXIT_USAGE if refused else code


def _parser() -> Parser:
    parser = Parser("lint", "Judge units: what makes their stop lose data.", EPILOG)
    parser.add_argument("units", metavar="UNIT", nargs="*", help="a unit file, a directory, or a unit's name")
    parser.add_argument(
        "--chain",
        action="store_true",
        help="show each limit of the stop against the one around it; exit with 1 where that one acts first",
    )
    parser.add_argument("--strict", action="store_true", help="exit with 1 for warnings too")
    parser.add_argument("--format", choices=["text", "json"], default="text", help="default: %(default)s")
    parser.add_argument(
        "--flux-config", type=_path, metavar="PATH", help="Flux's TOML, a file or a directory: the limits of perilog"
    )
    parser.add_argument("--explain", metavar="RULE", help="tell all about one rule")
    parser.add_argument("--list", action="store_true", help="list the rules")
    return parser


def _path(text: str) -> Path:
    path = Path(text)
    try:
        path.stat()
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text}: cannot read: {error.strerror}") from None
    return path


def _own_config(units: list[Subject]) -> FluxConfig | None:
    """The configuration that a unit of Flux itself names, where this machine has it."""
    for unit in units:
        if unit.broker is not None and unit.broker.kind == "flux" and unit.broker.config_path:
            path = Path(unit.broker.config_path)
            try:
                return fluxconfig.load(path) if path.exists() else None
            except (ConfigError, OSError) as error:
                print(f"brokerctl lint: note: Flux's configuration is not looked at: {error}", file=sys.stderr)
    return None


def _read_stop_settings(unit: Subject) -> None:
    """What `brokerctl stop` in that unit is told on this machine, if it is told anything."""
    wrapper = unit.wrapper()
    if wrapper is None:
        return
    path = Path(option(wrapper.argv, "--config") or stop_settings.DEFAULT)
    try:
        if path.exists():
            unit.stop = stop_settings.load(str(path)).settings
    except (ConfigError, OSError) as error:
        print(f"brokerctl lint: note: what {unit.name} tells brokerctl stop is not looked at: {error}", file=sys.stderr)


def _explain(name: str) -> int:
    if name not in rules():
        raise UsageError(f"--explain {name}: there is no such rule; brokerctl lint --list shows all")
    print(output.explained(rules()[name]), end="")
    return 0


def _judge(units: list[Subject], options: argparse.Namespace) -> int:
    findings = [finding for unit in units for finding in engine.judge(unit)]
    if options.format == "json":
        sys.stdout.write(output.json(findings).decode() + "\n")
    else:
        print(output.text(findings, colour=sys.stdout.isatty()), end="")
        print(output.summary(findings, len(units)))
    return EXIT_FOUND if engine.worst(findings, strict=options.strict) else 0


def _chain(units: list[Subject], options: argparse.Namespace) -> int:
    tables = [(unit.name, chain.rows(unit)) for unit in units]
    if options.format == "json":
        shown = [output.chain_json(name, rows) for name, rows in tables]
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(shown)).decode() + "\n")
    else:
        print("\n".join(f"{name}\n{output.chain(rows)}" for name, rows in tables), end="")
    cut = any(row.verdict == "cut" and not row.harmless for _, rows in tables for row in rows)
    return EXIT_FOUND if cut else 0
