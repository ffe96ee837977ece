import contextlib
import os
import pty
import select
import signal
import socket
import time
from pathlib import Path

import pytest

from brokerctl import trace
from brokerctl.check.replay import first_difference
from brokerctl.config import with_fields
from brokerctl.kernel import proc
from brokerctl.records import Arm, Command, Exit, Fired, Notify, Output
from brokerctl.settings import Action
from brokerctl.trace import Topology
from brokerctl.worlds.live.broker import LiveBroker
from tests.cli.outsider import COMMAND, ENV, Broker, brokerctl_, replays

# Python 3.12 warns of forks beside threads; the test runner may have some.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")

PATIENCE_S = 20


@pytest.fixture
def start(tmp_path):
    brokers = []

    def start_one(*words, **options):
        brokers.append(Broker(tmp_path / str(len(brokers)), *words, **options))
        return brokers[-1]

    yield start_one
    for broker in brokers:
        broker.kill_left()
        broker.process.wait(PATIENCE_S)


def finish(broker):
    code = broker.wait()
    assert replays(broker.trace)
    return code


def test_in_a_process_of_ones_own_it_is_a_function_that_returns_the_code(tmp_path):
    """Also: its handlers, descriptors and socket are gone when it returns."""
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(_run_here(tmp_path))
        finally:
            os._exit(99)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


def descriptors():
    return sorted(path.name for path in Path("/proc/self/fd").iterdir())


def _run_here(folder):
    settings = with_fields("flux", {"rc2": (Action(Command("exit 7", ("sh", "-c", "exit 7"))),)})
    lines = []
    before = descriptors(), [signal.getsignal(n) for n in range(1, 32)]
    broker = LiveBroker(settings, Topology(), folder, sinks=[lines.append])
    code = broker.run()
    assert isinstance(lines[-1].what, Exit)
    assert [line.n for line in lines] == list(range(len(lines)))
    assert sorted(line.t_ns for line in lines) == [line.t_ns for line in lines]
    assert first_difference(trace.header(settings, Topology()), iter(lines)) is None
    assert (descriptors(), [signal.getsignal(n) for n in range(1, 32)]) == before
    assert not list(folder.iterdir())
    return code


def test_one_that_breaks_down_names_what_it_leaves(tmp_path, capfd):
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(RuntimeError):
            _break_down(tmp_path)
        os._exit(0)
    os.waitpid(pid, 0)
    try:
        (left,) = proc.carriers(b"breakdown-test")
        (line,) = capfd.readouterr().err.splitlines()
        assert line.startswith("<4>broker.warning[0]: left over: ")
        assert f"sleep 1000 (pid {left}), state " in line
    finally:
        for pid in proc.carriers(b"breakdown-test"):
            os.kill(pid, signal.SIGKILL)


def _break_down(folder):
    """A broker in whose way a sink fails, when rc1 has said something."""
    text = "echo up; exec sleep 1000"

    def sink(line):
        if line.what == Output("rc1.0", "out", "up"):
            raise RuntimeError("a bug")

    settings = with_fields("flux", {"rc1": (Action(Command(text, ("sh", "-c", text))),)})
    environment = {**os.environ, proc.COOKIE: "breakdown-test:0"}
    LiveBroker(settings, Topology(), folder, sinks=[sink], environment=environment).run()


def test_timers_fire_no_earlier_than_armed_and_each_once(start):
    broker = start("-S", "broker.cleanup-timeout=0.3s", config="[[cleanup]]\ncommand = 'exec sleep 1000'\n")
    broker.wait_for_state("run").signal()
    assert finish(broker) == 129
    lines = broker.lines()
    (armed,) = [at for at in lines if isinstance(at.what, Arm) and at.what.timer == "cleanup-timeout"]
    (fired,) = [at for at in lines if at.what == Fired("cleanup-timeout")]
    assert fired.t_ns - armed.t_ns >= armed.what.after_ns


def test_the_watchdog_is_fed_from_the_loop_and_the_trace_does_not_know(start, tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(PATIENCE_S)
        broker = start(env={"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "30000"})
        pings = 0
        while pings < 5:
            pings += manager.recv(8192) == b"WATCHDOG=1"
        broker.wait_for_state("run").signal()
        assert finish(broker) == 0
    assert not [fact for fact in broker.facts(Notify) if "WATCHDOG" in fact.text]


def drain(manager):
    """How many messages were there."""
    count = 0
    while True:
        try:
            manager.recv(8192)
        except BlockingIOError:
            return count
        count += 1


def test_a_stopped_broker_feeds_no_watchdog(start, tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(PATIENCE_S)
        broker = start(env={"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "30000"})
        broker.wait_for_state("run").signal(signal.SIGSTOP)
        os.waitid(os.P_PID, broker.process.pid, os.WSTOPPED)
        manager.setblocking(False)
        drain(manager)
        time.sleep(0.2)
        assert drain(manager) == 0
        broker.signal(signal.SIGCONT)
        broker.signal()
        assert finish(broker) == 0


@pytest.mark.parametrize("signum", [signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGALRM])
def test_every_terminating_signal_stops_it(start, signum):
    broker = start().wait_for_state("run").signal(signum)
    assert finish(broker) == 0
    assert f"signal {int(signum)}" in broker.log()


def test_ignored_or_blocked_signals_of_whoever_started_it_do_not_matter(start):
    def ignore_and_block():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGCHLD})

    broker = start(config="[[cleanup]]\ncommand = 'exit 3'\n", preexec_fn=ignore_and_block)
    broker.wait_for_state("run").signal()
    assert finish(broker) == 3


def test_orphans_are_adopted_and_reaped(start):
    broker = start(config="[[rc1]]\ncommand = '(setsid sleep 0.1 >/dev/null 2>&1 &)'\n").wait_for_state("run")
    pid = broker.process.pid
    broker.wait_until(lambda: not _children(pid), "reaping")
    broker.signal()
    assert finish(broker) == 0
    assert "left over" not in broker.log()


def _children(parent):
    return [pid for pid in proc.pids() if (found := proc.stat(pid)) is not None and found.ppid == parent]


def test_a_nested_broker_is_ended_as_a_whole_by_the_ladder_of_the_outer_one(start, tmp_path):
    inner = " ".join([*COMMAND, "run", "--rundir", str(tmp_path / "inner"), "--", "sleep", "1000"])
    config = f"[attrs]\n'broker.kill-ladder' = 'KILL:5s'\n[[cleanup]]\ncommand = '''{inner}'''\ntimeout = '1s'\n"
    broker = start(config=config).wait_for_state("run").signal()
    assert finish(broker) == 137
    assert [pid for pid in broker.left() if pid != broker.process.pid] == []


# ---- a terminal


class Terminal:
    """A broker on a terminal of its own, with a command that inherits it."""

    def __init__(self, tmp_path, *command):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            try:
                argv = [*COMMAND, "run", "--rundir", str(tmp_path / "run"), "--", *command]
                os.execve(argv[0], argv, {**ENV, proc.COOKIE: "terminal-test:0"})  # noqa: S606
            finally:
                os._exit(99)
        self.text = ""

    def until(self, word):
        end = time.monotonic() + PATIENCE_S
        while word not in self.text:
            assert time.monotonic() < end, f"no {word!r} in {self.text!r}"
            if select.select([self.fd], [], [], 0.1)[0]:
                self.text += os.read(self.fd, 4096).decode()
        return self

    def write(self, data):
        os.write(self.fd, data)
        return self

    def wait(self):
        """The exit code; the terminal is read to its end."""
        while True:
            try:
                if not os.read(self.fd, 4096):
                    break
            except OSError:
                break
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def close(self):
        os.close(self.fd)
        for pid in proc.carriers(b"terminal-test"):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def terminal(tmp_path):
    made = []
    yield lambda *command: made.append(Terminal(tmp_path, *command)) or made[-1]
    for each in made:
        each.close()


def test_the_command_has_the_terminal(terminal):
    one = terminal("sh", "-c", "echo ready; read x; echo got $x; exit 5")
    assert one.until("ready").write(b"words\n").until("got words").wait() == 5


def test_an_interrupt_from_the_terminal_is_the_commands_and_the_broker_cleans_up(terminal):
    one = terminal("sh", "-c", "echo ready; exec sleep 1000")
    one.until("ready").write(b"\x03").until("Interrupt (rc=130)")
    assert one.wait() == 130


def test_a_stop_key_stops_nothing_as_nobody_could_continue_it(terminal):
    one = terminal("sh", "-c", "echo ready; exec sed -u s/^/got:/").until("ready")
    assert one.write(b"\x1a").write(b"words\n").until("got:words").write(b"\x04").wait() == 0


def test_a_terminal_that_stops_background_writers_does_not_stop_the_broker(terminal, tmp_path):
    one = terminal("sh", "-c", "stty tostop; echo ready; read x; exit 5").until("ready")
    pushed = brokerctl_("cleanup-push", "--rundir", tmp_path / "run", "echo from cleanup")
    assert pushed.returncode == 0, pushed.stderr
    asked = brokerctl_("status", "--rundir", tmp_path / "run")
    assert asked.returncode == 0, asked.stderr
    assert one.write(b"\n").until("from cleanup").wait() == 5


def test_the_broker_takes_the_terminal_back(terminal):
    assert terminal("sh", "-c", "exit 0").until("rc2-success").wait() == 0
