"""`brokerctl states`: the lifecycle's table as text, or as a diagram for Mermaid or Graphviz.

All three are drawn from `lifecycle.TRANSITIONS`, and so is the diagram in the documentation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from brokerctl.cli.options import Parser
from brokerctl.model.lifecycle import TRANSITIONS, Event, State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

Arrow = tuple[State, tuple[Event, ...], State]


def main(argv: Sequence[str]) -> int:
    """Print the lifecycle; 0."""
    parser = Parser("states", "Print the states of a broker, and which event leads from which to which.")
    parser.add_argument("--format", choices=tuple(FORMATS), default="text", help="default: %(default)s")
    options = parser.parse_args(argv)
    print(render(options.format), end="")
    return 0


def render(form: str) -> str:
    """The lifecycle in one of `FORMATS`; ends with a newline."""
    return FORMATS[form]()


def arrows() -> Iterator[Arrow]:
    """The rows of the table; events that lead from one state to the same other one are one arrow."""
    for state, row in TRANSITIONS.items():
        grouped: dict[State, list[Event]] = {}
        for event, new in row.items():
            grouped.setdefault(new, []).append(event)
        for new, events in grouped.items():
            yield state, tuple(events), new


def _text() -> str:
    lines = []
    for state in State:
        lines.append(str(state))
        found = [(", ".join(events), new) for old, events, new in arrows() if old is state]
        width = max((len(events) for events, _ in found), default=0)
        lines += [f"    {events:<{width}}  -> {new}" for events, new in found]
        if not found:
            lines.append("    (final)")
    return "\n".join(lines) + "\n"


def _mermaid() -> str:
    # An identifier can't hold a dash in every version of Mermaid; the name that is shown can.
    def name(state: State) -> str:
        return state.replace("-", "_")

    lines = ["stateDiagram-v2"]
    lines += [f'    state "{state}" as {name(state)}' for state in State if name(state) != state]
    lines.append(f"    [*] --> {name(State.LOAD_BUILTINS)}")
    lines += [f"    {name(old)} --> {name(new)}: {', '.join(events)}" for old, events, new in arrows()]
    lines.append(f"    {name(State.EXIT)} --> [*]")
    return "\n".join(lines) + "\n"


def _dot() -> str:
    lines = ["digraph lifecycle {", "    node [shape=box, style=rounded];"]
    lines += [f'    "{state}";' for state in State]
    # \n of DOT: one event a line
    for old, events, new in arrows():
        label = "\\n".join(events)
        lines.append(f'    "{old}" -> "{new}" [label="{label}"];')
    lines.append("}")
    return "\n".join(lines) + "\n"


FORMATS: Mapping[str, Callable[[], str]] = {"text": _text, "mermaid": _mermaid, "dot": _dot}
