"""Traces: what is written is read back, what is damaged is named by file and line, and what equality looks at."""

from __future__ import annotations

import io

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerctl import trace
from brokerctl.config import FLUX, HARDENED
from brokerctl.errors import TraceError
from brokerctl.records import (
    Answer,
    Arm,
    Asked,
    Booted,
    Cancel,
    CloseOutput,
    Command,
    Emptied,
    Ended,
    Exec,
    Exited,
    Fired,
    Hangup,
    Hello,
    Kill,
    KillFailed,
    Line,
    Log,
    Lost,
    Moved,
    Online,
    Output,
    OutputEnded,
    Received,
    Results,
    Send,
    Signal,
    Start,
    StateIs,
    Torpid,
)
from brokerctl.settings import Action, Settings
from brokerctl.trace import Topology, Writer, as_told, component, decode_header, decode_line, header, read

TOPOLOGY = Topology((-1, 0), ("picl0", "picl1"))
WHATS = [
    Booted(),
    Signal(15),
    Asked("cleanup-push", 7, ("echo a", "b")),
    Exited("cleanup.0", 129 << 8),
    Output("rc1.0", "err", 'ƒ39firM4HrF "quoted"\ttab'),
    Received(1, StateIs("run")),
    Start("rc1.0", Command("flux modprobe rc1", ("flux", "modprobe", "rc1"))),
    Kill("rc1.0", 1, "group"),
    Arm("cleanup-timeout", 45_000_000_000, reminder=True),
    Send(0, Hello()),
    Answer(3, {"state": "run", "held_ns": 5, "running": [{"run": "rc2.0"}]}),
    Moved("shutdown", "run", "cleanup", 17),
    Log("broker", 6, "signal 15"),
]


def written(lines, settings=FLUX, **fields):
    file = io.BytesIO()
    write = Writer(file, header(settings, TOPOLOGY, **fields))
    for line in lines:
        write(line)
    return file.getvalue()


def refusal(function, *arguments):
    """The message of the TraceError, which is let go at once, and with it the file that was read."""
    try:
        function(*arguments)
    except TraceError as error:
        return str(error)
    raise AssertionError("accepted")


def lines_of(whats):
    return [Line(n * 1000, 0, n, ">" if hasattr(what, "held_ns") else "<", what) for n, what in enumerate(whats)]


def test_a_trace_is_read_back_as_it_was_written(tmp_path):
    path = tmp_path / "trace"
    path.write_bytes(written(lines_of(WHATS), HARDENED, rank=1, host="picl1", boot_id="b", realtime_offset_ns=5))
    head, lines = read(path)
    assert (head.rank, head.host, head.boot_id, head.realtime_offset_ns) == (1, "picl1", "b", 5)
    assert head.settings == HARDENED
    assert head.topology == TOPOLOGY
    assert list(lines) == lines_of(WHATS)


def test_a_trace_is_one_json_object_a_line_that_other_programs_read():
    for data in written(lines_of(WHATS)).splitlines():
        assert isinstance(msgspec.json.decode(data), dict)


def test_the_header_names_its_format_and_version():
    first = msgspec.json.decode(written([]).splitlines()[0])
    assert first["format"] == "brokerctl-trace"
    assert first["version"] == trace.VERSION


def test_the_settings_hash_tells_settings_apart():
    changed = msgspec.structs.replace(FLUX, rc1=(Action(Command("true", ("true",))),))
    assert header(FLUX, TOPOLOGY).settings_hash == header(FLUX, TOPOLOGY).settings_hash
    assert header(FLUX, TOPOLOGY).settings_hash != header(changed, TOPOLOGY).settings_hash


@pytest.mark.parametrize("data", [b"", b"\n", b"{}", b'{"format":"x"}', b"\xff\xfe", b"[1]", b"hello"])
def test_a_file_that_begins_without_a_header_is_refused(tmp_path, data):
    path = tmp_path / "trace"
    path.write_bytes(data)
    message = refusal(read, path)
    assert message.startswith(f"{path}:1: no trace header")
    assert "\n" not in message


def test_a_trace_of_another_version_is_refused():
    data = written([]).replace(b'"version":1', b'"version":99')
    assert refusal(decode_header, data.splitlines()[0], "t") == "t:1: trace version 99; expected 1"


def test_a_missing_file_is_one_line(tmp_path):
    path = tmp_path / "nowhere"
    assert refusal(read, path) == f"{path}: cannot read: No such file or directory"


@pytest.mark.parametrize(
    "damage", [b"{", b"", b'{"t_ns":1}', b"\xff", b"[" * 2000, b'{"t_ns":"1","rank":0,"n":0,"dir":"<","what":{}}']
)
def test_a_damaged_line_is_named_by_its_number_when_it_is_reached(tmp_path, damage):
    path = tmp_path / "trace"
    data = written(lines_of(WHATS[:2])).splitlines()
    path.write_bytes(b"\n".join([*data, damage, *data[1:]]) + b"\n")
    _, lines = read(path)
    assert next(lines).what == WHATS[0]
    assert next(lines).what == WHATS[1]
    assert refusal(next, lines).startswith(f"{path}:4: no trace line")


def test_a_line_without_end_is_not_read_into_memory(tmp_path):
    path = tmp_path / "trace"
    path.write_bytes(written([]) + b"x" * (trace.LINE_SIZE_MAX + 10))
    _, lines = read(path)
    assert refusal(next, lines) == f"{path}:2: longer than {trace.LINE_SIZE_MAX >> 20} MiB"


@given(st.binary(max_size=200))
def test_any_bytes_are_a_line_or_a_trace_error(data):
    assert "\n" not in refusal(decode_header, data, "t")
    assert "\n" not in refusal(decode_line, data, "t", 2)


@given(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 2**31),
    st.sampled_from(WHATS),
    st.text(st.characters(codec="utf-8")),
)
def test_any_line_is_read_back(t_ns, rank, what, text):
    for one in (what, Log("broker", 6, text), Output("rc1.0", "out", text)):
        line = Line(t_ns, rank, 0, "<", one)
        assert decode_line(msgspec.json.encode(line), "t", 2) == line


# ---- equality --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "name"),
    [
        (Exited("cleanup.0", 0), "process cleanup.0"),
        (Emptied("cleanup.0"), "process cleanup.0"),
        (Output("rc1.0", "out", "x"), "output rc1.0"),
        (OutputEnded("rc1.0"), "output rc1.0"),
        (Fired("cleanup-timeout"), "timer cleanup-timeout"),
        (Signal(15), "input"),
        (Booted(), "input"),
        (Moved("a", "b", "c", 1), "model"),
        (Start("rc1.0", Command("x")), "model"),
    ],
)
def test_lines_that_race_are_of_different_components(what, name):
    assert component(what) == name


@pytest.mark.parametrize(
    "what", [Arm("t", 1), Cancel("t"), Kill("r", 1, "all"), KillFailed("r", 1, 3), CloseOutput("r")]
)
def test_means_are_not_told(what):
    assert as_told(what) is None


def test_times_and_what_a_world_runs_instead_are_not_told():
    assert as_told(Ended("r", "c", 1, "Exited", 5)) == as_told(Ended("r", "c", 1, "Exited", 6))
    assert as_told(Start("r", Command("c", ("sh", "-c", "c")))) == as_told(Start("r", Command("c", puppet="p")))
    assert as_told(OutputEnded("r", 0, "sleep (pid 5)")) == as_told(OutputEnded("r", 0, "a child of p"))


def test_outcomes_are_told():
    assert as_told(Ended("r", "c", 1, "Exited", 5)) != as_told(Ended("r", "c", 0, "Exited", 5))
    assert as_told(Exited("r", 0)) != as_told(Exited("r", 256))
    assert as_told(Log("broker", 6, "a")) != as_told(Log("broker", 6, "b"))


# ---- several ranks


def _of(rank, *times, parents=(-1, 0), boot_id="b"):
    head = trace.header(Settings(), trace.Topology(parents, ("a", "b")), rank=rank, host="ab"[rank], boot_id=boot_id)
    return head, iter([Line(t_ns, rank, n, "<", Fired("x")) for n, t_ns in enumerate(times)])


def test_traces_of_several_ranks_merge_by_time_and_ties_by_rank_and_number():
    head, lines = trace.merge([_of(1, 5, 7, 7), _of(0, 5, 6, 7)])
    assert [(line.t_ns, line.rank, line.n) for line in lines] == [
        (5, 0, 0), (5, 1, 0), (6, 0, 1), (7, 0, 2), (7, 1, 1), (7, 1, 2),
    ]  # fmt: skip
    assert (head.rank, head.host) == (-1, "a")


@pytest.mark.parametrize("other", [{"boot_id": "c"}, {"parents": (-1, -1)}])
def test_traces_whose_times_mean_nothing_to_each_other_do_not_merge(other):
    with pytest.raises(TraceError, match="the traces of ranks 0 and 1 are not of one instance and boot"):
        trace.merge([_of(0, 1), _of(1, 1, **other)])


def test_nothing_does_not_merge():
    with pytest.raises(TraceError, match="no trace"):
        trace.merge([])


def test_half_a_line_at_the_end_is_left_out_where_the_writer_was_killed(tmp_path):
    path = tmp_path / "trace"
    head, lines = _of(0, 1, 2)
    with path.open("wb") as file:
        writer = trace.Writer(file, head)
        for line in lines:
            writer(line)
        file.write(b'{"t_ns":3,"ra')
    assert [line.t_ns for line in trace.read(path, torn=True)[1]] == [1, 2]
    with pytest.raises(TraceError, match="trace:4: no trace line"):
        list(trace.read(path)[1])


# ---- what several ranks tell alike


@pytest.mark.parametrize(
    "what",
    [
        Send(1, StateIs("join")), Received(0, StateIs("init")), Send(0, Online((1,))),
        Received(1, Results("cleanup.0", ((0, "Exited", (1,)),))), Fired("online"), Fired("rexec cleanup.0"),
        Log("broker", 6, "online: a (ranks 0)"),
    ],
)  # fmt: skip
def test_what_depends_on_who_came_first_tells_nothing(what):
    assert trace.as_told(what) is None


def test_messages_to_each_neighbour_have_an_order_of_their_own():
    assert trace.component(Send(1, StateIs("run"))) == trace.component(Hangup(1)) == "to 1"
    assert trace.component(Torpid(2, 5)) == trace.component(Lost(2, "gone")) == "link 2"
    assert trace.as_told(Send(1, StateIs("run"))) == Send(1, StateIs("run"))
    assert trace.as_told(Torpid(2, 5)) == trace.as_told(Torpid(2, 6))
    one, two = (Send(1, Exec("cleanup.0", Command("text", words), ())) for words in (("a",), ("b",)))
    assert trace.as_told(one) == trace.as_told(two)
