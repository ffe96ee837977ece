"""`brokerctl shutdown`: ask a running broker to stop, and follow it to its end."""

from __future__ import annotations

import sys

from brokerctl.cli.options import Parser
from brokerctl.cli.shown import shown
from brokerctl.errors import EXIT_FOUND
from brokerctl.logs.fluxlog import ERR, INFO
from brokerctl.worlds.live.client import Connection
from brokerctl.worlds.live.rundir import choose

EPILOG = """\
The stop waits for its cleanup actions as long as they take: the cleanup timeout is for stops by a signal, and a signal
meanwhile starts it. Ctrl-C ends the following, not the stop.

exit code: the broker's own, 0-255; 1 if the broker refused, or ended without telling its code; 2 if there is none.
"""


def main(argv: list[str]) -> int:
    """Run the verb; the broker's exit code, where it says one."""
    parser = Parser("shutdown", "Ask a running broker to stop, follow its log, return its exit code.", EPILOG)
    parser.add_rundir()
    options = parser.parse_args(argv)
    rundir = choose(options.rundir)
    with Connection(rundir) as connection:
        connection.send("shutdown")
        answer = connection.answer()
        if "error" in answer:
            print(f"brokerctl shutdown: {shown(str(answer['error']))}", file=sys.stderr)
            return EXIT_FOUND
        return _follow(connection)


def _follow(connection: Connection) -> int:
    colour = sys.stderr is not None and sys.stderr.isatty()
    while (line := connection.follow()) is not None:
        code = line.get("exit")
        if isinstance(code, int) and 0 <= code <= 255:
            return code
        if "log" in line:
            text, level = shown(str(line["log"])), line.get("level", INFO)
            bad = colour and isinstance(level, int) and level <= ERR
            print(f"\x1b[31m{text}\x1b[0m" if bad else text, file=sys.stderr, flush=True)
        elif "error" in line:
            print(f"brokerctl shutdown: {shown(str(line['error']))}", file=sys.stderr)
    print("brokerctl shutdown: the connection ended before the broker said its exit code", file=sys.stderr)
    return EXIT_FOUND
