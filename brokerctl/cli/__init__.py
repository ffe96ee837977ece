"""The command line: one file a verb, imported only when it is called; errors and exit codes are decided here."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Mapping

from brokerctl.errors import EXIT_BUG, EXIT_FOUND, EXIT_USAGE, BrokerctlError

# verb → what it is for; the module is brokerctl.cli.VERB, with `main(argv) -> int`.
VERBS: Mapping[str, str] = {
    "run": "supervise a lifecycle here, in the foreground",
    "start": "run a whole tree of brokers on this machine, as flux start --test-size does",
    "status": "what a running broker does, and what it waits for",
    "shutdown": "ask a running broker to stop, follow it, return its exit code",
    "stop": "stop a service under systemd, as its ExecStop: bounded, nothing lost, and say what held it up",
    "cleanup-push": "add a cleanup action to a running broker, before the others",
    "perilog": "run a prolog, epilog or housekeeping in a unit of its own",
    "simulate": "run one scenario in virtual time and tell the story",
    "test": "run scenarios, in one or several worlds, and report",
    "compare": "where two traces, recordings or runs of a scenario part, side by side",
    "replay": "feed a trace's inputs to a fresh model and compare",
    "heartbeat": "ask heartbeat files how their workers are; run a command that brings no heartbeat",
    "lint": "judge unit files: limits that contradict each other, and traps that lose data",
    "units": "show or install the systemd unit files that come with it",
    "check": "what a running Flux carries from an earlier life, and how to repair it",
    "states": "the lifecycle's states and transitions, as text or a diagram",
}

# These have signals to answer for from their first moment: what comes before they can is kept, not died of. (The same
# signals as in `worlds.live.launch`, whose import would take too long for that.)
SUPERVISORS = frozenset({"run", "start", "stop"})
HELD = frozenset(
    {signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGALRM, signal.SIGUSR1, signal.SIGUSR2}
)


def main(argv: list[str] | None = None) -> int:
    """Run a verb; returns the exit code. All that a user did wrong ends as one line and 2."""
    words = sys.argv[1:] if argv is None else list(argv)
    debug = "--debug" in words[:1]
    if debug:
        words = words[1:]
    if not words or words[0] in {"-h", "--help", "help"}:
        print(_usage())
        return 0 if words else EXIT_USAGE
    if words[0] in {"-V", "--version"}:
        from importlib.metadata import version

        print(f"brokerctl {version('brokerctl')}")
        return 0
    if words[0] not in VERBS:
        print(f"brokerctl: unknown command {words[0]!r}; expected one of {', '.join(VERBS)}", file=sys.stderr)
        return EXIT_USAGE
    if debug:
        return _call(words[0], words[1:])
    return _guarded(words[0], words[1:])


def _call(verb: str, words: list[str]) -> int:
    before = {}
    if verb in SUPERVISORS:
        signal.pthread_sigmask(signal.SIG_BLOCK, HELD)
    else:
        # What a verb has started is stopped and reaped on the way out, also when it is told to end.
        before = {signum: signal.signal(signum, _told_to_end) for signum in (signal.SIGHUP, signal.SIGTERM)}
    try:
        code: int = importlib.import_module(f"brokerctl.cli.{verb.replace('-', '_')}").main(words)
        sys.stdout.flush()
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
    return code


def _told_to_end(signum: int, _frame: object) -> None:
    raise SystemExit(128 + signum)


def _guarded(verb: str, words: list[str]) -> int:
    """Call a verb; what goes wrong becomes one line and a code."""
    try:
        return _call(verb, words)
    except BrokerctlError as error:
        print(f"brokerctl {verb}: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        # Whoever read our output has gone (`| head`); the interpreter must not complain about it again at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FOUND
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except Exception as error:  # noqa: BLE001 - a traceback at a user is a bug of its own
        print(
            f"brokerctl {verb}: this is a bug: {type(error).__name__}: {error} (see brokerctl --debug {verb} …)",
            file=sys.stderr,
        )
        return EXIT_BUG


def _usage() -> str:
    width = max(map(len, VERBS))
    verbs = "\n".join(f"  {verb:<{width}}  {about}" for verb, about in VERBS.items())
    return f"usage: brokerctl [--debug] COMMAND …\n\n{verbs}\n\nbrokerctl COMMAND --help tells more about each."
