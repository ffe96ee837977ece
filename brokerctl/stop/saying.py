"""What a stop says: one line for the journal, with its level, or for a person at a terminal."""

from __future__ import annotations

import os

from brokerctl.kernel import stdio


def say(level: int, text: str) -> None:
    """Write it; it never blocks."""
    head = "brokerctl stop: " if os.isatty(2) else f"<{level}>"
    stdio.write(2, f"{head}{text}\n".encode(errors="backslashreplace"))


def bug(error: Exception) -> str:
    """A bug of ours, in words."""
    return f"this is a bug: {type(error).__name__}: {error}"
