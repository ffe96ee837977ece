"""`brokerctl replay TRACE`: feed a trace's inputs to a fresh model, and compare its outputs with the recorded ones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from brokerctl import trace
from brokerctl.check import replay
from brokerctl.cli.options import Parser
from brokerctl.errors import EXIT_FOUND

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from brokerctl.records import Line

EPILOG = """\
exit status: 0 equal; 1 the model differs, the first difference is printed; 2 the file can't be read.
Lines are counted as an editor does: the header is line 1."""


def main(argv: Sequence[str]) -> int:
    """Print `equal: N lines`, or the first difference."""
    parser = Parser("replay", "Feed a trace's inputs to a fresh model and compare its outputs.", EPILOG)
    parser.add_argument("trace", metavar="TRACE", type=Path, help="a file that --trace has written")
    path: Path = parser.parse_args(argv).trace
    head, lines = trace.read(path)
    replay.check_header(head, str(path))
    counted = _Counted(lines)
    difference = replay.first_difference(head, counted)
    if difference is None:
        print(f"equal: {counted.count} lines")
        return 0
    print(f"{path}:{difference.index + 2}: differs")
    print(f"  expected  {difference.expected}")
    print(f"  got       {difference.got}")
    return EXIT_FOUND


class _Counted:
    """The lines as they go by, and how many there were."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self._lines = lines
        self.count = 0

    def __iter__(self) -> Iterator[Line]:
        for line in self._lines:
            self.count += 1
            yield line
