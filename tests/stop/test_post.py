import json
import subprocess
import sys

import pytest

from brokerctl.stop import post, verdict
from brokerctl.stop.journal import Entry, read
from brokerctl.stop.story import story
from brokerctl.stop.verdict import Ending
from tests.stop.real_flux import wait_for
from tests.stop.recordings import life

# level, whether a failure is hidden, what is in the line
ENDINGS = {
    "stopped": (6, False, "stopped as asked (SIGTERM): exit 0; state saved: /var/lib/flux-0/dump/2026"),
    "shutdown-42": (6, False, "stopped as asked by `flux shutdown`, it stays down: exit 42; state saved: "),
    "cleanup-failed-behind-42": (3, True, "stays down, but exit 42 hides that cleanup.0 (exit 5: Exited, rc=5, 0ms)"),
    "rc1-failed-42": (3, True, "could not be started, but exit 42 hides that rc1.0 (/bin/false: Exited, rc=1, 0ms)"),
    "stopped-in-rc1": (6, False, "stopped as asked while it was starting (in init): exit 42"),
    "cleanup-cut-off": (3, False, "exit 129: cleanup.0 (sleep 300: Hangup, rc=129, 1.0s) was cut off, by the cleanup"),
    "rc3-cut-off": (3, False, "was cut off, by a signal; NO DUMP: what changed since the last checkpoint may be lost"),
    "timed-out": (
        3,
        False,
        "\"State 'stop-sigterm' timed out. Killing.\") in finalize; main was killed by SIGKILL; NO",
    ),
    "killed": (3, False, "failed: main was killed by SIGKILL in run; not by systemd: `kill -9`, or the kernel"),
    "crashed": (3, False, "failed: main was killed by SIGSEGV in run; it crashed: `coredumpctl info`; NO DUMP"),
    "never-ran": (3, False, "failed: a command of the unit failed before its main process was started"),
    "follower-with-its-leader": (6, False, "stopped by its leader: exit 0"),
    "follower-in-join": (3, False, "failed: exit 1: a follower stopped before it had joined"),
    "follower-sent-away": (3, False, "failed: exit 1: its parent was lost, or has sent it away"),
}


@pytest.mark.parametrize("name", ENDINGS)
def test_every_recorded_ending_has_its_verdict(name):
    level, hidden, text = ENDINGS[name]
    found = verdict.verdict(*life(name))
    assert (found.level, found.hidden) == (level, hidden)
    assert text in found.text


@pytest.mark.parametrize(
    ("end", "said", "text"),
    [
        ("watchdog killed ABRT", "Watchdog timeout (limit 5s)!", '("Watchdog timeout (limit 5s)!")'),
        ("oom-kill killed KILL", "", "the kernel's OOM killer took a process of it; main was killed by SIGKILL"),
        ("protocol exited 0", "", "it ended before it was ready; main exited 0"),
        ("timeout  ", "start operation timed out. Terminating.", "timed out"),
        ("exec-condition  ", "", "its ExecCondition did not hold"),
        ("start-limit-hit  ", "", "it was started too often"),
        ("resources  ", "", "systemd could not set it up"),
        ("something-new exited 1", "", "systemd says something-new; main exited 1"),
        ("core-dump dumped ABRT", "", "main was killed by SIGABRT, and dumped core; it crashed"),
        ("success killed TERM", "", "stopped: main was killed by SIGTERM"),
        ("success exited 0", "", "ended by itself: exit 0"),
        ("success  ", "", "ended before its main process was started"),
        ("exit-code exited 3", "", "failed: exit 3"),
        (
            "exit-code exited 0",
            "Control process exited, code=exited, status=3/NOTIMPLEMENTED",
            "a hook of the unit failed (status 3, of brokerctl stop: a bound was broken, or a rank was shed); main ex",
        ),
        ("exit-code exited 0", "", "failed: a hook of the unit failed; main exited 0"),
    ],
)
def test_what_systemd_says_has_its_verdict_without_a_broker_s_word_in_the_journal(end, said, text):
    entries = [Entry("systemd", 4, f"x.service: {said}")] if said else []
    found = verdict.verdict(Ending(*end.split(" ")), entries)
    assert text in found.text
    assert not found.hidden


def test_a_second_signal_is_told_from_the_timeout():
    end, entries = life("cleanup-cut-off")
    again = [*entries[:16], Entry("flux", 6, "broker.info[0]: signal 15"), *entries[16:]]
    assert "by a second signal" in verdict.verdict(end, again).text


def test_a_journal_that_lags_behind_is_no_reason_to_cry_wolf():
    end, entries = life("stopped")
    for length in range(len(entries)):
        found = verdict.verdict(end, entries[:length])
        assert (found.level, found.hidden) == (6, False)
        assert "NO DUMP" not in found.text
    end, entries = life("shutdown-42")
    assert not any(verdict.verdict(end, entries[:length]).hidden for length in range(len(entries)))


def test_only_the_broker_s_own_rank_counts_where_it_logs_for_others():
    _, entries = life("stopped")
    other = [Entry("flux", 3, "broker.err[3]: rc3.0: flux modprobe rc3 Exited (rc=1) 0.1s")]
    assert story([*entries, *other]) == story(entries)


def test_what_a_broker_prints_can_not_pose_as_more_than_a_line():
    end, _ = life("cleanup-cut-off")
    evil = Entry("flux", 3, "broker.err[0]: cleanup.0: a\x1b[2J\nb Exited (rc=1) 0.1s")
    found = verdict.verdict(
        end, [evil, Entry("flux", 6, "broker.err[0]: cleanup.1: " + "x" * 9999 + " Exited (rc=1) 1.0s")]
    )
    assert found.text.isprintable()
    assert len(found.text) <= verdict.LINE_MAX


@pytest.mark.parametrize(
    "line", ["", "no json", "[]", "{}", '{"MESSAGE": [104, 105]}', '{"MESSAGE": 7}', '{"MESSAGE": null}']
)
def test_a_line_of_the_journal_that_is_none_is_left_out(line):
    found = read(line + "\n" + json.dumps({"MESSAGE": "text", "PRIORITY": "3", "SYSLOG_IDENTIFIER": "flux"}))
    assert found[-1] == Entry("flux", 3, "text")
    assert len(found) == (2 if "104" in line else 1)


# ---- the program

HOOK = [sys.executable, "-I", "-m", "brokerctl", "stop", "--post"]


def run(argv, **environment):
    done = subprocess.run(
        argv, env={"PATH": "/usr/bin:/bin", **environment}, capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stderr


def test_the_hook_prints_one_line_and_exits_0():
    code, said = run(HOOK, SERVICE_RESULT="signal", EXIT_CODE="killed", EXIT_STATUS="SEGV")
    assert (code, said.count("\n")) == (0, 1)
    assert said.startswith("<3>failed: main was killed by SIGSEGV")


def test_the_hook_by_hand_is_refused():
    code, said = run(HOOK)
    assert code == 2
    assert said.count("\n") == 1


def test_a_bug_of_the_hook_s_own_costs_its_line_and_not_the_stop(monkeypatch, capfd):
    """P3: an ExecStopPost that fails makes a good stop a failed one."""
    monkeypatch.setattr(verdict, "verdict", lambda *_: 1 / 0)
    monkeypatch.setenv("SERVICE_RESULT", "success")
    assert post.main() == 0
    assert "this is a bug: ZeroDivisionError" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("environment", "line"),
    [
        ({}, "<6>nothing to stop: there is no main process\n"),
        ({"EXIT_CODE": "exited", "EXIT_STATUS": "0"}, "<6>nothing to stop: main has ended by itself (exit 0)\n"),
        ({"EXIT_CODE": "killed", "EXIT_STATUS": "TERM"}, "<6>nothing to stop: main has ended by itself (SIGTERM)\n"),
        ({"EXIT_CODE": "exited", "EXIT_STATUS": "42"}, "<6>nothing to stop: main has ended by itself (exit 42)\n"),
    ],
)
def test_an_exec_stop_without_a_main_says_so_in_one_line(environment, line):
    assert run(HOOK[:-1], **environment) == (0, line)


def test_an_exec_stop_without_a_main_fails_where_42_hides_a_failure(monkeypatch, capfd):
    _, entries = life("cleanup-failed-behind-42")
    monkeypatch.setattr(post, "_journal", lambda: entries)
    assert post.ended({"EXIT_CODE": "exited", "EXIT_STATUS": "42"}) == 1
    assert "and cleanup.0 (exit 5: Exited, rc=5, 0ms) failed" in capfd.readouterr().err
    assert post.ended({"EXIT_CODE": "exited", "EXIT_STATUS": "0"}) == 0


# ---- under systemd


def test_a_failure_that_42_hides_makes_the_unit_failed_without_a_restart(private_systemd, tmp_path):
    """FLUX.md 109. The log is what Flux writes of a cleanup action that failed."""
    _, entries = life("cleanup-failed-behind-42")
    log = tmp_path / "log"
    log.write_text("".join(f"{entry.text}\n" for entry in entries if entry.who == "flux"))
    hook = f"{sys.executable} -I -m brokerctl stop"
    private_systemd.unit(
        "hidden.service",
        f"[Service]\nExecStart=/bin/sh -c 'cat {log}; sleep 0.2; exit 42'\nRestart=always\nSuccessExitStatus=42\n"
        f"RestartPreventExitStatus=42\nExecStop=+{hook}\nExecStopPost=+{hook} --post\nSyslogIdentifier=flux\n",
    )
    private_systemd.systemctl("start", "--wait", "hidden.service", check=False)
    shown = private_systemd.show("hidden.service", "Result", "NRestarts", "ActiveState")
    assert shown == {"Result": "exit-code", "NRestarts": "0", "ActiveState": "failed"}
    journal = private_systemd.journal("hidden.service")
    assert any(
        line.startswith("nothing to stop: main has ended by itself (exit 42), and cleanup.0") for line in journal
    )
    assert any(line.startswith("failed: exit 42: cleanup.0 (exit 5: Exited, rc=5, 0ms) failed") for line in journal)


@pytest.mark.fact(57, 58, 59)
@pytest.mark.parametrize(
    ("command", "more", "text"),
    [
        ("exit 3", "", "failed: exit 3"),
        ("kill -9 $$$$", "", "main was killed by SIGKILL"),
        ("exec sleep 100", "TimeoutStartSec=0.3\nType=notify\n", "systemd's time was over"),
        ("exec sleep 100", "WatchdogSec=0.3\n", "the watchdog was not fed in time"),
        ("exit 0", "ExecStartPre=/bin/false\n", "failed before its main process was started"),
        ("exit 0", "ExecCondition=/bin/false\n", "its ExecCondition did not hold"),
    ],
)
def test_endings_that_no_exec_stop_sees_have_their_line(private_systemd, command, more, text):
    """SYSTEMD.md 57–59."""
    private_systemd.unit(
        "ends.service",
        f"[Service]\nExecStart=/bin/sh -c '{command}'\n{more}ExecStopPost=+{' '.join(HOOK)}\nTimeoutStopSec=5\n",
    )
    private_systemd.systemctl("start", "ends.service", check=False)
    wait_for(lambda: any(text in line for line in private_systemd.journal("ends.service")), text)
