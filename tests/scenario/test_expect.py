"""Expectations: each kind holds where it should, and says expected and got where it doesn't."""

import pytest

from brokerctl.check.reader import Finding
from brokerctl.durations import S
from brokerctl.model.tree import Tree
from brokerctl.records import (
    Answer,
    Asked,
    Booted,
    Command,
    Disconnect,
    Ended,
    Event,
    Exit,
    Goodbye,
    Hangup,
    Hello,
    Line,
    Log,
    Lost,
    Moved,
    Notify,
    Offline,
    Online,
    Received,
    Send,
    Signal,
    Start,
)
from brokerctl.scenario import format as scenario_format
from brokerctl.scenario.expect import Expectations, judge
from brokerctl.scenario.losses import Losses
from brokerctl.trace import Topology
from brokerctl.worlds.contract import Outcome

WHATS = [
    (0, Booted()),
    (1, Moved("quorum-full", "quorum", "run", S)),
    (2, Asked("shutdown", 1)),
    (2, Answer(1, {"error": "not yet"})),
    (3, Signal(10)),  # a leader's jobs get it; no stop begins
    (10, Signal(15)),
    (10, Log("broker", 6, "signal 15")),
    (10, Moved("shutdown", "run", "cleanup", 9 * S)),
    (10, Notify("STATUS=Running it")),
    (10, Start("cleanup.0", Command("it"))),
    (12, Ended("cleanup.0", "it", 129, "Hangup", 2 * S)),
    (12, Moved("cleanup-fail", "cleanup", "shutdown", 2 * S)),
    (13, Notify("STATUS=Exiting")),
    (13, Exit(129)),
]
LINES = [Line(100 * S + t * S, 0, n, "<" if isinstance(w, Event) else ">", w) for n, (t, w) in enumerate(WHATS)]
TRANSITIONS = ["quorum-full quorum run", "shutdown run cleanup", "cleanup-fail cleanup shutdown"]
ENDED = Outcome("ended", 113 * S, {0: 129})


@pytest.fixture
def findings(tmp_path):
    def find(text, outcome=ENDED, lines=LINES):
        path = tmp_path / "s.toml"
        path.write_text(f'about = "x"\n[instance]\nsize = 2\n[expect]\n{text}')
        expectations = Expectations(scenario_format.load(path), Tree(Topology((-1, 0), ("vm", "vm"))))
        for line in lines:
            expectations.see(line)
        return [f"{one.name}: {one.text}" for one in expectations.findings(outcome)]

    return find


@pytest.mark.parametrize(
    "text",
    [
        "",
        "exit = 129",
        "within = '3s'",
        "transitions.0 = ['quorum-full quorum run', 'cleanup-fail cleanup shutdown']",
        f"exact = true\ntransitions.0 = {TRANSITIONS}",
        "actions = { 'cleanup.0' = 129 }",
        "never = ['cleanup.1 start', 'cleanup.0 start nth 2', 'rank 1 run']",
        "order = ['9s', 'cleanup', 'cleanup.0 start', 'cleanup.0 start + 2s', 'shutdown']",
        "spans = [{ from = 'cleanup', to = 'shutdown', min = '2s', max = '2s' }]",
        "spans = [{ from = 'run', to = 'shutdown', min = '11s' }]",
        "log = ['signal 15', 'cleanup.0: it Hangup']",
        "no-log = ['signal 9']",
        "notify = ['STATUS=Running', 'STATUS=Exit']",
    ],
)
def test_what_holds_is_not_told(findings, text):
    assert findings(text) == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("exit = 0", "expect.exit: expected exit code 0, got 129"),
        ("exits = { 1 = 7 }", "expect.exits.1: expected exit code 7, got none"),
        ("within = '2.9s'", "expect.within: expected the exit within 2.9s, got 3s"),
        ("outcome = 'stuck'", "expect.outcome: expected stuck, got ended"),
        (
            "transitions.0 = ['shutdown run cleanup', 'cleanup-success cleanup shutdown']",
            "expect.transitions.0: expected 'cleanup-success cleanup shutdown' after 'shutdown run cleanup', got",
        ),
        (
            "exact = true\ntransitions.0 = ['shutdown run cleanup']",
            "expect.transitions.0: expected exactly shutdown run cleanup; got quorum-full quorum run, shutdown run cl",
        ),
        (
            "transitions.1 = ['shutdown run cleanup']",
            "expect.transitions.1: expected 'shutdown run cleanup', got no such transition; there were none",
        ),
        ("actions = { 'cleanup.0' = 0 }", "expect.actions.cleanup.0: expected rc=0, got rc=129"),
        ("actions = { 'rank 1 rc3.0' = 0 }", "expect.actions.rc3.0: expected rc=0, got no end of it"),
        ("never = ['cleanup.0 start']", "expect.never: expected no 'cleanup.0 start', got one at 10s"),
        ("order = ['shutdown', 'run']", "expect.order: expected 'shutdown' before 'run', got the reverse"),
        ("order = ['cleanup.0 start', 'cleanup']", "expect.order: expected 'cleanup.0 start' before 'cleanup'"),
        ("order = ['run', 'finalize']", "expect.order: expected 'finalize', got no such moment"),
        (
            "spans = [{ from = 'cleanup', to = 'shutdown', max = '1.5s' }]",
            "expect.spans: expected between 0s and 1.5s from 'cleanup' to 'shutdown', got 2s",
        ),
        (
            "spans = [{ from = 'shutdown', to = 'cleanup' }]",
            "expect.spans: expected between 0s and none from 'shutdown' to 'cleanup', got -2s",
        ),
        ("spans = [{ from = 'run', to = 'exit' }]", "expect.spans: expected 'exit', got no such moment"),
        ("log = ['cleanup.0: it', 'signal 15']", "expect.log: expected 'signal 15' after 'cleanup.0: it', got no such"),
        ("no-log = ['Hangup']", "expect.no-log: expected no 'Hangup', got '<3>broker.err[0]: cleanup.0: it Hangup"),
        ("notify = ['READY=1']", "expect.notify: expected 'READY=1', got no such message"),
    ],
)
def test_what_does_not_hold_is_told_with_expected_and_got(findings, text, told):
    (found,) = findings(text)
    assert found.startswith(told)
    assert "\n" not in found


def test_a_step_whose_moment_never_came_is_a_failure(findings):
    outcome = Outcome("ended", 113 * S, {0: 129}, ("cleanup.7 start",))
    assert findings("", outcome) == ["step: step at 'cleanup.7 start' never came"]


def test_a_run_that_did_not_end_has_no_exit(findings):
    outcome = Outcome("stuck", 112 * S, {})
    assert findings("exit = 129\nwithin = '1h'", outcome, LINES[:-1]) == [
        "expect.outcome: expected ended, got stuck",
        "expect.exit: expected exit code 129, got none",
        "expect.within: expected the exit within 1h, got no exit",
    ]


def test_a_granted_request_begins_the_stop_and_a_refused_one_does_not(findings):
    granted = [
        msg if not isinstance(msg.what, Answer) else Line(msg.t_ns, 0, msg.n, ">", Answer(1, {})) for msg in LINES
    ]
    assert findings("within = '3s'") == []
    assert findings("within = '3s'", lines=granted) == ["expect.within: expected the exit within 3s, got 11s"]


def test_an_unexpected_violation_and_one_that_did_not_come_both_fail():
    broken = [Finding("bounds-held", "expected 1s, got 2s")]
    assert judge(["bounds-held"], broken) == []
    assert judge([], broken) == broken
    (held,) = judge(["honest-exit"], [])
    assert held.name == "expect.violates"
    assert held.text == "expected the invariant 'honest-exit' to be violated, got none of it"


# ---- lost ranks

TREE = Tree(Topology((-1, 0, 0, 1, 1), tuple(f"n{rank}" for rank in range(5))))
HELLO = [Received(1, Hello()), Received(2, Hello())]


def lost(*whats):
    """The ranks that the leader was told of, after these lines of it."""
    losses = Losses(TREE)
    for n, what in enumerate([*HELLO, *whats]):
        losses.see(Line(n, 0, n, "<", what))
    return losses.lost


def test_a_child_that_is_lost_is_lost_with_its_subtree():
    assert lost() == set()
    assert lost(Lost(1, "gone")) == {1, 3, 4}
    assert lost(Lost(1, "gone"), Lost(2, "gone")) == {1, 2, 3, 4}


def test_who_left_before_is_not_lost():
    assert lost(Received(1, Offline((3,), "left")), Lost(1, "gone")) == {1, 4}
    assert lost(Received(1, Goodbye()), Lost(1, "gone")) == set()


def test_losses_further_down_and_ranks_that_were_shed_count():
    assert lost(Received(1, Offline((3,), "lost"))) == {3}
    assert lost(Received(1, Offline((4,), "shed")), Send(1, Disconnect()), Hangup(1)) == {1, 3, 4}


def test_one_who_left_and_came_back_can_be_lost():
    back = Received(1, Online((3,)))
    assert lost(Received(1, Offline((3,), "left")), back, Lost(1, "gone")) == {1, 3, 4}


def test_one_who_never_said_hello_in_this_life_is_not_lost():
    assert lost(Moved("builtins-success", "load-builtins", "join", 0), Send(1, Disconnect())) == set()


def test_lost_ranks_are_expected_no_more_and_no_less(findings):
    joined = [*LINES[:2], Line(102 * S, 0, 2, "<", Received(1, Hello())), Line(103 * S, 0, 3, "<", Lost(1, "gone"))]
    lines = joined + LINES[2:]
    assert findings("lost = '1'", lines=lines) == []
    assert findings("lost = ''") == []
    assert findings("lost = ''", lines=lines) == ["expect.lost: expected none to be lost or shed, got 1"]
    assert findings("lost = '1'") == ["expect.lost: expected 1 to be lost or shed, got none"]
