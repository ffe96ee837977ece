"""`brokerctl replay`: equal, different, damaged: 0, 1, 2."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from brokerctl import cli
from brokerctl.config import FLUX
from brokerctl.records import Command, Exited, Line
from brokerctl.settings import Action
from brokerctl.trace import Topology, Writer, header
from brokerctl.worlds.contract import Resolved
from brokerctl.worlds.puppets import PuppetSpec, Span
from brokerctl.worlds.sim.world import SimWorld


@pytest.fixture
def lines():
    """A broker whose rc1 fails, so that it ends by itself."""
    found: list[Line] = []
    SimWorld().run(RESOLVED, found.append, 10**12)
    return found


PUPPET = PuppetSpec(name="p", command="false", runs={-1: Span(5, 5)}, statuses={-1: 3 << 8})
RESOLVED = Resolved(
    name="t",
    settings=msgspec.structs.replace(FLUX, rc1=(Action(Command("false", puppet="p")),)),
    topology=Topology(),
    puppets={"p": PUPPET},
)


def write(path, lines, head=None):
    with path.open("wb") as file:
        writer = Writer(file, head or header(RESOLVED.settings, RESOLVED.topology))
        for line in lines:
            writer(line)
    return str(path)


def test_an_equal_trace_is_counted(tmp_path, lines, capsys):
    assert cli.main(["replay", write(tmp_path / "t", lines)]) == 0
    assert capsys.readouterr().out == f"equal: {len(lines)} lines\n"


def test_the_first_difference_is_printed_with_its_line_number(tmp_path, lines, capsys):
    index = next(index for index, line in enumerate(lines) if isinstance(line.what, Exited))
    lines[index] = msgspec.structs.replace(lines[index], what=Exited("rc1.0", 0))
    path = write(tmp_path / "t", lines)
    assert cli.main(["replay", path]) == 1
    out = capsys.readouterr().out.splitlines()
    number = int(out[0].removeprefix(f"{path}:").removesuffix(": differs"))
    # Counted as an editor does: the line of the file has what is said to be expected.
    recorded = msgspec.json.decode(Path(path).read_text().splitlines()[number - 1], type=Line)
    assert repr(recorded.what) in out[1]
    assert out[1].startswith("  expected  > ")
    assert out[2].startswith("  got       > ")


def damage_last(data):
    return data[:-10]


def damage_settings(data):
    assert b"100000000" in data
    return data.replace(b"100000000", b"200000000", 1)


@pytest.mark.parametrize(("damage", "number"), [(damage_last, None), (damage_settings, 1)])
def test_a_damaged_file_is_one_line_and_2(tmp_path, lines, capsys, damage, number):
    path = tmp_path / "t"
    write(path, lines)
    data = damage(path.read_bytes())
    path.write_bytes(data)
    number = number or len(data.splitlines())
    assert cli.main(["replay", str(path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"brokerctl replay: {path}:{number}: ")
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize("words", [["/nowhere/at/all"], [], ["a", "b"], ["/"]])
def test_a_file_that_is_not_there_or_a_wrong_command_line_is_one_line_and_2(words, capsys):
    assert cli.main(["replay", *words]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("brokerctl replay: ")
    assert captured.err.count("\n") == 1
