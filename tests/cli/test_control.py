"""status, shutdown, cleanup-push: what an admin asks of a running broker."""

import json
import re
import signal
import subprocess
import time

import pytest

from brokerctl.cli import status as verb
from brokerctl.errors import ControlError
from brokerctl.records import Ended, Output
from tests.cli.outsider import COMMAND, ENV, brokerctl_

# ---- nobody there


@pytest.mark.parametrize("name", ["status", "shutdown", "cleanup-push"])
def test_without_a_broker_each_is_one_line_and_2(tmp_path, name):
    words = ["true"] if name == "cleanup-push" else []
    done = brokerctl_(name, "--rundir", tmp_path / "none", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"brokerctl {name}: no broker is running: rundir {tmp_path}/none does not exist\n"


def test_the_socket_of_a_broker_that_was_killed_is_told_and_the_next_one_takes_its_place(start, tmp_path):
    broker = start("--rundir", str(tmp_path / "run")).wait_for_state("run").signal(signal.SIGKILL)
    assert broker.wait() == -signal.SIGKILL
    done = brokerctl_("status", "--rundir", tmp_path / "run")
    assert done.returncode == 2
    assert done.stderr == (
        f"brokerctl status: no broker is running: {tmp_path}/run/control is left over from one that was killed\n"
    )
    again = start("--rundir", str(tmp_path / "run")).wait_for_state("run")
    assert brokerctl_("status", "--rundir", tmp_path / "run").returncode == 0
    assert again.signal().wait() == 0


def test_the_environment_names_the_broker_in_its_actions(start):
    config = f"[[cleanup]]\ncommand = '{' '.join(COMMAND)} status'\n"
    broker = start(config=config).wait_for_state("run").signal()
    assert broker.wait() == 0
    assert any("cleanup.0, " in line.text for line in broker.facts(Output))


# ---- status


def test_status_says_what_an_admin_needs_at_night(start):
    config = "[[cleanup]]\ncommand = 'sleep 1000'\n[[cleanup]]\ncommand = 'true'\n"
    broker = start("-S", "broker.cleanup-timeout=45s", config=config).wait_for_state("run")
    text = broker.verb("status").stdout
    assert re.match(r"broker \S+: run for \d+m?s, no time limit  \[pid \d+, /", text)
    assert "waits for: a signal or a request to stop" in text
    assert "then:      2 of cleanup" in text
    broker.signal().wait_for_start("cleanup.0")
    text = broker.verb("status").stdout
    assert re.match(r"broker \S+: cleanup for \S+, at most \S+ more ", text)
    assert "reason:    a signal asked for the stop" in text
    assert re.search(r"running:\s+cleanup\.0, \S+: sleep 1000", text)
    assert "then:      1 more of cleanup" in text
    broker.signal(signal.SIGINT)  # another signal, so it is not the same one told twice: it aborts
    assert broker.wait() == 129


def test_status_as_json_is_the_answer_itself(start):
    broker = start().wait_for_state("run")
    answer = json.loads(broker.verb("status", "--json").stdout)
    assert answer["pid"] == broker.process.pid
    assert answer["rundir"] == str(broker.rundir)
    assert (answer["state"], answer["reason"], answer["running"], answer["left_ns"]) == ("run", "", [], None)
    assert 0 < answer["held_ns"] < 60e9
    broker.signal().wait()


def test_status_of_a_stopped_broker_is_a_timeout_in_one_line(start):
    broker = start().wait_for_state("run").signal(signal.SIGSTOP)
    done = broker.verb("status")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith("control: the broker does not answer within 5s\n")
    broker.signal(signal.SIGCONT).signal().wait()


def test_an_answer_of_other_fields_is_a_control_error():
    with pytest.raises(ControlError, match="cannot read the broker's answer"):
        verb.read({"state": 1})


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ({"left_ns": 0}, "broker vm: cleanup for 12s, its time is over  [here]"),
        ({"left_ns": 40_000_000_000}, "broker vm: cleanup for 12s, at most 40s more  [here]"),
        ({"size": 2}, "broker vm (rank 0 of 2): cleanup for 12s, no time limit  [here]"),
        ({"reason": "request", "signalled": True},
         "  reason:    a request (shutdown) asked for the stop; a signal came later"),
        ({"running": [{"run": "cleanup.3", "command": "flux queue idle", "for_ns": 11_000_000_000,
                       "signals": ["SIGHUP", "SIGTERM"]}]},
         "  running:   cleanup.3, 11s: flux queue idle  (got SIGHUP, SIGTERM)"),
        ({"running": [{"run": "cleanup.3", "command": "x", "for_ns": 0, "exited": True}]},
         "  running:   cleanup.3, 0ms: x  (has exited; what it started is still there or holds its output)"),
        ({"failed": {"cleanup": "cleanup.1: false"}, "code": 5}, "  failed:    cleanup.1: false"),
        ({"code": 5}, "  exit code: 5, as it stands now"),
        ({"peers": "1 peers: picl1 (rank 1)"}, "  peers:     1 peers: picl1 (rank 1)"),
        ({"lost": "picl1 (rank 1)"}, "  lost:      picl1 (rank 1)"),
    ],
)  # fmt: skip
def test_status_in_words(more, line):
    answer = {"rank": 0, "size": 1, "host": "vm", "state": "cleanup", "held_ns": 12_000_000_000, **more}
    assert line in verb.describe(verb.read(answer), "here")


def test_what_others_said_gives_no_commands_to_the_terminal_of_who_asks(start):
    """What an action printed, its own text, a worker's status: escape sequences in them are shown, not obeyed."""
    config = r"""[[cleanup]]
        command = 'printf "\033[2Jcleared\n"'
        text = "clear\u009b"
        """
    broker = start(config=config).wait_for_state("run")
    done = broker.verb("shutdown")
    assert broker.wait() == 0
    assert r"cleanup.0: \x1b[2Jcleared" in done.stderr
    assert r"cleanup.0: clear\x9b Exited (rc=0)" in done.stderr
    worker = {"name": "w", "state": "ready", "for_ns": 0, "status": "\x1b]0;owned\x07"}
    answer = {"rank": 0, "size": 1, "host": "vm", "state": "run", "held_ns": 0, "workers": [worker]}
    assert r"  workers:   w, ready, 0ms: \x1b]0;owned\x07" in verb.describe(verb.read(answer), "here")


# ---- shutdown


def test_shutdown_follows_the_log_and_returns_the_brokers_own_code(start):
    broker = start(config="[[cleanup]]\ncommand = 'echo bye; exit 5'\n").wait_for_state("run")
    done = broker.verb("shutdown")
    assert broker.wait() == 5
    assert (done.returncode, done.stdout) == (5, "")
    assert "broker.info[0]: shutdown: run->cleanup" in done.stderr
    assert "broker.info[0]: cleanup.0: bye" in done.stderr
    assert "broker.err[0]: cleanup.0: echo bye; exit 5 Exited (rc=5)" in done.stderr
    assert "unload-builtins->exit" in done.stderr


def test_a_second_shutdown_is_refused(start):
    broker = start(config="[[cleanup]]\ncommand = 'sleep 1'\n").wait_for_state("run")
    with subprocess.Popen(
        [*COMMAND, "shutdown", "--rundir", str(broker.rundir)], env=ENV, stderr=subprocess.DEVNULL
    ) as first:
        broker.wait_for_state("cleanup")
        second = broker.verb("shutdown")
        assert (second.returncode, second.stderr) == (1, "brokerctl shutdown: shutdown is already in progress\n")
        assert first.wait(20) == broker.wait() == 0


def test_shutdown_of_a_broker_that_dies_says_so_and_is_1(start):
    broker = start(config="[[cleanup]]\ncommand = 'sleep 1000'\n").wait_for_state("run")
    with subprocess.Popen(
        [*COMMAND, "shutdown", "--rundir", str(broker.rundir)], env=ENV, stderr=subprocess.PIPE, text=True
    ) as asker:
        broker.wait_for_start("cleanup.0")
        broker.signal(signal.SIGKILL).wait()
        _, err = asker.communicate(timeout=20)
    assert asker.returncode == 1
    assert err.endswith("brokerctl shutdown: the connection ended before the broker said its exit code\n")
    broker.kill_left()


def test_the_follower_may_go_and_the_stop_goes_on(start):
    broker = start(config="[[cleanup]]\ncommand = 'sleep 1; exit 4'\n").wait_for_state("run")
    with subprocess.Popen([*COMMAND, "shutdown", "--rundir", str(broker.rundir)], env=ENV,
                          stderr=subprocess.DEVNULL) as asker:  # fmt: skip
        broker.wait_for_start("cleanup.0")
        asker.kill()
    assert broker.wait() == 4


# ---- cleanup-push


def test_pushed_actions_run_before_the_others_the_last_one_first(start):
    broker = start(config="[[cleanup]]\ncommand = 'echo configured'\n").wait_for_state("run")
    assert broker.verb("cleanup-push", "echo $((20 + 3))").returncode == 0
    assert broker.verb("cleanup-push", "--", "echo", "$HOME  two").returncode == 0
    assert broker.verb("cleanup-push", "--", "true").returncode == 0
    assert broker.signal().wait() == 0
    assert [(fact.run, fact.command) for fact in broker.facts(Ended)] == [
        ("cleanup.0", "true"),
        ("cleanup.1", "echo $HOME  two"),
        ("cleanup.2", "echo $((20 + 3))"),
        ("cleanup.3", "echo configured"),
    ]
    assert [event.text for event in broker.facts(Output)] == ["$HOME  two", "23", "configured"]


def test_a_push_to_a_list_that_runs_is_refused_and_changes_nothing(start):
    broker = start(config="[[cleanup]]\ncommand = 'sleep 1'\n").wait_for_state("run")
    broker.signal().wait_for_start("cleanup.0")
    done = broker.verb("cleanup-push", "echo late")
    assert done.returncode == 1
    assert done.stderr == "brokerctl cleanup-push: cleanup actions cannot be added in state cleanup\n"
    assert broker.wait() == 0
    assert [fact.run for fact in broker.facts(Ended)] == ["cleanup.0"]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "no command"),
        (["  "], "no command"),
        (["--"], "no command"),
        (["echo", "a"], "more than one word"),
        (["a", "--", "b"], "'a' before --"),
        (["a" * 70_000], "are too long"),
    ],
)
def test_a_push_that_cannot_be_is_refused_by_the_asker(start, words, text):
    broker = start().wait_for_state("run")
    done = broker.verb("cleanup-push", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert text in done.stderr
    assert done.stderr.count("\n") == 1
    began = time.monotonic()
    assert broker.signal().wait() == 0
    assert time.monotonic() - began < 10
