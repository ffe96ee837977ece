"""What the verbs' command lines share: errors in one line, and the rundir."""

from __future__ import annotations

import argparse
from typing import NoReturn

from brokerctl.errors import UsageError


class Parser(argparse.ArgumentParser):
    """An argument parser that tells a mistake as UsageError: one line, like every other."""

    def __init__(self, verb: str, about: str, epilog: str = "", usage: str | None = None) -> None:
        super().__init__(
            prog=f"brokerctl {verb}",
            description=about,
            epilog=epilog or None,
            usage=usage,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    def error(self, message: str) -> NoReturn:
        """Refuse the command line."""
        raise UsageError(f"{message} (--help tells more)")

    def add_rundir(self) -> None:
        """The option that says which broker is meant."""
        self.add_argument(
            "--rundir",
            metavar="DIR",
            help="the broker's rundir; default: $BROKERCTL_RUNDIR, else $RUNTIME_DIRECTORY, "
            "else $XDG_RUNTIME_DIR/brokerctl, else /run/brokerctl for root",
        )


def split(argv: list[str]) -> tuple[list[str], list[str] | None]:
    """The words before the first `--`, and those after it, a command; None without `--`."""
    if "--" not in argv:
        return argv, None
    at = argv.index("--")
    return argv[:at], argv[at + 1 :]
