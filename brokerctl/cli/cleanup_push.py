"""`brokerctl cleanup-push`: give a running broker one more cleanup action, to be run before the others."""

from __future__ import annotations

import sys

from brokerctl.cli.options import Parser, split
from brokerctl.cli.shown import shown
from brokerctl.errors import EXIT_FOUND, UsageError
from brokerctl.worlds.live.client import ask
from brokerctl.worlds.live.rundir import choose

USAGE = "brokerctl cleanup-push [--rundir DIR] ('COMMAND' | -- PROGRAM [ARGUMENT …])"
EPILOG = """\
One word is a command for the shell; words after -- are a program and its arguments, run without one. The last pushed
runs first (as flux admin cleanup-push). A list that runs already is not changed: the push is refused.

exit code: 0; 1 if the broker refused; 2 if there is none.
"""


def main(argv: list[str]) -> int:
    """Run the verb."""
    before, words = split(argv)
    parser = Parser("cleanup-push", "Add a cleanup action to a running broker.", EPILOG, USAGE)
    parser.add_rundir()
    parser.add_argument("command", nargs="*", help="for the shell, as one word")
    options = parser.parse_args(before)
    if words is None:
        words = options.command
        if len(words) > 1:
            raise UsageError("more than one word; expected one for the shell, or -- and an argument list")
    elif options.command:
        raise UsageError(f"{options.command[0]!r} before --; expected either a command for the shell or a list")
    if not words or not words[0].strip():
        raise UsageError("no command; expected one word for the shell, or -- and an argument list")
    if len(words) == 1 and "--" in argv:
        from shlex import quote  # a list of one word is sent as one for the shell, which must take it as it is

        words = [quote(words[0])]
    answer = ask(choose(options.rundir), "cleanup-push", words)
    if "error" in answer:
        print(f"brokerctl cleanup-push: {shown(str(answer['error']))}", file=sys.stderr)
        return EXIT_FOUND
    return 0
