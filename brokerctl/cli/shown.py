"""Text of others, fit for a person's terminal, which would take commands from it."""

from __future__ import annotations


def shown(text: str) -> str:
    r"""The text with all but printable characters and tabs escaped: `\x1b`."""
    return "".join(
        char if char.isprintable() or char == "\t" else char.encode("unicode_escape").decode() for char in text
    )
