"""Replay: a trace's inputs give its outputs again, and any change to the trace is found where it is."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brokerctl.check.replay import Difference, check_header, first_difference
from brokerctl.config import FLUX, HARDENED, POLICIES
from brokerctl.durations import MS, S
from brokerctl.errors import TraceError
from brokerctl.model.puppet import Reaction
from brokerctl.records import Command, Ended, Exit, Exited, Line, Log, Moved, Signal
from brokerctl.settings import Action
from brokerctl.trace import Topology, header
from brokerctl.worlds.contract import Deliver, Resolved, Step
from brokerctl.worlds.puppets import FOREVER, PuppetSpec, Span
from brokerctl.worlds.sim.world import SimWorld

PUPPETS = {
    "quick": PuppetSpec(name="quick", command="quick", runs={-1: Span(20 * MS, 90 * MS)}, statuses={-1: 0}),
    "fails": PuppetSpec(name="fails", command="fails", runs={-1: Span(5 * MS, 5 * MS)}, statuses={-1: 7 << 8}),
    "stuck": PuppetSpec(
        name="stuck", command="stuck", runs={-1: FOREVER}, statuses={-1: 0}, on={1: Reaction(after_ns=3 * MS, code=4)}
    ),
    "absent": PuppetSpec(name="absent", command="absent", runs={-1: FOREVER}, statuses={-1: 0}, start_errno=2),
}


class At:
    """A trigger that is a time."""

    def __init__(self, ns):
        self._ns = ns

    def begin(self):
        return self._ns

    def see(self, _line):
        return None


def actions(*names):
    return tuple(Action(Command(PUPPETS[name].command, puppet=name)) for name in names)


def trace_of(policy="flux", signals=((900 * MS, 15),), size=1, seed=1, **lists):
    fields = {name: actions(*names) for name, names in lists.items()}
    base = POLICIES[policy]
    if policy == "flux":
        fields["cleanup_timeout_ns"] = 2 * S
    made = msgspec.structs.replace(base, **fields)
    topology = Topology((-1, *(0 for _ in range(1, size))), tuple(f"picl{rank}" for rank in range(size)))
    steps = tuple(Step(At(ns), Deliver(0, Signal(number)), f"{ns} ns") for ns, number in signals)
    lines: list[Line] = []
    resolved = Resolved(name="t", settings=made, topology=topology, puppets=PUPPETS, steps=steps, seed=seed)
    outcome = SimWorld().run(resolved, lines.append, 3600 * S)
    assert outcome.kind == "ended"
    return header(made, topology), lines


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("size", [1, 3])
def test_what_a_world_wrote_is_equal(policy, size):
    head, lines = trace_of(policy, size=size, rc1=["quick"], cleanup=["fails", "stuck", "quick"], rc3=["quick"])
    assert any(isinstance(line.what, Exit) for line in lines)
    assert first_difference(head, lines) is None


def test_a_trace_that_went_through_json_is_equal():
    head, lines = trace_of(cleanup=["stuck"])
    again = msgspec.json.decode(msgspec.json.encode(lines), type=list[Line])
    assert first_difference(msgspec.json.decode(msgspec.json.encode(head), type=type(head)), again) is None


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(POLICIES)),
    st.lists(st.sampled_from(["quick", "fails", "absent"]), max_size=2),
    st.lists(st.sampled_from(sorted(PUPPETS)), max_size=4),
    st.lists(st.tuples(st.integers(0, 4 * S), st.sampled_from([1, 2, 10, 15])), max_size=5),
    st.integers(0, 1000),
)
def test_every_simulated_stop_replays(policy, rc1, cleanup, signals, seed):
    # The last signals make sure that it ends, whatever the others did.
    ends = [(10 * S, 15), (20 * S, 15), (30 * S, 15)]
    head, lines = trace_of(policy, [*sorted(signals), *ends], seed=seed, rc1=rc1, cleanup=cleanup, rc3=["quick"])
    assert first_difference(head, lines) is None


# ---- changes ---------------------------------------------------------------------------------------------

HEAD, LINES = trace_of(cleanup=["fails", "stuck"], rc3=["quick"])


def index_of(kind, nth=0):
    return [index for index, line in enumerate(LINES) if isinstance(line.what, kind)][nth]


def changed(index, **fields):
    lines = list(LINES)
    lines[index] = msgspec.structs.replace(lines[index], **fields)
    return lines


@pytest.mark.parametrize("index", range(len(LINES)))
def test_a_line_left_out_is_found_there(index):
    difference = first_difference(HEAD, LINES[:index] + LINES[index + 1 :])
    assert difference is not None
    assert difference.index == index


@pytest.mark.parametrize("index", range(len(LINES)))
def test_a_line_told_twice_is_found_there(index):
    difference = first_difference(HEAD, [*LINES[: index + 1], *LINES[index:]])
    assert difference is not None
    assert difference.index == index + 1


@pytest.mark.parametrize("index", [index for index, line in enumerate(LINES) if line.dir == ">"])
def test_an_output_at_another_time_is_found(index):
    difference = first_difference(HEAD, changed(index, t_ns=LINES[index].t_ns + 1))
    assert difference is not None
    assert difference.index == index
    assert difference.expected != difference.got


def test_an_input_at_another_time_is_found_at_the_next_output():
    index = index_of(Exited)
    difference = first_difference(HEAD, changed(index, t_ns=LINES[index].t_ns + 1))
    assert difference is not None
    assert difference.index == index + 1


def test_another_outcome_says_what_was_expected_and_what_came():
    index = index_of(Ended)
    ended = LINES[index].what
    other = msgspec.structs.replace(ended, rc=ended.rc + 1)
    difference = first_difference(HEAD, changed(index, what=other))
    at = f"at {LINES[index].t_ns} ns"
    assert difference == Difference(index, f"> {other!r} {at}", f"> {ended!r} {at}")


def test_another_exit_status_of_a_process_changes_the_story():
    index = index_of(Exited)
    difference = first_difference(HEAD, changed(index, what=msgspec.structs.replace(LINES[index].what, status=0)))
    assert difference is not None
    assert "rc=0" in difference.got


def test_other_settings_change_the_story():
    other = msgspec.structs.replace(HEAD.settings, cleanup_timeout_ns=3 * S)
    assert first_difference(msgspec.structs.replace(HEAD, settings=other), LINES) is not None


def test_an_output_that_no_model_made_is_found():
    index = index_of(Moved)
    more = msgspec.structs.replace(LINES[index], what=Log("broker", 6, "hello"))
    difference = first_difference(HEAD, [*LINES[:index], more, *LINES[index:]])
    assert difference is not None
    assert (difference.index, "hello" in difference.expected) == (index, True)


@pytest.mark.parametrize(
    "line",
    [
        Line(0, 0, 0, "<", Exited("cleanup.9", 0)),
        Line(0, 0, 0, "<", Log("broker", 6, "no input")),
        Line(0, 7, 0, "<", Signal(15)),
        Line(0, -1, 0, "<", Signal(15)),
        Line(0, 0, 5, "<", Signal(15)),
        Line(0, 0, 0, ">", Signal(15)),
    ],
)
def test_a_line_that_cannot_be_there_is_a_difference_and_no_crash(line):
    difference = first_difference(HEAD, [line])
    assert difference is not None
    assert difference.index == 0


def test_nothing_comes_after_exit():
    last = LINES[-1]
    more = Line(last.t_ns, 0, last.n + 1, "<", Signal(15))
    difference = first_difference(HEAD, [*LINES, more])
    assert difference is not None
    assert "has exited" in difference.got


def test_a_trace_that_ends_within_an_answer_to_an_input_is_found():
    difference = first_difference(HEAD, LINES[:-1])
    assert difference is not None
    assert difference.index == len(LINES) - 1
    assert difference.expected == "the end of the trace"
    assert "Exit(" in difference.got


def test_a_trace_that_ends_between_two_inputs_is_equal_as_far_as_it_goes():
    index = index_of(Exited)
    assert first_difference(HEAD, LINES[:index]) is None


@pytest.mark.parametrize(
    "fields",
    [
        {"settings_hash": "0"},
        {"settings": HARDENED},
        {"topology": Topology((), ())},
        {"topology": Topology((0,), ("a",))},
        {"topology": Topology((-1, 1), ("a", "b"))},
        {"topology": Topology((-1, 0), ("a",))},
        {"topology": Topology((-1, -1), ("a", "b"))},
    ],
)
def test_a_header_that_no_world_writes_is_refused(fields):
    with pytest.raises(TraceError, match=r"^t:1: "):
        check_header(msgspec.structs.replace(HEAD, **fields), "t")
    check_header(HEAD, "t")
    check_header(header(FLUX, Topology()), "t")
