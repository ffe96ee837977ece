"""`brokerctl start`: a tree of real brokers, as an outsider has it."""

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from brokerctl import trace
from brokerctl.kernel import proc
from brokerctl.records import Moved, Signal
from tests.cli.outsider import COMMAND, ENV, PATIENCE_S, brokerctl_, replays

QUICK = ("-S", "broker.shutdown-slack=1s", "-S", "broker.kill-ladder=HUP:0.5s,TERM:0.5s,KILL:1s")


def _cmdline(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""  # it has gone


class Instance:
    """A `brokerctl start` that a test has started."""

    def __init__(self, folder, size, *words, config="", env=None, **options):
        folder.mkdir()
        self.folder, self.size = folder, size
        self.tree, self.trace, self.stderr = folder / "r", folder / "trace", folder / "stderr"
        self.cookie = secrets.token_hex(8)
        (folder / "config.toml").write_text(config)
        self.argv = [
            *COMMAND, "start", "--size", str(size), "--config", str(folder / "config.toml"),
            "--rundir", str(self.tree), "--trace", str(self.trace), *words,
        ]  # fmt: skip
        environment = {**ENV, proc.COOKIE: f"{self.cookie}:test", **(env or {})}
        with self.stderr.open("wb") as stderr, (folder / "stdout").open("wb") as stdout:
            options = {"stdin": subprocess.DEVNULL, "stdout": stdout, "stderr": stderr, **options}
            self.process = subprocess.Popen(self.argv, env=environment, start_new_session=True, **options)

    def log(self):
        return self.stderr.read_text()

    def wait_until(self, condition, what, alive=True):
        end = time.monotonic() + PATIENCE_S
        while not condition():
            assert not alive or self.process.poll() is None, f"ended before {what}: {self.log()}"
            assert time.monotonic() < end, f"no {what}: {self.log()}"
            time.sleep(0.02)
        return self

    def wait_for_log(self, text):
        return self.wait_until(lambda: text in self.log(), repr(text))

    def wait_for_run(self):
        return self.wait_until(lambda: self.log().count("quorum-full: quorum->run") == self.size, "RUN of all ranks")

    def pid(self, rank):
        return int((self.tree / str(rank) / "lock").read_text())

    def kill(self, rank, signum=signal.SIGKILL):
        os.kill(self.pid(rank), signum)
        return self

    def wait(self, timeout=PATIENCE_S):
        return self.process.wait(timeout)

    def verb(self, name, rank, *words):
        return brokerctl_(name, "--rundir", self.tree / str(rank), *words)

    def lines(self):
        return list(trace.read(self.trace)[1])

    def left(self):
        return proc.carriers(self.cookie.encode())


@pytest.fixture
def start(tmp_path_factory):
    """Starts instances; each has ended and left no process behind, and its trace replays."""
    folder = tmp_path_factory.mktemp("s")
    instances = []

    def start_one(size, *words, **options):
        instances.append(Instance(folder / str(len(instances)), size, *words, **options))
        return instances[-1]

    yield start_one
    problems = []
    for instance in instances:
        if instance.process.poll() is None:
            problems.append(f"{instance.argv} still runs: {instance.log()}")
            instance.process.kill()
        if left := [proc.command(pid) for pid in instance.left()]:
            problems.append(f"left behind: {left}")
        while left := instance.left():
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)
        instance.process.wait(PATIENCE_S)
        if instance.process.returncode >= 0 and instance.tree.exists():
            problems.append(f"{instance.tree} is still there: {list(instance.tree.rglob('*'))}")
    assert not problems
    for instance in instances:
        if instance.process.returncode >= 0 and instance.trace.is_file() and instance.trace.stat().st_size:
            assert replays(instance.trace)


# ---- the whole


def test_a_tree_of_two_ends_with_its_command_and_its_code(start):
    instance = start(2, "--", "sh", "-c", "echo said; echo warned >&2; exit 7")
    assert instance.wait() == 7
    assert (instance.folder / "stdout").read_text() == "said\n"
    log = instance.log().splitlines()
    assert log[0].startswith("<6>start.info[0]: 2 brokers")
    assert log[0].endswith(f"brokerctl status --rundir {instance.tree}/0")
    assert "warned" in log
    assert any(line.startswith("<6>broker.info[1]: builtins-done") for line in log)
    assert {line.rank for line in instance.lines()} == {0, 1}


def test_the_traces_of_all_ranks_are_merged_by_time(start):
    instance = start(5, "--topology", "flat", "--", "true")
    assert instance.wait() == 0
    lines = instance.lines()
    keys = [(line.t_ns, line.rank, line.n) for line in lines]
    assert keys == sorted(keys)
    assert {line.rank for line in lines} == set(range(5))
    assert trace.read(instance.trace)[0].rank == -1


def test_a_directory_gets_the_trace_of_each_rank(start, tmp_path):
    assert start(3, "--trace", str(tmp_path), "--", "true").wait() == 0
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["0.jsonl", "1.jsonl", "2.jsonl"]
    for name in names:
        assert replays(tmp_path / name)


def test_a_terminating_signal_goes_to_the_leader_once_and_stops_all_in_order(start):
    instance = start(3).wait_for_run()
    instance.process.terminate()
    assert instance.wait() == 0
    lines = instance.lines()
    assert [(line.rank, line.what) for line in lines if isinstance(line.what, Signal)] == [(0, Signal(15))]
    states = [(line.rank, line.what.new) for line in lines if isinstance(line.what, Moved)]
    assert states.index((1, "goodbye")) < states.index((0, "finalize"))


def test_the_other_verbs_work_with_each_ranks_rundir(start):
    instance = start(3).wait_for_run()
    for rank in range(3):
        answer = json.loads(instance.verb("status", rank, "--json").stdout)
        assert (answer["rank"], answer["size"], answer["state"]) == (rank, 3, "run")
    refused = instance.verb("shutdown", 1)
    assert (refused.returncode, refused.stderr) == (
        1, "brokerctl shutdown: shutdown may only be initiated on rank 0\n",
    )  # fmt: skip
    refused = instance.verb("cleanup-push", 2, "true")
    assert "cleanup actions exist only on rank 0" in refused.stderr
    assert instance.verb("cleanup-push", 0, "exit 5").returncode == 0
    assert instance.verb("shutdown", 0).returncode == 5
    assert instance.wait() == 5


def test_an_action_runs_on_the_ranks_that_it_names(start):
    config = """
    [[cleanup]]
    command = "touch $BROKERCTL_RUNDIR/../../at.$BROKERCTL_RANK"
    ranks = "0,2-3"
    """
    instance = start(5, "--", "true", config=config)
    assert instance.wait() == 0
    assert sorted(path.name for path in instance.folder.glob("at.*")) == ["at.0", "at.2", "at.3"]


def test_the_status_file_is_the_leaders(start, tmp_path):
    assert start(2, "--status-file", str(tmp_path / "status"), "--", "sh", "-c", "exit 4").wait() == 4
    status = json.loads((tmp_path / "status").read_text())
    assert (status["kind"], status["code"], status["culprit"]["run"]) == ("exited", 4, "rc2.0")


def test_settings_hold_on_every_rank(start):
    config = '[[rc3]]\ncommand = "exit $BROKERCTL_RANK"\n'
    instance = start(3, "--", "true", config=config)
    assert instance.wait() == 0
    assert "<3>broker.err[2]: rc3.0: exit $BROKERCTL_RANK Exited (rc=2)" in instance.log()
    assert "<3>broker.err[1]: rc3.0: exit $BROKERCTL_RANK Exited (rc=1)" in instance.log()


# ---- losses


def test_a_router_that_is_killed_while_an_action_runs_everywhere(start):
    config = '[[cleanup]]\ncommand = "sleep 1000"\nranks = "all"\n'
    instance = start(
        8, "--topology", "kary:2", "-S", "broker.cleanup-timeout=4s", *QUICK, config=config
    ).wait_for_run()  # fmt: skip
    began = time.monotonic()
    instance.kill(0, signal.SIGTERM)
    instance.wait_until(
        lambda: sum(b"sleep\x001000" in _cmdline(pid) for pid in instance.left()) == 8,
        "the action on all ranks",
    )
    instance.kill(1)
    assert instance.wait() == 129
    assert time.monotonic() - began < 15
    host = os.uname().nodename
    log = instance.log()
    assert f"<3>overlay.err[0]: {host} (rank 1) failed and severed contact with 3 other nodes" in log
    assert f"(rank 1,3-4,7): {host} (rank 1): No route to host" in log
    assert "start.err[1]: the broker (pid " in log
    assert "was killed by SIGKILL" in log
    assert "its orphan is killed: sleep 1000" in log


def test_a_leader_that_is_killed_gives_its_signal_as_code_and_the_others_end(start):
    instance = start(4).wait_for_run().kill(0)
    assert instance.wait() == 137
    assert instance.log().count("disconnecting: connection lost") >= 2


def test_remote_actions_end_by_the_ladder_of_their_rank_when_the_leader_is_killed(start):
    config = """
    [[cleanup]]
    command = "trap '' HUP TERM; while :; do sleep 1000; done"
    ranks = "1-2"
    """
    instance = start(3, *QUICK, config=config).wait_for_run()
    instance.kill(0, signal.SIGTERM)
    instance.wait_until(
        lambda: sum(b"sleep\x001000" in _cmdline(pid) for pid in instance.left()) == 2, "the action on both ranks"
    )
    instance.kill(0)
    assert instance.wait() == 137
    for rank in (1, 2):
        assert f"<3>broker.err[{rank}]: rexec.cleanup.0: trap '' HUP TERM" in instance.log()
    assert instance.log().count(" Killed (rc=137)") == 2


def test_who_outlives_the_leader_for_too_long_is_told_to_end_and_then_killed(start):
    instance = start(3, "--exit-timeout", "1s", *QUICK).wait_for_run()
    pid = instance.pid(2)
    instance.kill(2, signal.SIGSTOP)
    instance.process.terminate()
    assert instance.wait() == 0
    log = instance.log()
    assert "(rank 2) is shed: it holds the shutdown" in log
    assert f"<3>start.err[2]: the broker (pid {pid}) is still there 1s after the leader's end" in log
    assert f"<3>start.err[2]: the broker (pid {pid}) does not end on SIGTERM; it gets SIGKILL" in log


def test_when_start_itself_is_killed_everything_ends_in_order(start):
    config = '[[cleanup]]\ncommand = "touch $BROKERCTL_RUNDIR/../../cleaned.$BROKERCTL_RANK"\nranks = "all"\n'
    instance = start(4, config=config).wait_for_run()
    instance.process.kill()
    instance.process.wait()
    instance.wait_until(lambda: not instance.left(), "end of all brokers", alive=False)
    assert len(list(instance.folder.glob("cleaned.*"))) == 4


def test_a_follower_whose_parent_never_comes_ends_with_its_starter(tmp_path):
    settings = tmp_path / "settings"
    settings.write_text('[{"goodbye_timeout_ns": 1000000}, {"parents": [-1, 0], "hosts": ["a", "b"]}]')
    words = ["run", "--settings", settings, "--rank", "1", "--parent", tmp_path / "nobody", "--rundir", tmp_path / "r"]
    code = "import os,sys,subprocess; subprocess.Popen([*sys.argv[1:], '--starter', str(os.getpid())])"
    subprocess.run(["python3", "-c", code, *COMMAND, *map(str, words)], check=True, env=ENV, capture_output=True)
    end = time.monotonic() + PATIENCE_S
    while (tmp_path / "r").exists() or not settings.exists():
        assert time.monotonic() < end
        time.sleep(0.02)


# ---- who reads nothing


def test_a_reader_of_stderr_that_sleeps_holds_nobody_up(start):
    reader, writer = os.pipe()
    try:
        config = "[[rc1]]\ncommand = \"head -c 60000 /dev/zero | tr '\\\\0' x | fold -w 100\"\n"
        instance = start(4, "--", "true", config=config, stderr=writer)
        os.close(writer)
        assert instance.wait() == 0
    finally:
        os.close(reader)


# ---- a tree that is there already


def test_a_tree_that_is_in_use_is_refused(start):
    instance = start(2).wait_for_run()
    done = brokerctl_("start", "--size", "2", "--rundir", instance.tree)
    assert (done.returncode, done.stderr) == (
        2, f"brokerctl start: rundir {instance.tree} is in use by pid {instance.process.pid}\n",
    )  # fmt: skip
    instance.process.terminate()
    assert instance.wait() == 0


def test_what_an_earlier_tree_left_when_it_was_killed_is_no_hindrance(start):
    instance = start(3).wait_for_run()
    os.kill(instance.process.pid, signal.SIGSTOP)  # or its death would make the leader stop in good order
    for pid in [*map(instance.pid, range(3)), instance.process.pid]:
        os.kill(pid, signal.SIGKILL)
    instance.process.wait()
    instance.wait_until(lambda: not instance.left(), "end of all brokers", alive=False)
    assert (instance.tree / "0" / "tbon").exists()
    again = brokerctl_("start", "--size", "3", "--rundir", instance.tree, "--", "true")
    assert again.returncode == 0, again.stderr


def test_a_tree_of_which_a_broker_still_lives_is_refused_before_anything_is_started(start):
    instance = start(2, config='[[cleanup]]\ncommand = "sleep 3"\n').wait_for_run()
    leader = instance.pid(0)
    instance.process.kill()
    instance.process.wait()
    again = brokerctl_("start", "--size", "2", "--rundir", instance.tree)
    assert (again.returncode, again.stderr) == (
        2, f"brokerctl start: rundir {instance.tree}/0 is in use by pid {leader}\n",
    )  # fmt: skip
    instance.wait_until(lambda: not instance.left(), "end of all brokers", alive=False)


def test_a_broker_that_is_frozen_does_not_outlive_a_start_that_is_killed(start):
    instance = start(3, *QUICK).wait_for_run().kill(2, signal.SIGSTOP)
    instance.wait_until(lambda: proc.stat(instance.pid(2)).state == "T", "frozen broker")
    instance.process.kill()
    instance.process.wait()
    # A stopped process whose group becomes an orphan gets SIGHUP and SIGCONT (setpgid(2)).
    instance.wait_until(lambda: not instance.left(), "end of all brokers", alive=False)


# ---- hostile neighbours


def test_nonsense_on_the_socket_for_children_drops_its_sender_and_nothing_else(start):
    instance = start(3).wait_for_run()
    path = instance.tree / "0" / "tbon"
    assert path.stat().st_mode & 0o777 == 0o600
    hello = b'{"brokerctl-tbon":1,"rank":%d}\n'
    for said in (
        b"\0\xff" * 50 + b"\n", b"x" * 10_000, b'{"brokerctl-tbon":2,"rank":1}\n', hello % 0, hello % 2**70, hello % 1,
        b"[" * 200 + b"\n", b"\n",
    ):  # fmt: skip
        with socket.socket(socket.AF_UNIX) as peer:
            peer.settimeout(PATIENCE_S)
            peer.connect(str(path))
            peer.sendall(said)
            with contextlib.suppress(ConnectionError):
                assert peer.recv(4096) == b""
    silent = [socket.socket(socket.AF_UNIX) for _ in range(60)]
    for peer in silent:
        peer.connect(str(path))
    assert "run for" in instance.verb("status", 0).stdout
    instance.wait_for_log("tbon: too many connections of nobody known")
    for peer in silent:
        peer.close()
    for why in ("a line that is too long", "no first line of a broker", "rank 0, which is no child", "for a second"):
        instance.wait_for_log(why)
    instance.process.terminate()
    assert instance.wait() == 0
    assert {line.rank for line in instance.lines() if isinstance(line.what, Moved) and line.what.new == "exit"} == {
        0, 1, 2,
    }  # fmt: skip
