"""Lines from a real manager's log and from what the processes of a unit tell."""

import json

import pytest

from brokerctl.errors import KernelError
from brokerctl.records import Exited, Log, Start
from brokerctl.records.base import Command
from brokerctl.records.units import (
    Hook,
    KillOthers,
    KillProcess,
    Notified,
    Restarted,
    StatusText,
    UnitMoved,
)
from brokerctl.worlds.systemd.observe import BURST_NS, HOLD_NS, Observer

COMMANDS = {name: Command(name, puppet=name) for name in ("main.0", "exec-stop.0", "exec-stop-post.0")}


class Watched:
    def __init__(self):
        self.lines = []
        self.observer = Observer("x.service", COMMANDS, self.lines.append)
        self.now_ns = 0

    def log(self, *texts, pid=1, unit="x.service", level=7):
        """The manager says these, a millisecond after each other; what came of it."""
        before = len(self.lines)
        for text in texts:
            self.now_ns += 1_000_000
            row = f"<{3 * 8 + level}>Nov 29 21:25:17 systemd[{pid}]: {unit}: {text}"
            self.observer.logged(self.now_ns, row.encode())
        return [line.what for line in self.lines[before:]]

    def report(self, **fields):
        before = len(self.lines)
        self.now_ns += 1_000_000
        row = json.dumps({"t_ns": self.now_ns, **fields}).encode() + b"\n"
        self.observer.reported(row[:7])
        self.observer.reported(row[7:])
        self.observer.catch_up(self.now_ns + HOLD_NS)
        return [line.what for line in self.lines[before:]]


@pytest.fixture
def watched():
    return Watched()


def moves(records):
    return [(what.active, what.old, what.new, what.result) for what in records if isinstance(what, UnitMoved)]


def test_a_life_of_a_unit_is_told_in_the_words_of_the_model(watched):
    assert watched.log("Forked /run/s/main.0 as 42") == [Start("main", COMMANDS["main.0"])]
    assert moves(watched.log("Changed dead -> start", "Changed start -> running")) == [
        ("activating", "dead", "start", "success"),
        ("active", "start", "running", "success"),
    ]
    assert watched.log("Forked /run/s/exec-stop.0 as 43") == [Start("exec-stop.0", COMMANDS["exec-stop.0"])]
    told = watched.report(run="exec-stop.0", what="began", environment={"MAINPID": "42", "NOTIFY_SOCKET": "/run/x"})
    assert told == [Hook("exec-stop.0", {"MAINPID": "main", "NOTIFY_SOCKET": "notify"})]
    assert watched.log("Control process exited, code=exited, status=3/NOTIMPLEMENTED") == [
        Exited("exec-stop.0", 3 << 8)
    ]
    assert watched.log("Main process exited, code=killed, status=15/TERM") == [Exited("main", 15)]
    watched.log("Changed running -> stop", "Changed stop -> stop-sigterm")
    assert moves(watched.log("Failed with result 'exit-code'.", "Changed stop-sigterm -> failed")) == [
        ("failed", "stop-sigterm", "failed", "exit-code")
    ]
    assert watched.observer.at_rest


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("Main process exited, code=exited, status=0/SUCCESS", 0),
        ("Main process exited, code=exited, status=129/n/a", 129 << 8),
        ("Main process exited, code=exited, status=203/EXEC", 203 << 8),
        ("Main process exited, code=killed, status=9/KILL", 9),
        ("Main process exited, code=dumped, status=6/ABRT", 0x86),
        ("Main process exited, code=killed, status=40/RTMIN+6", 40),
        ("Main process exited, code=exited, status=1/FAILURE (success)", 1 << 8),
    ],
)
def test_how_a_process_ended_is_a_wait_status(watched, text, status):
    watched.log("Forked /run/s/main.0 as 42")
    assert [what for what in watched.log(text) if isinstance(what, Exited)] == [Exited("main", status)]


def test_a_failed_state_on_the_way_to_a_restart_is_no_end(watched):
    watched.log("Forked /run/s/main.0 as 42", "Changed dead -> running")
    told = watched.log(
        "Failed with result 'exit-code'.",
        "Service will restart (restart setting)",
        "Changed running -> failed",
        "Changed failed -> auto-restart",
        "Scheduled restart job, restart counter is at 1.",
        "Changed auto-restart -> dead",
        "Changed dead -> start",
    )
    assert moves(told)[0] == ("activating", "running", "auto-restart", "exit-code")
    assert Restarted(1) in told
    assert moves(told)[-1] == ("activating", "dead", "start", "success")


def test_signals_are_those_of_the_manager_and_sigkill_is_told_by_its_log(watched):
    watched.log("Forked /run/s/main.0 as 42")
    assert watched.report(run="main", what="signal", signum=15, sender=1) == [KillProcess("main", 15)]
    assert watched.report(run="main", what="signal", signum=10, sender=77) == []
    assert watched.log("Killing process 42 (sh) with signal SIGKILL.") == [KillProcess("main", 9)]
    assert watched.log("Killing process 42 (a) b) with signal SIGABRT.") == []  # it tells that itself


def test_a_signal_to_all_others_is_one_deed(watched):
    killing = [f"Killing process {pid} (sh) with signal SIGKILL." for pid in (50, 51, 52)]
    assert watched.log(*killing) == [KillOthers(9)]
    watched.now_ns += BURST_NS
    assert watched.log(*killing) == [KillOthers(9)]
    assert watched.report(run="others", what="signal", signum=15, sender=1) == [KillOthers(15)]


def test_a_control_process_that_could_not_tell_its_environment_is_a_hook_all_the_same(watched):
    watched.log("Forked /run/s/exec-stop.0 as 43")
    told = watched.log("Control process exited, code=exited, status=203/EXEC")
    assert told == [Hook("exec-stop.0", {}), Exited("exec-stop.0", 203 << 8)]


def test_messages_are_told_by_who_sends_them_and_status_by_who_takes_it(watched):
    assert watched.report(run="main", what="said", text="READY=1\nSTATUS=a, b") == [
        Notified("main", "READY=1\nSTATUS=a, b")
    ]
    assert watched.log("Got notification message from PID 42 (READY=1, STATUS=a, b, MAINPID=3)") == [StatusText("a, b")]
    watched.report(run="main", what="said", text=f"X=1\nSTATUS={'x' * 4000}")
    cut = f"Got notification message from PID 42 (X=1, STATUS={'x' * 1900}"
    assert watched.log(cut) == [StatusText("x" * 4000)]
    assert watched.report(run="exec-stop.0", what="said", text="X=1", child=True) == [Notified("child", "X=1")]
    refused = "Got notification message from PID 43, but reception only permitted for main PID 42"
    assert watched.log(refused, level=4) == [Log("systemd", 4, refused)]


def test_other_units_and_other_speakers_are_not_listened_to(watched):
    assert watched.log("Changed dead -> running", unit="y.service") == []
    assert watched.log("Changed dead -> running", pid=43) == []
    watched.observer.logged(1, b"\xff garbage")
    assert watched.lines == []


def test_a_state_that_the_model_does_not_have_is_an_error(watched):
    with pytest.raises(KernelError, match="this systemd has a state 'nirvana'"):
        watched.log("Changed dead -> nirvana")


def test_the_steps_of_newer_managers_between_known_states_are_passed_over(watched):
    watched.log("Changed dead -> running", "Service will restart (restart setting)")
    told = watched.log(
        "Changed running -> failed-before-auto-restart",
        "Changed failed-before-auto-restart -> auto-restart",
        "Changed auto-restart -> auto-restart-queued",
        "Changed auto-restart-queued -> start",
    )
    assert [(old, new) for _, old, new, _ in moves(told)] == [("running", "auto-restart"), ("auto-restart", "start")]


def test_times_never_go_back(watched):
    watched.observer.logged(10, b"<31>Nov  9 21:25:17 systemd[1]: x.service: Changed dead -> running")
    watched.observer.reported(b'{"t_ns": 5, "run": "main", "what": "said", "text": "A=1"}\n')
    watched.observer.catch_up(HOLD_NS + 5)
    assert [line.t_ns for line in watched.lines] == [10, 10]
    assert [line.n for line in watched.lines] == [0, 1]


def test_what_a_process_tells_comes_after_the_log_that_was_slower_and_before_its_own_end(watched):
    watched.log("Forked /run/s/main.0 as 42", "Forked /run/s/exec-stop.0 as 43")
    watched.observer.reported(b'{"t_ns": 1, "run": "main", "what": "signal", "signum": 15, "sender": 1}\n')
    assert watched.log("Changed dead -> stop-sigterm")[-1].new == "stop-sigterm"
    assert watched.observer.due() == 1 + HOLD_NS
    told = watched.log("Main process exited, code=exited, status=0/SUCCESS")
    assert told == [KillProcess("main", 15), Exited("main", 0)]
    assert watched.observer.due() is None


def test_sighup_comes_after_the_signal_that_it_was_sent_with(watched):
    for signum in (1, 15):
        row = {"t_ns": 1, "run": "main", "what": "signal", "signum": signum, "sender": 1}
        watched.observer.reported(json.dumps(row).encode() + b"\n")
    watched.observer.catch_up(1 + HOLD_NS)
    assert [line.what for line in watched.lines] == [KillProcess("main", 15), KillProcess("main", 1)]


def test_steps_can_wait_for_a_puppet_that_is_being_started(watched):
    watched.log("Forked /run/s/main.0 as 42")
    assert not watched.observer.is_ready()
    watched.report(run="main", what="began")
    assert watched.observer.is_ready()
    watched.log("Forked /run/s/exec-stop.0 as 43", "Control process exited, code=exited, status=203/EXEC")
    assert watched.observer.is_ready()


def test_a_signal_without_a_sender_is_the_managers_if_the_log_that_comes_later_says_so(watched):
    watched.log("Forked /run/s/main.0 as 42", "Changed dead -> running", "Changed running -> stop")
    for log, told in (([], []), (["Changed stop -> stop-sigterm"], [KillProcess("main", 15)])):
        watched.observer.signalled(watched.now_ns, 15)
        before = len(watched.lines)
        watched.log(*log)
        watched.observer.catch_up(watched.now_ns + HOLD_NS)
        assert [line.what for line in watched.lines[before:] if isinstance(line.what, KillProcess)] == told


def test_a_log_that_is_read_late_does_not_overtake_what_was_told_before_it(watched):
    for t_ns, signum in ((5, 1), (9, 15)):
        row = {"t_ns": t_ns, "run": "main", "what": "signal", "signum": signum, "sender": 1}
        watched.observer.reported(json.dumps(row).encode() + b"\n")
    watched.observer.reported(b'{"t_ns": 200000000, "run": "main", "what": "said", "text": "A=1"}\n')
    watched.observer.logged(100_000_000, b"<31>Nov  9 21:25:17 systemd[1]: x.service: Changed dead -> running")
    assert [type(line.what) for line in watched.lines] == [KillProcess, KillProcess, UnitMoved]
    assert [line.t_ns for line in watched.lines] == [9, 9, 100_000_000]
    assert watched.observer.due() == 200_000_000 + HOLD_NS


def test_sigkill_that_a_client_asked_for_is_told_too(watched):
    watched.log("Forked /run/s/main.0 as 42")
    asked = (
        "Sent signal SIGKILL to main process 42 (python) on client request.",
        "Sending signal SIGKILL to process 88 (python) on client request.",
    )
    kills = [what for what in watched.log(*asked) if not isinstance(what, Log)]
    assert kills == [KillProcess("main", 9), KillOthers(9)]
