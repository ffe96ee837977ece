"""A private systemd: what it gives to those who use it, and that it leaves nothing behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from brokerctl.errors import KernelError
from brokerctl.kernel import cgroup
from brokerctl.kernel.cgroup import Cgroup
from brokerctl.worlds.systemd import private
from brokerctl.worlds.systemd.private import PrivateSystemd, unsupported
from tests.kernel.conftest import wait_for

SLEEPER = "[Service]\nType=exec\nExecStart=/bin/sh -c 'echo hello; exec sleep 1000'\n"


@pytest.fixture
def supported():
    if reason := unsupported():
        pytest.skip(f"no private systemd: {reason}")


def traces(name):
    """The cgroup and the mount point of a private systemd, where they are there."""
    return [path for path in (Path(cgroup.own_folder()) / name, Path("/run") / name) if path.exists()]


def test_a_unit_runs_and_its_journal_is_there(private_systemd):
    private_systemd.unit("sleeper.service", SLEEPER)
    private_systemd.systemctl("start", "sleeper.service")
    assert private_systemd.show("sleeper.service", "ActiveState", "Result") == {
        "ActiveState": "active", "Result": "success",
    }  # fmt: skip
    private_systemd.systemctl("stop", "sleeper.service")
    journal = private_systemd.journal("sleeper.service")
    assert journal.count("hello") == 1
    assert journal[-1].startswith("Stopped sleeper.service")


def test_the_next_test_sees_nothing_of_it(private_systemd):
    assert private_systemd.journal("sleeper.service") == []
    assert private_systemd.show("sleeper.service", "LoadState")["LoadState"] == "not-found"


@pytest.mark.parametrize("nth", [1, 2])
def test_a_unit_that_a_test_leaves_active_has_gone_in_the_next(private_systemd, nth):
    assert private_systemd.show("sleeper.service", "ActiveState")["ActiveState"] == "inactive", nth
    private_systemd.unit("sleeper.service", SLEEPER)
    private_systemd.systemctl("start", "sleeper.service")


def test_the_directory_of_a_test_the_interpreter_and_the_package_are_the_same_inside(private_systemd, tmp_path):
    program = f"import brokerctl; open({str(tmp_path / 'inside')!r}, 'w').write(brokerctl.__file__)"
    private_systemd.run([sys.executable, "-c", program], env={"PYTHONPATH": str(Path(private.__file__).parents[3])})
    assert (tmp_path / "inside").read_text().endswith("brokerctl/__init__.py")


def test_what_is_written_elsewhere_is_not_written_on_the_host(private_systemd):
    private_systemd.run(["sh", "-c", "echo x >/etc/brokerctl-test; echo y >/usr/brokerctl-test"])
    assert private_systemd.path("/etc/brokerctl-test").read_text() == "x\n"
    assert not Path("/etc/brokerctl-test").exists()
    assert not Path("/usr/brokerctl-test").exists()
    private_systemd.run(["rm", "/etc/brokerctl-test", "/usr/brokerctl-test"])


def test_the_settings_of_the_kernel_are_the_hosts_and_stay_as_they_are(private_systemd):
    highest = Path("/proc/sys/fs/file-max").read_text().strip()
    done = private_systemd.run(["sh", "-c", f"echo {highest} >/proc/sys/fs/file-max"], check=False)
    assert "Read-only file system" in done.stderr
    assert int(private_systemd.path("/proc/sys/net/unix/max_dgram_qlen").read_text()) >= 512, "for its log"


def test_a_message_bus_is_there_for_freezing_and_for_waiting(private_systemd):
    private_systemd.unit("sleeper.service", SLEEPER)
    private_systemd.systemctl("start", "sleeper.service")
    private_systemd.systemctl("freeze", "sleeper.service")
    assert private_systemd.show("sleeper.service", "FreezerState")["FreezerState"] == "frozen"
    private_systemd.systemctl("thaw", "sleeper.service")
    private_systemd.systemctl("stop", "sleeper.service")
    private_systemd.unit("once.service", "[Service]\nType=oneshot\nExecStart=false\n")
    assert private_systemd.systemctl("start", "--wait", "once.service", check=False).returncode == 1


def test_a_unit_does_not_carry_the_mark_of_the_test_that_booted_it(private_systemd):
    private_systemd.unit("env.service", "[Service]\nType=oneshot\nExecStart=env\n")
    private_systemd.systemctl("start", "env.service")
    assert not [line for line in private_systemd.journal("env.service") if line.startswith("BROKERCTL_TEST_MARK=")]


def test_the_error_of_a_command_inside_is_one_line(private_systemd):
    with pytest.raises(KernelError, match=r"systemctl start nowhere\.service: exit code 5: .*not found"):
        private_systemd.systemctl("start", "nowhere.service")
    with pytest.raises(KernelError, match=r"sleep 10: has not ended after 0\.1 s"):
        private_systemd.run(["sleep", "10"], limit_s=0.1)


@pytest.mark.usefixtures("supported")
def test_nothing_is_left_of_one_that_was_closed_and_several_run_at_once():
    with PrivateSystemd() as first, PrivateSystemd() as second:
        for manager in (first, second):
            manager.unit("sleeper.service", SLEEPER)
            manager.systemctl("start", "sleeper.service")
            assert int(manager.show("sleeper.service", "MainPID")["MainPID"]) > 0
            assert len(traces(manager.name)) == 2
    for manager in (first, second):
        assert traces(manager.name) == []
        assert not Path(f"/proc/{manager.pid}").exists()


@pytest.mark.usefixtures("supported")
def test_nothing_is_left_of_one_whose_boot_fails_half_way(tmp_path, monkeypatch):
    script = tmp_path / "private.sh"
    script.write_text(private.SCRIPT.read_text().replace("pivot_root . .", "pivot_root /nonexistent ."))
    monkeypatch.setattr(private, "SCRIPT", script)
    monkeypatch.setattr(private.secrets, "token_hex", lambda _: f"half-way-{os.getpid()}")
    with pytest.raises(KernelError, match=r"cannot boot a systemd: .*No such file"):
        PrivateSystemd()
    assert traces(f"brokerctl-systemd-half-way-{os.getpid()}") == []


@pytest.mark.usefixtures("supported")
def test_nothing_is_left_of_one_that_gets_no_cgroup(tmp_path, monkeypatch):
    monkeypatch.setattr(private.cgroup, "own_folder", lambda: str(tmp_path / "nowhere"))
    monkeypatch.setattr(private.secrets, "token_hex", lambda _: f"no-cgroup-{os.getpid()}")
    with pytest.raises(KernelError, match=r"cannot boot a systemd: mkdir: .*No such file"):
        PrivateSystemd()
    assert not (Path("/run") / f"brokerctl-systemd-no-cgroup-{os.getpid()}").exists()


@pytest.mark.usefixtures("supported")
def test_nothing_is_left_where_its_user_is_killed():
    program = """
import time
from brokerctl.worlds.systemd.private import PrivateSystemd
manager = PrivateSystemd()
manager.unit("sleeper.service", "[Service]\\nExecStart=sleep 1000\\n")
manager.systemctl("start", "sleeper.service")
print(manager.pid, manager.name, flush=True)
time.sleep(100)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as user:
        inner, name = user.stdout.readline().split()
        assert len(traces(name)) == 2
        user.send_signal(signal.SIGKILL)
    wait_for(lambda: not traces(name) and not Path(f"/proc/{inner}").exists(), "the end of all traces")


@pytest.mark.usefixtures("supported")
def test_it_is_killed_with_its_keeper():
    manager = PrivateSystemd()
    os.kill(manager._keeper.pid, signal.SIGKILL)
    wait_for(lambda: not manager._is_systemd(), "the end of systemd")
    for deed in (manager.forget, manager.is_busy):  # its number may be anybody's now, and the host's files behind it
        with pytest.raises(KernelError, match="the private systemd has ended"):
            deed()
    with pytest.raises(KernelError, match="cannot end a private systemd"):
        manager.close()
    for path in traces(manager.name):
        wait_for(Cgroup(str(path)).remove, "removal of what the keeper would have removed")


@pytest.mark.usefixtures("supported")
def test_a_caller_may_sit_in_a_cgroup_below_others():
    outer = Path(cgroup.own_folder()) / f"brokerctl-test-{os.getpid()}"
    nested = outer / "nested"
    nested.mkdir(parents=True)
    program = """
from brokerctl.worlds.systemd.private import PrivateSystemd
with PrivateSystemd() as manager:
    print(manager.systemctl("is-system-running").stdout)
"""
    try:
        done = subprocess.run(
            ["sh", "-c", 'echo 0 >"$1/cgroup.procs"; exec "$2" -c "$3"', "sh", nested, sys.executable, program],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert (done.stdout.strip(), done.stderr) == ("running", "")
    finally:
        wait_for(lambda: _removed(nested) and _removed(outer), "removal of the cgroups")


def _removed(folder):
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("31 23 8:2 / /home rw - ext4 /dev/sda2 rw", ["/home"]),
        ("31 23 0:26 / /srv rw - tmpfs tmpfs rw", ["/srv"]),
        ("31 23 8:2 /a /with\\040space rw shared:1 master:2 - ext4 /dev/sda2 rw", ["/with space"]),
        ("31 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw", []),
        ("31 23 0:26 / /run/user/0 rw - tmpfs tmpfs rw", []),
        ("31 23 8:2 /id /etc/machine-id ro - ext4 /dev/sda2 rw", []),
        ("31 23 8:2 /id /etc/resolv.conf ro - ext4 /dev/sda2 rw", ["/etc/resolv.conf"]),
        ("31 23 0:50 / /net rw - autofs x rw", []),
    ],
)
def test_mounts_of_real_file_systems_are_seen_inside(line, found):
    assert private.mounts(f"27 1 254:0 / / rw - ext4 /dev/vda rw\n{line}\n") == found


def test_without_root_the_reason_is_told(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert unsupported.__wrapped__() == "needs root"


def test_what_is_not_installed_is_named(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(private, "PATH", "/nonexistent")
    assert unsupported.__wrapped__().startswith("needs setpriv, unshare")
