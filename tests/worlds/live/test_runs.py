import errno
import os
import signal
import subprocess
import sys
import time
import uuid
from contextlib import suppress
from pathlib import Path

import pytest

from brokerctl.kernel import cgroup, proc, reap
from brokerctl.kernel.cgroup import Cgroup
from brokerctl.records import Command, Emptied, Exited, KillFailed, Output, OutputEnded, SpawnFailed
from brokerctl.worlds.live.loop import Loop
from brokerctl.worlds.live.runs import Runs

PATIENCE_S = 20
SIGKILL, SIGTERM, SIGHUP = signal.SIGKILL, signal.SIGTERM, signal.SIGHUP


class Stage:
    """Runs in this process, with what they post."""

    def __init__(self, environment=None):
        self.cookie = f"runs-test-{uuid.uuid4().hex[:8]}"
        self.events = []
        self.loop = Loop()
        self.loop.handle((signal.SIGCHLD,))
        self.runs = Runs(
            self.loop, self.events.append, self.cookie, {**os.environ, **(environment or {})}, adopts=False
        )
        self.loop.on_signal = lambda _: self.runs.child_died()

    def start(self, text, name="cleanup.0", **more):
        self.runs.start(name, Command(text, ("/bin/sh", "-c", text), **more))
        return self

    def until(self, condition, what="event"):
        """Run the loop until it is true."""
        end = time.monotonic() + PATIENCE_S

        def look():
            assert time.monotonic() < end, f"no {what}: {self.events}"
            if condition():
                self.loop.stop()
            else:
                self.loop.after(5_000_000, look)

        look()
        if not condition():
            self.loop.run()
        return self

    def for_a_while(self):
        """What could still come has come; long against the 50 ms of a poll."""
        self.loop.after(200_000_000, self.loop.stop)
        self.loop.run()
        return self

    def of(self, kind):
        return [event for event in self.events if isinstance(event, kind)]

    def until_told(self, kind, count=1):
        return self.until(lambda: len(self.of(kind)) >= count, kind.__name__)

    def until_sleeping(self, count=1, run="cleanup.0"):
        return self.until(lambda: len(self.sleepers(run)) == count, f"{count} sleeping")

    def sleepers(self, run="cleanup.0"):
        return [pid for pid in proc.carriers(f"{self.cookie}:{run}".encode()) if proc.comm(pid) == "sleep"]

    @property
    def kinds(self):
        return [type(event).__name__ for event in self.events]

    def close(self):
        self.runs.close()
        self.loop.close()
        end = time.monotonic() + PATIENCE_S
        while left := proc.carriers(self.cookie.encode()):
            assert time.monotonic() < end
            for pid in left:
                os.kill(pid, SIGKILL)
        for pid in strangers():
            os.kill(pid, SIGKILL)
            with suppress(ChildProcessError):  # ours only if it was adopted
                os.waitpid(pid, 0)
        while (pid := reap.peek()) is not None:
            reap.collect(pid)


@pytest.fixture
def stage():
    made = Stage()
    yield made
    made.close()


# ---- starting, output, exit


def test_lines_then_the_end_of_output_then_the_exit(stage):
    stage.start("echo one; echo two >&2; printf three; exit 3").until_told(Exited)
    assert sorted(stage.of(Output), key=lambda line: line.stream) == [
        Output("cleanup.0", "err", "two"), Output("cleanup.0", "out", "one"), Output("cleanup.0", "out", "three"),
    ]  # fmt: skip
    assert stage.events[-2:] == [OutputEnded("cleanup.0"), Exited("cleanup.0", 3 << 8)]
    assert not stage.runs.knows("cleanup.0")


@pytest.mark.parametrize("turn", range(20))
def test_the_order_holds_however_fast_it_is(stage, turn):
    stage.start("echo x", f"rc1.{turn}").until_told(Exited)
    assert stage.kinds == ["Output", "OutputEnded", "Exited"]


def test_a_process_that_closes_its_output_and_goes_on_tells_the_end_of_it_first(stage):
    stage.start("exec >&- 2>&-; exec sleep 1000").until_told(OutputEnded)
    stage.runs.kill("cleanup.0", SIGTERM, "group")
    stage.until_told(Exited)
    assert stage.events == [OutputEnded("cleanup.0"), Exited("cleanup.0", SIGTERM)]


@pytest.mark.parametrize(
    ("argv", "number"),
    [(("no-such-command",), errno.ENOENT), (("/",), errno.EACCES), (("echo", "a\0b"), errno.EINVAL)],
)
def test_what_cannot_be_started_says_why(stage, argv, number):
    before = len(list(Path("/proc/self/fd").iterdir()))
    stage.runs.start("rc2.0", Command("x", argv))
    assert stage.events == [SpawnFailed("rc2.0", number)]
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_beyond_the_cap_output_is_counted(stage):
    stage.start("head -c 3000000 /dev/zero | tr '\\0' '\\n'").until_told(Exited)
    (ended,) = stage.of(OutputEnded)
    assert len(stage.of(Output)) == 1000
    assert ended.dropped == 3_000_000 - 1000


def test_a_flood_of_output_delays_no_timer(stage):
    late_ns = []

    def again(due_ns):
        late_ns.append(time.monotonic_ns() - due_ns)
        due_ns = time.monotonic_ns() + 5_000_000
        stage.loop.at(due_ns, lambda: again(due_ns))

    stage.start("exec cat /dev/zero")
    again(time.monotonic_ns())
    stage.for_a_while()
    stage.runs.kill("cleanup.0", SIGKILL, "group")
    stage.until_told(Exited)
    assert len(late_ns) > 5
    assert sorted(late_ns)[len(late_ns) // 2] < 20_000_000


def test_an_inheriting_run_has_no_output_to_end(stage):
    stage.start("exit 4", inherit=True).until_told(Exited)
    assert stage.events == [Exited("cleanup.0", 4 << 8)]


def test_a_puppet_starts_with_its_signals_blocked(stage):
    stage.runs.start("rc1.0", Command("x", ("grep", "SigBlk", "/proc/self/status"), puppet="x"))
    stage.until_told(Exited)
    (line,) = stage.of(Output)
    assert int(line.text.split()[1], 16) & (1 << (SIGTERM - 1))


def test_cookies_of_nested_brokers_are_chained():
    stage = Stage({proc.COOKIE: "outer:rc2.0"})
    try:
        stage.start("exec sleep 1000").until_sleeping()
        (pid,) = stage.sleepers()
        assert proc.carries(pid, b"outer:rc2.0")
        assert proc.carries(pid, f"{stage.cookie}:cleanup.0".encode())
    finally:
        stage.close()


# ---- output that somebody holds


def test_a_child_that_holds_the_output_delays_its_end_and_not_the_exit(stage):
    stage.start("sleep 1000 & exit 0").until_told(Exited).for_a_while()
    assert stage.kinds == ["Exited"]
    stage.runs.kill("cleanup.0", SIGTERM, "group")
    stage.until_told(OutputEnded)


def test_closing_the_output_names_who_held_it(stage):
    stage.start("echo last; setsid sleep 1000 & exit 0").until_told(Exited).until_sleeping()
    (pid,) = stage.sleepers()
    stage.runs.close_output("cleanup.0")
    assert stage.events[-1] == OutputEnded("cleanup.0", 0, f"sleep (pid {pid})")
    assert Output("cleanup.0", "out", "last") in stage.events
    stage.runs.close_output("cleanup.0")
    assert len(stage.of(OutputEnded)) == 1


def test_a_stranger_without_a_cookie_is_named_too(stage):
    stage.start(f"setsid env -i {STRANGER} & exit 0").until_told(Exited)
    (stranger,) = stage.until(strangers, "stranger") and strangers()
    stage.runs.close_output("cleanup.0")
    assert stage.of(OutputEnded) == [OutputEnded("cleanup.0", 0, f"sleep (pid {stranger})")]
    os.kill(stranger, SIGKILL)


STRANGER = f"sleep 1000.{uuid.uuid4().int % 10**12}"  # nobody else's


def strangers():
    return [pid for pid in proc.pids() if proc.command(pid) == STRANGER]


# ---- signalling


def test_a_signal_to_nobody_is_esrch(stage):
    stage.runs.kill("rc1.7", SIGTERM, "group")
    assert stage.events == [KillFailed("rc1.7", SIGTERM, errno.ESRCH)]


def test_all_is_told_as_empty_once_after_everything_else(stage):
    stage.start("setsid sleep 1000 & sleep 1000").until_sleeping(2)
    stage.runs.kill("cleanup.0", SIGHUP, "all")
    stage.runs.kill("cleanup.0", SIGHUP, "all")
    stage.until_told(Emptied).for_a_while()
    assert stage.kinds[-1] == "Emptied"
    assert sorted(stage.kinds) == ["Emptied", "Exited", "OutputEnded"]
    assert stage.of(Exited) == [Exited("cleanup.0", SIGHUP)]
    assert not stage.runs.knows("cleanup.0")


def test_as_long_as_somebody_is_left_it_is_not_empty(stage):
    stage.start("setsid sh -c \"trap '' HUP; sleep 1000; sleep 1000\" & exec sleep 1000").until_sleeping(2)
    stage.runs.kill("cleanup.0", SIGHUP, "all")
    stage.until_told(Exited).for_a_while()
    assert not stage.of(Emptied)
    stage.runs.kill("cleanup.0", SIGKILL, "all")
    stage.until_told(Emptied)
    assert len(stage.of(Emptied)) == 1


def test_a_group_signal_is_never_followed_by_emptied(stage):
    stage.start("exec sleep 1000").until_sleeping()
    stage.runs.kill("cleanup.0", SIGTERM, "group")
    stage.until_told(Exited).for_a_while()
    assert stage.kinds == ["OutputEnded", "Exited"]


def test_a_run_that_exited_is_empty_when_the_rest_of_it_has_gone(stage):
    stage.start("setsid sleep 1000 & exit 0").until_told(Exited).until_sleeping()
    stage.runs.kill("cleanup.0", SIGTERM, "all")
    stage.until_told(Emptied)
    assert stage.kinds == ["Exited", "OutputEnded", "Emptied"]


def test_a_pipe_in_a_strangers_hand_does_not_hold_emptied_up(stage):
    stage.start(f"setsid env -i {STRANGER} & exit 0").until_told(Exited)
    stage.until(strangers, "stranger")
    stage.runs.kill("cleanup.0", SIGTERM, "all")
    stage.until_told(Emptied)
    assert stage.of(KillFailed) == [KillFailed("cleanup.0", SIGTERM, errno.ESRCH)]
    assert not stage.of(OutputEnded)
    for pid in strangers():
        os.kill(pid, SIGKILL)
    stage.until_told(OutputEnded)


def test_of_an_abandoned_run_nothing_is_told_but_it_is_reaped(stage):
    stage.start("echo x; exec sleep 1000").until_told(Output).until_sleeping()
    (pid,) = stage.sleepers()
    stage.runs.abandon("cleanup.0")
    told = list(stage.events)
    os.kill(pid, SIGKILL)
    stage.until(lambda: proc.stat(pid) is None, "reaping")
    assert stage.events == told


def test_the_status_of_a_child_is_never_taken_by_the_reaper(stage):
    for number in range(20):
        stage.start(f"exit {number}", f"rc1.{number}")
    for _ in range(50):
        stage.runs.child_died()
    stage.until_told(Exited, 20)
    assert sorted(event.status >> 8 for event in stage.of(Exited)) == list(range(20))


def test_who_is_left_over_is_known(stage):
    others = stage.runs.leftovers()  # of this process, by other tests
    stage.start("setsid sleep 1000 >/dev/null 2>&1 & exit 0").until_told(Exited).until_sleeping()
    assert [pid for pid in stage.runs.leftovers() if pid not in others] == stage.sleepers()


# ---- a delegated cgroup


@pytest.fixture
def folder(monkeypatch):
    mounted = cgroup.mount_point(Path("/proc/self/mountinfo").read_text())
    if mounted is None:
        pytest.skip("no cgroup v2 is mounted")
    path = Path(mounted[0]) / f"brokerctl-test-{uuid.uuid4().hex[:8]}"
    try:
        path.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be made: {error.strerror}")
    monkeypatch.setattr(cgroup, "delegated", lambda: str(path))
    yield path
    Cgroup(str(path)).kill()
    end = time.monotonic() + PATIENCE_S
    while not Cgroup(str(path)).remove():
        assert time.monotonic() < end


def test_each_run_has_a_cgroup_of_its_own_which_goes_with_it(folder):
    stage = Stage()
    try:
        stage.start("exec sleep 1000").until_sleeping()
        assert [entry.name for entry in folder.iterdir() if entry.is_dir()] == [f"run-{os.getpid()}.cleanup.0"]
        stage.runs.kill("cleanup.0", SIGTERM, "all")
        stage.until_told(Emptied)
        assert not [entry for entry in folder.iterdir() if entry.is_dir()]
    finally:
        stage.close()


def test_in_a_cgroup_nobody_escapes(folder):
    stage = Stage()
    try:
        stage.start(f"setsid env -i {STRANGER} & exit 0").until_told(Exited)
        group = Cgroup(f"{folder}/run-{os.getpid()}.cleanup.0")
        stage.until(lambda: [proc.comm(pid) for pid in group.members()] == ["sleep"], "sleep")
        stage.runs.kill("cleanup.0", SIGKILL, "all")
        stage.until_told(Emptied)
        assert not group.members()
    finally:
        stage.close()


def test_two_brokers_in_one_cgroup_never_signal_each_others_runs(folder):
    """Both have a cleanup.0, as two have that are started in one terminal's scope."""
    program = "\n".join([
        "import os, signal, sys, time",
        "from brokerctl.kernel import cgroup",
        "from brokerctl.records import Command",
        "from brokerctl.worlds.live.loop import Loop",
        "from brokerctl.worlds.live.runs import Runs",
        f"cgroup.delegated = lambda: {str(folder)!r}",
        "runs = Runs(Loop(), lambda event: None, 'other', dict(os.environ), adopts=False)",
        "runs.start('cleanup.0', Command('x', ('sleep', '1000')))",
        "runs.kill('cleanup.0', signal.SIGKILL, 'all')",
    ])  # fmt: skip
    stage = Stage()
    try:
        stage.start("exec sleep 1000").until_sleeping()
        subprocess.run([sys.executable, "-c", program], check=True, timeout=PATIENCE_S)
        stage.for_a_while()
        assert len(stage.sleepers()) == 1
    finally:
        stage.close()


def test_a_start_that_fails_leaves_no_cgroup(folder):
    stage = Stage()
    try:
        stage.runs.start("rc1.0", Command("x", ("no-such-command",)))
        assert stage.events == [SpawnFailed("rc1.0", errno.ENOENT)]
        assert not [entry for entry in folder.iterdir() if entry.is_dir()]
    finally:
        stage.close()
