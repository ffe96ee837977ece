import errno
import fcntl
import os
import signal
import sys
import threading
import time
import warnings
from pathlib import Path

import pytest

from brokerctl.kernel import proc
from brokerctl.kernel import spawn as spawn_module
from brokerctl.kernel.spawn import spawn
from tests.kernel.conftest import PATIENCE_S, run, status_of, wait_for

# Python 3.12 warns of forks beside threads; the test runner may have some.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")

SH = "/bin/sh"


def script(path, text, mode=0o755):
    path.write_text(text)
    path.chmod(mode)
    return str(path)


@pytest.mark.parametrize("code", [0, 1, 2, 126, 127, 128, 255])
def test_an_exit_code_arrives_as_it_is(code):
    assert run([SH, "-c", f"exit {code}"])[0] == code << 8


@pytest.mark.parametrize("signum", [signal.SIGHUP, signal.SIGPIPE, signal.SIGTERM, signal.SIGKILL])
def test_a_death_by_signal_arrives_as_that(signum):
    assert run([SH, "-c", f"kill -{int(signum)} $$"])[0] & 0x7F == signum


@pytest.mark.parametrize("how", ["by path", "by name"])
def test_what_is_not_there_is_enoent(tmp_path, how):
    argv = [str(tmp_path / "none")] if how == "by path" else ["no-such-command"]
    with pytest.raises(FileNotFoundError) as caught:
        spawn(argv, env=dict(os.environ))
    assert caught.value.errno == errno.ENOENT


def test_what_may_not_be_run_is_eacces(tmp_path):
    with pytest.raises(PermissionError):
        spawn([script(tmp_path / "file", "#!/bin/sh\n", 0o644)], env={})
    with pytest.raises(PermissionError):
        spawn([str(tmp_path)], env={})


def test_a_script_without_its_first_line_is_enoexec_and_no_shell_guesses(tmp_path):
    with pytest.raises(OSError, match="Exec format") as caught:
        spawn([script(tmp_path / "text", "echo hello\n")], env={})
    assert caught.value.errno == errno.ENOEXEC


def test_an_interpreter_that_is_not_there_is_enoent(tmp_path):
    with pytest.raises(FileNotFoundError):
        spawn([script(tmp_path / "script", "#!/no/such/interpreter\n")], env={})


def test_too_many_arguments_are_e2big():
    with pytest.raises(OSError, match="too long") as caught:
        spawn([SH, "x" * (4 << 20)], env={})
    assert caught.value.errno == errno.E2BIG


def test_a_name_is_looked_up_in_the_path_of_its_own_environment(tmp_path):
    script(tmp_path / "here", "#!/bin/sh\necho found\n")
    assert run(["here"], env={"PATH": f"/no/such/folder:{tmp_path}"}) == (0, b"found\n")
    with pytest.raises(FileNotFoundError):
        spawn(["here"], env={"PATH": "/no/such/folder"})


def test_a_file_that_may_not_be_run_hides_none_further_down_the_path(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    script(tmp_path / "a" / "it", "#!/bin/sh\necho a\n", 0o644)
    assert spawn_errno(["it"], {"PATH": f"{tmp_path}/a:{tmp_path}/b"}) == errno.EACCES
    script(tmp_path / "b" / "it", "#!/bin/sh\necho b\n")
    assert run(["it"], env={"PATH": f"{tmp_path}/a:{tmp_path}/b"}) == (0, b"b\n")


def spawn_errno(argv, env, **options):
    with pytest.raises(OSError) as caught:  # noqa: PT011 - which one is what is asked
        spawn(argv, env=env, **options)
    return caught.value.errno


def descriptors():
    return sorted(path.name for path in Path("/proc/self/fd").iterdir())


def test_a_failed_start_leaves_neither_process_nor_descriptor(tmp_path):
    before = descriptors(), proc.children()
    for _ in range(20):
        assert spawn_errno([str(tmp_path / "none")], {}) == errno.ENOENT
    assert (descriptors(), proc.children()) == before


def test_it_leads_a_process_group_of_its_own_in_our_session():
    _, data = run([SH, "-c", "echo $$; cut -d' ' -f5,6 /proc/$$/stat"])
    pid, group, session = data.split()
    assert pid == group
    assert int(session) == os.getsid(0)


def test_it_gets_three_streams_and_no_other_descriptor(tmp_path):
    leaked = os.open(tmp_path, os.O_RDONLY)
    os.set_inheritable(leaked, True)
    far = fcntl.fcntl(leaked, fcntl.F_DUPFD, 500)
    try:
        _, data = run([SH, "-c", "ls /proc/$$/fd; readlink /proc/$$/fd/0 /proc/$$/fd/2"])
    finally:
        os.close(leaked)
        os.close(far)
    names = data.decode().split()
    assert names[-2:] == ["/dev/null", "/dev/null"]
    assert {int(name) for name in names[:-2]} == {0, 1, 2}


def test_a_source_may_be_any_of_the_three_streams(tmp_path):
    """A broker may be started with closed streams, so that its pipes become 0, 1 or 2."""
    out = tmp_path / "out"
    pid = os.fork()
    if pid == 0:
        try:
            for fd in (0, 1, 2):
                os.close(fd)
            assert os.open(os.devnull, os.O_RDWR) == 0
            assert os.open(out, os.O_RDWR | os.O_CREAT) == 1
            child = spawn([SH, "-c", "echo out; echo err >&2"], env={}, stdin=0, stdout=1, stderr=1)
            os._exit(os.waitstatus_to_exitcode(status_of(child)))
        finally:
            os._exit(99)
    assert os.waitpid(pid, 0)[1] == 0
    assert out.read_text() == "out\nerr\n"


def test_signals_have_their_default_disposition_and_none_is_blocked():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGUSR1})
    try:
        _, data = run(["grep", "-E", "Sig(Blk|Ign)", "/proc/self/status"])
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGHUP, before)
    for line in data.decode().splitlines():
        # 32 and 33 are the C library's own and can't be set.
        assert int(line.split()[1], 16) & ~(0b11 << 31) == 0, line


def test_blocked_signals_stay_blocked_over_exec_and_are_not_lost():
    program = "import os, signal; os.kill(os.getpid(), 15); print(signal.sigpending(), flush=True)"
    status, data = run([sys.executable, "-S", "-c", program], blocked={signal.SIGTERM})
    assert status == 0
    assert b"SIGTERM" in data


def test_no_handler_of_the_parent_runs_in_the_child():
    """A signal that comes between fork and exec is the child's death or nothing, never a byte in our wake-up socket."""
    seen = []
    before = signal.signal(signal.SIGUSR1, lambda *_: seen.append(os.getpid()))
    try:
        for _ in range(20):
            child = spawn(["sleep", "1000"], env=dict(os.environ))
            os.kill(child.pid, signal.SIGUSR1)
            assert status_of(child) == signal.SIGUSR1
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert not seen


def test_it_runs_as_whom_it_is_told_or_says_why_not():
    own = proc.credentials(os.getpid())
    assert own == (os.geteuid(), os.getegid(), tuple(os.getgroups()))
    other = proc.User(65534, 65533, (12, 65533))
    argv = ["cat", "/proc/self/status"]
    if own.uid == 0:
        words = run(argv, user=other)[1].decode().split()
        for name, value in (("Uid:", 65534), ("Gid:", 65533)):
            assert words[words.index(name) + 1 :][:4] == [str(value)] * 4
        assert words[words.index("Groups:") + 1 :][:2] == ["12", "65533"]
        assert not any(int(words[words.index(name) + 1], 16) for name in ("CapEff:", "CapPrm:", "CapInh:"))
    else:
        assert spawn_errno(argv, dict(os.environ), user=other) == errno.EPERM
    assert run(argv, user=own)[0] == 0


def test_it_starts_where_it_is_told_or_says_why_not(tmp_path):
    assert run(["pwd"], cwd=str(tmp_path))[1].decode().strip() == str(tmp_path.resolve())
    with pytest.raises(FileNotFoundError):
        spawn(["pwd"], env=dict(os.environ), cwd=str(tmp_path / "none"))


def test_a_cgroup_that_can_not_be_joined_is_a_failed_start(tmp_path):
    with pytest.raises(FileNotFoundError):
        spawn(["true"], env=dict(os.environ), cgroup_procs=str(tmp_path / "cgroup.procs"))


def test_nobody_waits_long_for_an_exec_that_hangs(monkeypatch):
    """The child is stopped in front of its exec; it counts as started, and exits with a shell's code later."""

    def stop_then_fail(*_args):
        os.kill(os.getpid(), signal.SIGSTOP)
        return errno.ENOENT

    monkeypatch.setattr(spawn_module, "EXEC_PATIENCE_MS", 50)
    monkeypatch.setattr(spawn_module, "_exec", stop_then_fail)
    began = time.monotonic()
    child = spawn(["x"], env={})
    assert time.monotonic() - began < PATIENCE_S / 2
    wait_for(lambda: os.waitid(os.P_PIDFD, child.pidfd, os.WSTOPPED | os.WNOHANG), "stop")
    os.kill(child.pid, signal.SIGCONT)
    assert status_of(child) == spawn_module.NOT_FOUND << 8


def test_threads_beside_it_are_no_reason_to_warn():
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert run(["true"]) == (0, b"")
    finally:
        done.set()
        thread.join()
