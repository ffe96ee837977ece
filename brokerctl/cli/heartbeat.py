"""`brokerctl heartbeat`: ask heartbeat files how their workers are; run a command that brings no heartbeat."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping

from brokerctl import durations
from brokerctl.cli.options import Parser, split
from brokerctl.cli.shown import shown
from brokerctl.durations import as_short
from brokerctl.errors import EXIT_FOUND, EXIT_USAGE, UsageError

ABOUT = "Watch workers that prove that they live (brokerctl.heartbeat)."
USAGE = "brokerctl heartbeat check FILE | list DIR | exec -- COMMAND [ARGUMENT …]   (each with --help)"


def main(argv: list[str]) -> int:
    """Run a part of the verb."""
    if argv and argv[0] in _PARTS:
        return _PARTS[argv[0]](argv[1:])
    if argv[:1] in (["-h"], ["--help"]):
        print(f"usage: {USAGE}\n\n{ABOUT}")
        return 0
    what = f"unknown {argv[0]!r}" if argv else "nothing"
    raise UsageError(f"{what}; expected one of {', '.join(_PARTS)}")


def _check(argv: list[str]) -> int:
    parser = Parser(
        "heartbeat check",
        "Whether a worker lives: an exec probe for Kubernetes.",
        "exit code: 0 it lives (with --ready: and is ready); 1 it doesn't, or nothing can be known of it; 2 usage.\n"
        "The line on stdout says why. A worker that starts, or is stopping, lives, but is not ready.",
    )
    parser.add_argument("file", metavar="FILE", help="the heartbeat file")
    parser.add_argument(
        "--max-age", metavar="D", help="how old its last beat may be, in place of the worker's own limit"
    )
    parser.add_argument("--ready", action="store_true", help="it must be ready, too")
    options = parser.parse_args(argv)
    max_age_ns = None if options.max_age is None else _duration("--max-age", options.max_age)

    from brokerctl.monitors import beatfile

    reading = beatfile.read(options.file, max_age_ns=max_age_ns)
    lives = reading.verdict in {"alive", "stopping"}
    fine = reading.ready if options.ready else lives
    print(f"{reading.verdict}{', but not ready' if lives and not fine else ''}: {reading.text}")
    return 0 if fine else EXIT_FOUND


def _list(argv: list[str]) -> int:
    parser = Parser("heartbeat list", "How the workers are whose heartbeat files are in a directory.")
    parser.add_argument("folder", metavar="DIR", help="the directory")
    parser.add_argument("--json", action="store_true", help="everything, as JSON; times in nanoseconds")
    options = parser.parse_args(argv)

    from brokerctl.monitors import beatfile

    try:
        readings = [beatfile.read(path) for path in beatfile.files(options.folder)]
    except OSError as error:
        raise UsageError(f"{options.folder}: cannot read: {error.strerror}") from None
    if options.json:
        import json

        print(json.dumps([_as_json(reading) for reading in readings], indent=2))
        return 0
    rows = [("WORKER", "VERDICT", "STATE", "PID", "BEAT", "")]
    for reading in readings:
        name, beat = os.path.basename(reading.path), reading.beat  # noqa: PTH119 - a name
        known = ("", "", "") if beat is None else (beat.state, str(beat.pid), f"{as_short(reading.age_ns)} ago")
        rows.append((shown(name), reading.verdict, *known, reading.text))
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    for row in rows:
        print("  ".join((*(word.ljust(width) for word, width in zip(row, widths, strict=False)), row[5])).rstrip())
    return 0


def _as_json(reading: object) -> Mapping[str, object]:
    from brokerctl.monitors.beatfile import Reading

    assert isinstance(reading, Reading)
    beat = reading.beat
    return {
        "file": reading.path,
        "verdict": reading.verdict,
        "ready": reading.ready,
        "text": reading.text,
        "age_ns": reading.age_ns,
        **({} if beat is None else beat._asdict()),  # noqa: SLF001 - a named tuple's own
    }


def _exec(argv: list[str]) -> int:
    before, command = split(argv)
    parser = Parser(
        "heartbeat exec",
        "Run a command under a heartbeat, for images that bring none.\n\n"
        "It gets a NOTIFY_SOCKET; what it says there goes on to the manager (NOTIFY_SOCKET) and into the heartbeat\n"
        "file. Until it beats itself, beats are made up from its being there, neither dead nor stopped: they prove\n"
        "that it runs, not that it works. A loop that hangs is not found then.",
        "exit code: the command's, 128+N of signal N, 127 not found, 126 not executable; 2 usage.",
        "brokerctl heartbeat exec [--file F] [--interval D] -- COMMAND [ARGUMENT …]",
    )
    parser.add_argument("--file", metavar="F", help="the heartbeat file; default: $BROKERCTL_HEARTBEAT_FILE")
    parser.add_argument(
        "--interval", metavar="D", help="how often to look; default: a quarter of the watchdog's time, or 15s"
    )
    options = parser.parse_args(before)
    if not command:
        raise UsageError("no command; expected it after --")
    interval_ns = None if options.interval is None else _duration("--interval", options.interval)

    from brokerctl.monitors.proxy import Proxy

    try:
        proxy = Proxy(command, os.environ.copy(), options.file, interval_ns)
    except OSError as error:
        print(f"brokerctl heartbeat: {error.filename}: cannot write: {error.strerror}", file=sys.stderr)
        return EXIT_USAGE
    return proxy.run()


def _duration(option: str, text: str) -> int:
    try:
        value_ns = durations.parse(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None
    if not value_ns:
        raise UsageError(f"{option}: {text!r} is no time to wait; expected a finite duration of more than 0")
    return value_ns


_PARTS: Mapping[str, Callable[[list[str]], int]] = {"check": _check, "list": _list, "exec": _exec}
