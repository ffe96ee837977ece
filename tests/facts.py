"""What systemd does, fact by fact, and which scenarios and tests hold each (`docs/facts.md`).

A scenario names its facts with its key `fact`, a test with the marker `@pytest.mark.fact(NUMBER, …)`. The numbers are
those of SYSTEMD.md, observed with systemd 252. A fact that is held nowhere must be in `NOT_HELD`, with the reason.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.factnames import SECTIONS

ROOT = Path(__file__).parent.parent
FACTS = {number: text for section in SECTIONS.values() for number, text in section.items()}
NOT_HELD: dict[int, str] = {}  # none, so far


class Holder(NamedTuple):
    """A scenario, or a test, that fails where the fact is not so."""

    path: str
    name: str


class Holders(dict[int, list[Holder]]):
    """By fact."""

    def note(self, numbers: Iterable[int], path: Path, name: str) -> None:
        """It holds these."""
        for number in numbers:
            self.setdefault(number, []).append(Holder(str(path), name))


def numbers(key: str) -> Iterator[int]:
    """The facts of systemd in a scenario's key: `SYSTEMD.md 57, 82, P1, FLUX.md 100` has two."""
    source = ""
    for word in key.replace(",", " ").split():
        if word.endswith(".md"):
            source = word
        elif source == "SYSTEMD.md" and word.isdecimal():
            yield int(word)


def marked(source: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The tests of a file that have the marker, and its numbers; all those of one test together."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef):
            found = [
                number
                for mark in node.decorator_list
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.fact"
                for number in map(ast.literal_eval, mark.args)
            ]
            if found:
                yield node.name, tuple(found)


def holders(root: Path = ROOT) -> Holders:
    """What holds what, scenarios first."""
    found = Holders()
    for path in sorted((root / "scenarios").rglob("*.toml")):
        key = tomllib.loads(path.read_text(encoding="utf-8")).get("fact", "")
        found.note(numbers(key), path.relative_to(root), path.stem)
    for path in sorted((root / "tests").rglob("test_*.py")):
        for name, marks in marked(path.read_text(encoding="utf-8")):
            found.note(marks, path.relative_to(root), name)
    return found


def problems(found: Holders, reasons: dict[int, str]) -> list[str]:
    """What is wrong with the table, a line each; none is good."""
    nothing = [number for number in FACTS if number not in found and number not in reasons]
    wrong = [f"fact {number} is held by nothing, and has no reason" for number in nothing]
    wrong += [f"fact {number} is held, and has a reason why it is not" for number in found if number in reasons]
    wrong += [
        f"{holder.path}: {holder.name}: there is no fact {number}"
        for number, held_by in found.items()
        if number not in FACTS
        for holder in held_by
    ]
    return wrong


def table() -> str:
    """The table as Markdown: a section for each subject, a row for each fact."""
    found = holders()
    parts = [f"Held: {len(FACTS.keys() & found.keys())} of {len(FACTS)} facts."]
    for title, section in SECTIONS.items():
        rows = [row(number, text, found) for number, text in section.items()]
        parts.append("\n".join([f"### {title}", "", "| | what systemd does | held by |", "|---|---|---|", *rows]))
    return "\n\n".join(parts) + "\n"


def row(number: int, text: str, found: Holders) -> str:
    """One fact."""
    links = [f"[{shown(holder)}](../{holder.path})" for holder in found.get(number, ())]
    held_by = ", ".join(links) or f"nothing: {NOT_HELD.get(number, 'and nobody says why')}"
    return f"| {number} | {text} | {held_by} |"


def shown(holder: Holder) -> str:
    """A test's name is a sentence."""
    return holder.name.removeprefix("test_").replace("_", " ")
