"""What is done about a run that failed: a line for Flux's log, and the commands of the settings."""

from __future__ import annotations

import os
import time

from brokerctl.kernel import stdio
from brokerctl.perilog import endings, processes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from brokerctl.perilog.endings import Ending
    from brokerctl.perilog.settings import Settings

# What the words of a command may hold.
PLACEHOLDERS = ("{host}", "{kind}", "{job}", "{unit}", "{code}", "{how}")
# For all commands together: they are the last that fits before Flux's kill-timeout (see `manager`).
LIMIT_NS = 10_000_000_000


def host() -> str:
    """The name of this node."""
    return os.uname().nodename


def tell(unit: str, text: str) -> None:
    """One line for whoever called: Flux logs it, with the job and the rank."""
    line = " ".join(text.split())
    stdio.write(2, f"{host()}: {unit}: {line}\n".encode(errors="backslashreplace"))


def react(settings: Settings, unit: str, ending: Ending) -> None:
    """Run the commands of `on-failure`, without anything of the job's environment, and say which of them failed."""
    deadline_ns = time.monotonic_ns() + LIMIT_NS
    job = unit.partition("@")[2].removesuffix(".service")
    values = (host(), settings.kind, job, unit, str(ending.code), ending.how)
    for command in settings.on_failure:
        argv = [_filled(word, values) for word in command]
        left_ns = deadline_ns - time.monotonic_ns()
        code, words = processes.run(argv, left_ns) if left_ns > 0 else (None, "")
        if code != 0:
            tell(unit, f"on-failure: {argv[0]}: {_how(code)}: {words}".removesuffix(": "))


def _how(code: int | None) -> str:
    if code is None:
        return "has not ended in time"
    if code < 0:
        return f"was killed by {endings.signal_name(-code)}"
    return f"exits with {code}"


def _filled(word: str, values: tuple[str, ...]) -> str:
    for placeholder, value in zip(PLACEHOLDERS, values, strict=True):
        word = word.replace(placeholder, value)
    return word
