import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

import brokerctl
from brokerctl.kernel import cgroup, proc
from brokerctl.kernel.cgroup import Cgroup
from brokerctl.kernel.scope import Family
from tests.kernel.conftest import wait_for

ROOT = str(Path(brokerctl.__file__).parents[1])


@pytest.fixture
def folder():
    """A cgroup that is ours; skipped where we may not make one."""
    mounted = cgroup.mount_point(Path("/proc/self/mountinfo").read_text())
    if mounted is None:
        pytest.skip("no cgroup v2 is mounted")
    path = Path(mounted[0]) / f"brokerctl-test-{uuid.uuid4().hex[:8]}"
    try:
        path.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be made: {error.strerror}")
    yield path
    whole = Cgroup(str(path))
    whole.kill()
    wait_for(whole.remove, "removal of the cgroup")


def delegated_in(folder):
    """What a process that lives in the folder finds."""
    program = "import os; from brokerctl.kernel import cgroup; print(cgroup.delegated())"
    join = f"echo $$ > {folder}/cgroup.procs; exec {sys.executable} -c '{program}'"
    env = {**os.environ, "PYTHONPATH": ROOT}
    done = subprocess.run(["sh", "-c", join], env=env, capture_output=True, text=True, timeout=30, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("31 23 0:26 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw", ("/sys/fs/cgroup", "/")),
        ("41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate", ("/sys/fs/cgroup/unified", "/")),
        ("41 31 0:38 /a\\040b /mnt/x\\040y rw - cgroup2 none rw", ("/mnt/x y", "/a b")),
        ("40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd", None),
        ("", None),
        ("garbage - cgroup2", None),
    ],
)
def test_the_mount_of_version_2_is_found_in_every_hierarchy(line, found):
    assert cgroup.mount_point(f"1 1 0:1 / / rw - ext4 /dev/vda rw\n{line}\n") == found


def test_our_own_path_is_that_of_version_2():
    assert cgroup.own_path("9:name=systemd:/a\n0::/system.slice/flux.service\n") == "/system.slice/flux.service"
    assert cgroup.own_path("9:name=systemd:/a\n") is None


@pytest.mark.parametrize(("value", "ours"), [(b"1", True), (b"0", False), (None, False)])
def test_only_a_cgroup_that_is_marked_as_delegated_is_used(folder, value, ours):
    if value is not None:
        os.setxattr(folder, "user.delegate", value)
    assert delegated_in(folder) == (str(folder) if ours else "None")


def test_a_run_lives_in_a_cgroup_of_its_own_from_its_first_instruction(folder, start):
    group = Cgroup.make(str(folder), "cleanup.0")
    child = start(["sh", "-c", "sleep 1000 & setsid env -i sleep 1000 & wait"], cgroup_procs=group.procs)
    wait_for(lambda: len(group.members()) == 3, "three members")
    assert child.pid in group.members()
    assert not group.remove()


def test_members_of_sub_cgroups_count_and_are_removed_depth_first(folder, start):
    group = Cgroup.make(str(folder), "x")
    inner = Path(group.path) / "a" / "b"
    inner.mkdir(parents=True)
    child = start(["sleep", "1000"], cgroup_procs=f"{inner}/cgroup.procs")
    assert group.members() == [child.pid]
    assert group.holds(child.pid)
    assert not Cgroup(f"{folder}/xx").holds(child.pid)
    assert not Cgroup(f"{group.path}/a/b/c").holds(child.pid)
    assert group.kill()
    wait_for(lambda: proc.stat(child.pid).state == "Z", "death")
    wait_for(group.remove, "removal")
    assert not Path(group.path).exists()


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL])
def test_all_reaches_who_threw_cookie_group_and_session_away(folder, start, signum):
    group = Cgroup.make(str(folder), "x")
    child = start(["sh", "-c", "setsid env -i sleep 1000 & wait"], cgroup_procs=group.procs)
    family = Family(child.pid, child.pidfd, b"cgroup-test:x", group)
    wait_for(lambda: {proc.stat(pid).comm for pid in group.members()} == {"sh", "sleep"}, "two members")
    assert family.kill(signum, "all") == 0
    wait_for(lambda: not family.members(), "end of all")


def test_a_cgroup_of_an_earlier_life_is_used_again(folder):
    first = Cgroup.make(str(folder), "x")
    assert Cgroup.make(str(folder), "x").path == first.path
    assert Cgroup.make(str(folder / "none"), "x") is None
