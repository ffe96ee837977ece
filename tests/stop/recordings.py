"""What was recorded of a real Flux (recorded/README.md), and errands driven by answers instead of commands."""

import json
from pathlib import Path

from brokerctl.stop import journal, verdict
from brokerctl.stop.errands import Said

FOLDER = Path(__file__).parent / "recorded"


def text(name):
    """What a command printed."""
    return (FOLDER / f"{name}.txt").read_text()


def life(name):
    """A life: how it ended for systemd, and its journal."""
    found = json.loads((FOLDER / f"{name}.json").read_text())
    return verdict.ending(found["environment"]), journal.read("\n".join(map(json.dumps, found["journal"])))


def drive(errand, answer):
    """Carry an errand out, each command answered by `answer(words)`: a text, or what to raise as its failure."""
    asked = []
    said = None
    try:
        while True:
            commands = next(errand) if said is None else errand.send(said)
            said = []
            for command in commands:
                asked.append(command)
                told = answer(list(command.argv))
                said.append(Said("", str(told)) if isinstance(told, Exception) else Said(told))
    except StopIteration as end:
        return end.value, asked
