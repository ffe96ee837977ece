"""Recordings are written and read back; in what they tell, jobs have their labels, and exits their codes."""

import msgspec
import pytest

from brokerctl.durations import S
from brokerctl.errors import TraceError
from brokerctl.logs import recording
from brokerctl.logs.recording import Event, Observed, Recording
from brokerctl.records import Drain, Exit, JobEvent, Log, Moved, Notify, Unreachable

LOG = """\
    0.010 <6>broker.info[0]: builtins-success: load-builtins->join 5ms
    0.020 <7>broker.debug[0]: rc2-none: ignored in run
    1.000 <3>job-manager.err[0]: ƒ2UzHM: epilog: vm (rank 1): No route to host
    1.100 <6>resource.info[0]: drain idset=1-2 nodelist=vm,vm overwrite=0 reason=epilog failed for job ƒ2UzHM
    1.200 <6>broker.info[1]: builtins-done: unload-builtins->exit 1ms
    1.300 <6>broker.info[0]: builtins-done: unload-builtins->exit 1ms
    9.000 flux-start: 0 (pid 7) exited with rc=129
"""
RUN = Recording(
    name="x",
    about="a run",
    size=2,
    steps=["t=0: launch: flux start -Slog-stderr-level=7", "t=0.5: submit job: flux submit -N2 true -> ƒ2UzHM"],
    log=LOG,
    observed=Observed(
        rank0_transitions=[],
        broker_rc={"0": "exited with rc=129"},
        notify=[(0.3, 1, "READY=1")],
        eventlogs={"job": [Event(0.6, "submit", {"userid": 0})]},
    ),
)


def told(run):
    return [(line.t_ns, line.rank, line.what) for line in recording.lines(run)]


def test_what_was_written_is_read_back(tmp_path):
    path = tmp_path / "x.json"
    recording.write(RUN, path)
    assert recording.read(path) == RUN
    assert (tmp_path / "x.log").read_text() == LOG


def test_it_tells_log_eventlogs_notifications_and_exits_by_time():
    ms = S // 1000
    assert told(RUN)[2:] == [
        (300 * ms, 1, Notify("READY=1")),
        (600 * ms, 0, JobEvent("job", "job", "submit", {"userid": 0})),
        (1000 * ms, 0, Unreachable(1, "job: epilog")),
        (1100 * ms, 0, Drain((1, 2), "epilog failed for job job")),
        (1200 * ms, 1, Moved("builtins-done", "unload-builtins", "exit", ms)),
        (1200 * ms, 1, Exit(0)),
        (1300 * ms, 0, Moved("builtins-done", "unload-builtins", "exit", ms)),
        (1300 * ms, 0, Exit(129)),
    ]


@pytest.mark.parametrize(
    ("said", "code"), [("exited with rc=7", 7), ("Segmentation fault", 139), ("Aborted", 134), ("Killed", 0)]
)
def test_the_code_of_a_broker_that_has_failed_is_what_its_starter_said_of_it(said, code):
    run = msgspec.structs.replace(RUN, observed=Observed(rank0_transitions=[], broker_rc={"1": said}))
    assert [what.code for _, rank, what in told(run) if isinstance(what, Exit) and rank == 1] == [code]


def drained(*events):
    run = msgspec.structs.replace(RUN, observed=Observed(rank0_transitions=[], drained=list(events)))
    return [(t_ns, what) for t_ns, _, what in told(run) if isinstance(what, Drain)][:-1]  # the last one was logged


def test_who_is_drained_when_a_later_life_begins_is_told_though_flux_logs_it_no_more():
    early = Event(-5, "drain", {"idset": "0-1,3", "nodelist": "a,b,d", "reason": "epilog failed for job ƒ2UzHM"})
    back = Event(-4, "undrain", {"idset": "1", "nodelist": "b"})
    now = Event(1.1, "drain", {"idset": "1-2", "reason": "epilog failed for job ƒ2UzHM"})
    reason = "epilog failed for job job"
    assert drained(early, back, now) == [(10_000_000, Drain((0,), reason)), (10_000_000, Drain((3,), reason))]
    assert drained(now) == []
    with pytest.raises(TraceError, match=r"drained: drain at -5.*: no idset"):
        drained(Event(-5, "drain", {"idset": "x"}))


def test_lines_of_a_rank_are_numbered_without_gaps():
    lines = recording.lines(RUN)
    for rank in (0, 1):
        numbers = [line.n for line in lines if line.rank == rank]
        assert numbers == list(range(len(numbers)))


def test_what_came_after_the_recorder_gave_up_is_not_told():
    run = msgspec.structs.replace(RUN, steps=[*RUN.steps, "t=1.15: NOT exited after 1s"])
    assert run.given_up_ns == 1_150_000_000
    assert not any(isinstance(what, Exit) for _, _, what in told(run))


def test_without_steps_ids_are_those_of_the_only_job():
    run = msgspec.structs.replace(RUN, steps=RUN.steps[:1])
    assert run.labels() == {"ƒ2UzHM": "job"}
    two = msgspec.structs.replace(run.observed, eventlogs={"a": [], "b": []})
    assert msgspec.structs.replace(run, observed=two).labels() == {}


def test_it_knows_whether_debug_lines_were_recorded():
    assert RUN.has_debug
    quiet = msgspec.structs.replace(RUN, steps=["t=0: launch: flux start -Slog-stderr-level=6"])
    assert not quiet.has_debug


def test_a_line_with_a_strange_set_of_ranks_is_a_log_line_and_no_drain():
    line = "    1.000 <6>resource.info[0]: drain idset=9-1 nodelist=vm overwrite=0 reason=x\n"
    ((_, _, what),) = told(msgspec.structs.replace(RUN, log=line, observed=Observed(rank0_transitions=[])))
    assert isinstance(what, Log)


def test_what_is_no_recording_is_told_in_one_line(tmp_path):
    path = tmp_path / "x.json"
    with pytest.raises(TraceError, match=r"x\.json: cannot read: No such file"):
        recording.read(path)
    path.write_text("{}")
    (tmp_path / "x.log").write_text("")
    with pytest.raises(TraceError, match=r"x\.json: no recording: .*name"):
        recording.read(path)
    recording.write(msgspec.structs.replace(RUN, steps=[]), path)
    with pytest.raises(TraceError, match=r"x\.json: no recording: no steps"):
        recording.read(path)
