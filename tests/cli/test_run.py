"""`brokerctl run`, seen from outside: what is refused before anything starts, and what becomes of a lifecycle."""

import os
import signal
import stat
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from brokerctl.durations import S
from brokerctl.kernel import proc
from brokerctl.records import Arm, Ended, Exit, Kill, Moved, Signal
from tests.cli.outsider import COMMAND, ENV, brokerctl_


def one_line(done, code, text):
    """Refused: nothing on stdout, one line on stderr."""
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.count("\n") == 1, done.stderr
    assert text in done.stderr


# ---- refused


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--nonsense"], "unrecognized arguments: --nonsense"),
        (["sleep", "5"], "unrecognized arguments: sleep"),
        (["--"], "-- without a command"),
        (["-S", "broker.cleanup-timeout=soon"], "'soon' is no duration"),
        (["-S", "broker.nonsense=1"], "unknown attribute 'broker.nonsense'"),
        (["-S", "broker.cleanup-timeout"], "expected ATTRIBUTE=VALUE"),
        (["--policy", "strict"], "unknown policy 'strict'"),
        (["--config", "/nonexistent.toml"], "/nonexistent.toml: cannot read: No such file or directory"),
        (["--trace", "/nonexistent/trace"], "--trace /nonexistent/trace: cannot write: No such file"),
        (["--trace", "/"], "--trace /: cannot write: Is a directory"),
        (["--status-file", "/nonexistent/s"], "--status-file /nonexistent/s: cannot write"),
        (["--rundir", "/proc/brokerctl"], "rundir /proc/brokerctl: cannot create"),
        (["--rundir", "/dev/null"], "rundir /dev/null: is no directory"),
        (["--rundir", ""], "--rundir: is empty"),
        (["--settings", "/nonexistent"], "--settings /nonexistent: cannot read"),
        (["--settings", "/dev/null", "--policy", "flux"], "--settings is everything"),
    ],
)
def test_what_cannot_be_used_is_one_line_and_2_and_nothing_was_started(tmp_path, words, text):
    rc2 = [] if {"--", "--settings"} & set(words) else ["--", "touch", "ran"]
    one_line(brokerctl_("run", "--rundir", tmp_path / "run", *words, *rc2, cwd=tmp_path), 2, text)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ("nonsense = 1", "object contains unknown field 'nonsense'"),
        ("[[cleanup]]\ncommand = 1", "cleanup[0].command: expected 'str | array', got 'int'"),
        ("[[cleanup]]\ncommand = ''", "cleanup[0].command: is empty"),
        ("[[cleanup]]\ncommand = 'true'\ntimeout = 'x'", "cleanup[0].timeout: 'x' is no duration"),
        ("[attrs]\n'broker.cleanup-timeout' = 'x'", "attrs: broker.cleanup-timeout: 'x' is no duration"),
        ("[[", "config.toml: "),
    ],
)
def test_a_configuration_that_cannot_be_used_names_file_and_place(tmp_path, config, text):
    (tmp_path / "config.toml").write_text(config)
    done = brokerctl_("run", "--config", tmp_path / "config.toml", "--rundir", tmp_path / "run")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"brokerctl run: {tmp_path}/config.toml: ")
    assert text.split("[0]")[-1] in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_fifo_without_a_reader_is_refused_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    done = brokerctl_("run", "--rundir", tmp_path / "run", "--trace", tmp_path / "fifo", "--", "true")
    one_line(done, 2, "cannot write: nobody reads this FIFO")


def test_a_rundir_in_use_names_its_broker_and_does_not_disturb_it(start):
    broker = start().wait_for_state("run")
    one_line(broker.verb("run", "--", "true"), 2, f"rundir {broker.rundir} is in use by pid {broker.process.pid}")
    assert broker.verb("status").returncode == 0
    assert broker.signal().wait() == 0


def test_the_status_file_tells_a_refusal_from_an_action_with_the_same_code(start, tmp_path):
    broker = start("--", "sh", "-c", "exit 2")
    assert broker.wait() == 2
    assert broker.status() | {"states": []} == {
        "kind": "exited",
        "code": 2,
        "culprit": {"run": "rc2.0", "command": "sh -c exit 2", "how": "Exited", "rc": 2},
        "states": [],
    }
    done = brokerctl_("run", "--policy", "x", "--status-file", tmp_path / "s", "--rundir", tmp_path / "r")
    assert done.returncode == 2
    assert '"kind":"refused","code":2,"error":"unknown policy' in (tmp_path / "s").read_text()


def test_the_status_file_says_that_it_runs(start):
    broker = start().wait_for_state("run")
    assert broker.status() == {"kind": "running", "pid": broker.process.pid}
    assert stat.S_IMODE(broker.status_file.stat().st_mode) == 0o644
    broker.signal().wait()


# ---- exit codes


def test_every_exit_code_of_an_action_comes_through(tmp_path):
    def run(code):
        return brokerctl_("run", "--rundir", tmp_path / str(code), "--", "sh", "-c", f"exit {code}").returncode

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(run, range(256))) == list(range(256))


@pytest.mark.parametrize("signum", [1, 2, 3, 6, 9, 11, 13, 14, 15, 31, 64])
def test_a_death_by_signal_is_128_and_its_number(start, signum):
    broker = start("--", "sh", "-c", f"ulimit -c 0; kill -{signum} $$")
    assert broker.wait() == 128 + signum


def test_a_missing_command_is_127_and_one_that_cannot_be_run_is_126(start, tmp_path):
    assert start("--", "/no/such/prog").wait() == 127
    assert start("--", "no-such-prog").wait() == 127
    (tmp_path / "plain").write_text("no program")
    assert start("--", str(tmp_path / "plain")).wait() == 126
    assert start("--", str(tmp_path)).wait() == 126


def test_all_cleanup_actions_run_and_the_first_nonzero_code_counts(start):
    config = """
        [[rc1]]
        command = "echo rc1"
        [[cleanup]]
        command = ["true"]
        [[cleanup]]
        command = "exit 5"
        [[cleanup]]
        command = "exit 9"
        [[rc3]]
        command = "exit 7"
    """
    broker = start("--", "true", config=config)
    assert broker.wait() == 5
    assert [(fact.run, fact.rc) for fact in broker.facts(Ended)] == [
        ("rc1.0", 0), ("rc2.0", 0), ("cleanup.0", 0), ("cleanup.1", 5), ("cleanup.2", 9), ("rc3.0", 7),
    ]  # fmt: skip
    assert broker.status()["culprit"]["run"] == "cleanup.1"
    assert [state["state"] for state in broker.status()["states"]][-6:] == [
        "run", "cleanup", "shutdown", "finalize", "goodbye", "unload-builtins",
    ]  # fmt: skip
    assert "<6>broker.info[0]: rc1.0: rc1\n" in broker.log()
    assert "<3>broker.err[0]: cleanup.1: exit 5 Exited (rc=5)" in broker.log()
    assert broker.facts(Exit) == [Exit(5)]


# ---- stops

STUBBORN = "setsid sleep 1000 & trap '' HUP TERM; while :; do sleep 1000; done"
TWIN = "setsid sleep 1000 & while :; do sleep 1000; done"
LADDER = ["-S", "broker.cleanup-timeout=0.6s", "-S", "broker.kill-ladder=HUP:0.3s,TERM:0.2s,KILL:5s"]


def cleanup(command):
    return f"[[cleanup]]\ncommand = '''{command}'''\n[[rc3]]\ncommand = 'echo saved'\n"


def stop(broker):
    """Signal it as `systemctl stop` does; its exit code."""
    return broker.wait_for_state("run").signal().wait()


def rungs(broker):
    """Which signals cleanup.0 got, each with its time after the signal that the broker got, in tenths of a second."""
    lines = broker.lines()
    (began_ns,) = [line.t_ns for line in lines if isinstance(line.what, Signal)]
    kills = [line for line in lines if isinstance(line.what, Kill) and line.what.run == "cleanup.0"]
    return [(line.what.signum, (line.t_ns - began_ns) // (S // 10)) for line in kills]


def test_a_stop_is_bounded_by_its_timeout_and_the_rungs_and_nothing_is_left(start):
    broker = start(*LADDER, config=cleanup(STUBBORN))
    assert stop(broker) == 137
    assert [signum for signum, _ in rungs(broker)] == [signal.SIGHUP, signal.SIGTERM, signal.SIGKILL]
    assert all(at >= due for (_, at), due in zip(rungs(broker), (6, 9, 11), strict=True)), rungs(broker)
    assert broker.left() == []
    assert "rc3.0: saved" in broker.log()
    assert [fact.how for fact in broker.facts(Ended) if fact.run == "cleanup.0"] == ["Killed"]


def test_its_twin_that_dies_of_hup_ends_with_129(start):
    broker = start(*LADDER, config=cleanup(TWIN))
    assert stop(broker) == 129
    assert [signum for signum, _ in rungs(broker)] == [signal.SIGHUP]
    assert broker.left() == []


def test_on_request_no_timeout_runs_until_a_signal_starts_it(start):
    broker = start(*LADDER, config=cleanup(STUBBORN)).wait_for_state("run")
    asker = subprocess.Popen(
        [*COMMAND, "shutdown", "--rundir", str(broker.rundir)], env=ENV, stderr=subprocess.PIPE, text=True
    )
    broker.wait_for_start("cleanup.0")
    assert "cleanup for" in (told := broker.verb("status").stdout)
    assert "no time limit" in told
    assert [armed for armed in broker.facts(Arm) if armed.timer == "cleanup-timeout"] == []
    assert broker.signal().wait() == 137
    assert [signum for signum, _ in rungs(broker)] == [signal.SIGHUP, signal.SIGTERM, signal.SIGKILL]
    assert rungs(broker)[0][1] >= 6
    _, err = asker.communicate(timeout=10)
    assert asker.returncode == 137
    assert "Killed (rc=137)" in err


def test_two_equal_signals_within_the_time_of_same_signal_are_one(start):
    config = cleanup("until test -e $BROKERCTL_RUNDIR/../go; do sleep 0.02; done")
    words = ("-S", "broker.cleanup-timeout=20s", "-S", "broker.same-signal=15s")
    broker = start(*words, config=config).wait_for_state("run")
    for count in (1, 2):
        broker.signal()
        broker.wait_until(lambda count=count: len(broker.facts(Signal)) == count, "signal")
    (broker.folder / "go").touch()
    assert broker.wait() == 0


def test_sigterm_ends_rc2_by_the_ladder(start):
    broker = start("--", "sleep", "100").wait_for_start("rc2.0")
    broker.signal()
    assert broker.wait() == 129
    assert broker.status()["culprit"]["how"] == "Hangup"


def test_what_was_started_on_purpose_is_left_alone_and_named(start):
    is_there = "test $(cat /proc/$!/comm) = sleep && grep -q '^State:.S' /proc/$!/status"
    broker = start("--", "sh", "-c", f"setsid sleep 1000 >/dev/null 2>&1 & until {is_there}; do :; done; exit 0")
    assert broker.wait() == 0
    (left,) = [pid for pid in broker.left() if "sleep" in proc.command(pid)]
    try:
        assert f"left over: sleep 1000 (pid {left}), state S (sleeping), since 2" in broker.log()
    finally:
        broker.kill_left()


# ---- streams


def test_rc2_has_the_streams_of_the_broker(tmp_path):
    done = brokerctl_("run", "--rundir", tmp_path / "run", "--", "sh", "-c", "cat; echo oops >&2", input="typed\n")
    assert done.returncode == 0
    assert done.stdout == "typed\n"
    assert "oops\n" in done.stderr.splitlines(keepends=True)


@pytest.mark.parametrize("redirect", [">&-", "2>&-", ">&- 2>&- <&-", ">/dev/full 2>/dev/full"])
def test_closed_or_full_streams_change_nothing(tmp_path, redirect):
    # 2>&- also loses the diagnostics of this test: the trace and the code are what counts.
    script = f"{' '.join(COMMAND)} run --rundir {tmp_path}/run --trace {tmp_path}/trace -S broker.cleanup-timeout=2s \
        --config {tmp_path}/config.toml -- sh -c 'echo hello; exit 0' {redirect}"
    (tmp_path / "config.toml").write_text("[[cleanup]]\ncommand = 'echo a; echo b >&2; exit 4'\n")
    done = subprocess.run(["bash", "-c", script], env=ENV, timeout=20, check=False, stdin=subprocess.DEVNULL,
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
    assert done.returncode == 4
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["config.toml", "trace"]


def test_a_reader_that_has_gone_or_does_not_read_changes_nothing(start):
    for close in (True, False):
        reader, writer = os.pipe()
        command = "yes | head -n 20000; exit 3"
        broker = start(config=f"[[cleanup]]\ncommand = '{command}'\n", stderr=writer).wait_for_state("run")
        os.close(writer)
        if close:
            os.close(reader)
        broker.signal()
        assert broker.wait() == 3
        if not close:
            os.close(reader)


def test_a_full_disk_under_the_trace_does_not_change_the_code(tmp_path):
    done = brokerctl_("run", "--rundir", tmp_path / "run", "--trace", "/dev/full", "--", "sh", "-c", "exit 3")
    assert done.returncode == 3
    assert "Traceback" not in done.stderr


def test_the_trace_of_a_stop_by_signal_has_its_transitions(start):
    broker = start(config=cleanup("true"))
    assert stop(broker) == 0
    moves = [(fact.event, fact.old, fact.new) for fact in broker.facts(Moved)]
    assert moves[-6:] == [
        ("shutdown", "run", "cleanup"),
        ("cleanup-success", "cleanup", "shutdown"),
        ("children-none", "shutdown", "finalize"),
        ("rc3-success", "finalize", "goodbye"),
        ("goodbye", "goodbye", "unload-builtins"),
        ("builtins-done", "unload-builtins", "exit"),
    ]
