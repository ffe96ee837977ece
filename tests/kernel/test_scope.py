import errno
import os
import signal

import pytest

from brokerctl.kernel import pidfd, proc
from brokerctl.kernel.prctl import become_subreaper
from brokerctl.kernel.scope import Family
from brokerctl.kernel.spawn import spawn
from tests.kernel.conftest import status_of, wait_for

# Python 3.12 warns of forks beside threads; the test runner may have some.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")

COOKIE = "scope-test:run"
TRAP = "trap '' HUP TERM; "


@pytest.fixture(autouse=True)
def nobody_survives():
    yield
    for pid in proc.carriers(b"scope-test"):
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not proc.carriers(b"scope-test"), "end of all")


@pytest.fixture
def family(start):
    """Starts a run of this many processes."""

    def make(text, processes, cookie=COOKIE):
        child = start(["sh", "-c", text], env={**os.environ, proc.COOKIE: cookie})
        made = Family(child.pid, os.dup(child.pidfd), cookie.encode())
        wait_for(lambda: len(sleeping(made)) == processes, f"{processes} processes")
        return made

    return make


def sleeping(family):
    return [pid for pid in family.members() if (found := proc.stat(pid)) is not None and found.comm == "sleep"]


def dies(pid):
    wait_for(lambda: (found := proc.stat(pid)) is None or found.state == "Z", f"death of {pid}")


def end_main(family):
    """The main process exits and is reaped; the others go on."""
    os.kill(family.pid, signal.SIGKILL)
    dies(family.pid)
    os.waitpid(family.pid, 0)
    os.close(family.pidfd)
    family.pidfd = None


def test_the_group_is_signalled_and_who_left_it_is_not(family):
    run = family("sleep 1000 & setsid sleep 1000 & wait", 2)
    assert run.kill(signal.SIGTERM, "group") == 0
    dies(run.pid)
    wait_for(lambda: len(run.members()) == 1, "one left")
    (left,) = run.members()
    assert proc.stat(left).session == left


def test_all_reaches_those_in_sessions_of_their_own(family):
    run = family("sleep 1000 & setsid sleep 1000 & setsid setsid sleep 1000 & wait", 3)
    assert run.kill(signal.SIGTERM, "all") == 0
    wait_for(lambda: not run.members(), "end of all")


def test_each_process_gets_a_signal_once(family, tmp_path):
    tell = f'trap "echo got >> {tmp_path}/log" USR1'
    run = family(f"{tell}; sleep 1000 & setsid sh -c '{tell}; sleep 1000; sleep 1000' & wait; wait; sleep 1000", 2)
    # The sleeps die of it; each of the two shells tells.
    assert run.kill(signal.SIGUSR1, "all") == 0
    log = tmp_path / "log"
    wait_for(lambda: log.exists() and log.read_text() == "got\ngot\n", "two words")
    assert run.kill(signal.SIGKILL, "all") == 0
    wait_for(lambda: not run.members(), "end of all")
    assert log.read_text() == "got\ngot\n"


def test_orphans_of_another_run_are_never_touched(family):
    run = family("sleep 1000", 1)
    other = family("setsid sleep 1000 & exec sleep 1000", 2, cookie="scope-test:other")
    end_main(other)
    assert run.kill(signal.SIGKILL, "all") == 0
    dies(run.pid)
    assert len(sleeping(other)) == 1


def test_what_ignores_the_gentle_signals_dies_of_sigkill(family):
    run = family(f"""{TRAP} (sleep 1000; sleep 1000) & setsid sh -c "{TRAP} sleep 1000; sleep 1000" & wait; wait""", 2)
    for signum in (signal.SIGHUP, signal.SIGTERM):
        assert run.kill(signum, "all") == 0
    assert len(run.members()) >= 3
    assert run.kill(signal.SIGKILL, "all") == 0
    wait_for(lambda: not run.members(), "end of all")


@pytest.mark.parametrize("scope", ["group", "all"])
def test_a_run_of_which_nobody_is_left_is_esrch(family, scope):
    run = family("exec sleep 1000", 1)
    end_main(run)
    wait_for(lambda: not run.members(), "end of all")
    assert run.kill(signal.SIGTERM, scope) == errno.ESRCH


def test_once_the_main_process_is_reaped_the_rest_of_its_group_is_still_reached(family):
    run = family("sleep 1000 & setsid sleep 1000 & exec sleep 1000", 3)
    end_main(run)
    assert run.kill(signal.SIGTERM, "group") == 0
    wait_for(lambda: len(run.members()) == 1, "one left")


def test_a_group_number_that_was_given_to_strangers_is_not_signalled(start):
    """As if the run's number were used again, by another run of ours, which carries another cookie."""
    stranger = start(["sleep", "1000"], env={**os.environ, proc.COOKIE: "stranger:run"})
    gone = Family(stranger.pid, -1, COOKIE.encode())
    gone.pidfd = None
    for scope in ("group", "all"):
        assert gone.kill(signal.SIGKILL, scope) == errno.ESRCH
    assert pidfd.wait(stranger.pidfd) is None


def test_an_adopted_orphan_that_lost_its_environment_still_belongs_to_its_group(tmp_path):
    """In a process of its own, which adopts."""
    result = tmp_path / "result"
    pid = os.fork()
    if pid == 0:
        try:
            become_subreaper()
            result.write_text(_orphan_without_environment())
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    assert result.read_text() == "killed"


def _orphan_without_environment():
    child = spawn(["sh", "-c", "env -i sleep 1000 & sleep 1000"], env={**os.environ, proc.COOKIE: COOKIE})
    run = Family(child.pid, child.pidfd, COOKIE.encode())
    wait_for(lambda: len(proc.carriers(COOKIE.encode())) == 2, "shell and sleep")
    wait_for(lambda: any(proc.stat(p).comm == "sleep" for p in _group(child.pid)), "sleep")
    os.kill(child.pid, signal.SIGKILL)
    status_of(child)
    run.pidfd = None
    for carrier in proc.carriers(COOKIE.encode()):
        os.kill(carrier, signal.SIGKILL)
    wait_for(lambda: not proc.carriers(COOKIE.encode()), "end of the carriers")
    (bare,) = [pid for pid in run.members() if not proc.carries(pid, COOKIE.encode())]
    if run.kill(signal.SIGTERM, "all") != 0:
        return "not reached"
    dies(bare)
    return "killed"


def _group(pgid):
    return [pid for pid in proc.pids() if (found := proc.stat(pid)) is not None and found.pgrp == pgid]


def test_a_main_process_that_left_its_group_is_still_reached(family):
    run = family("exec sleep 1000", 1)
    moved = Family(2**22 - 1, run.pidfd, COOKIE.encode())  # a group that nobody is in
    assert moved.kill(signal.SIGTERM, "group") == 0
    dies(run.pid)
