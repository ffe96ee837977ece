import os
import stat

import pytest

from brokerctl.perilog.rundir import OWN, Rundir, RundirError

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: the directory must be root's")
ENV = "flux-epilog@f1.env"


@pytest.fixture
def root(tmp_path):
    tmp_path.chmod(0o755)
    return tmp_path


def rundir(root):
    return Rundir("epilog", "f1", str(root))


def test_the_environment_is_readable_by_root_only_whatever_the_umask(root):
    before = os.umask(0)
    try:
        rundir(root).write_environment(b"A=b\n")
    finally:
        os.umask(before)
    assert stat.S_IMODE((root / ENV).stat().st_mode) == 0o600
    assert stat.S_IMODE((root / OWN).stat().st_mode) == 0o700


@pytest.mark.parametrize("place", [ENV, f".{ENV}.new"])
def test_a_link_at_the_files_place_is_replaced_not_followed(root, place):
    victim = root / "victim"
    victim.write_text("precious")
    (root / place).symlink_to(victim)
    rundir(root).write_environment(b"A=b\n")
    assert victim.read_text() == "precious"
    assert (root / ENV).read_bytes() == b"A=b\n"
    assert not (root / ENV).is_symlink()


@pytest.mark.parametrize("place", [ENV, f".{ENV}.new"])
def test_a_fifo_at_the_files_place_is_replaced_and_holds_nobody_up(root, place):
    os.mkfifo(root / place)
    rundir(root).write_environment(b"A=b\n")
    assert (root / ENV).read_bytes() == b"A=b\n"


def test_a_hard_link_at_the_files_place_keeps_its_other_name_as_it_is(root):
    (root / "victim").write_text("precious")
    os.link(root / "victim", root / ENV)
    rundir(root).write_environment(b"A=b\n")
    assert (root / "victim").read_text() == "precious"


def test_what_cannot_be_replaced_is_an_error_and_nothing_is_left(root):
    (root / ENV).mkdir()
    with pytest.raises(RundirError, match=r"cannot write /run/flux-epilog@f1\.env: Is a directory"):
        rundir(root).write_environment(b"A=b\n")
    assert not (root / f".{ENV}.new").exists()


@pytest.mark.parametrize("place", ["", OWN])
def test_a_directory_that_others_can_write_is_refused(root, place):
    (root / OWN).mkdir(mode=0o700)
    (root / place).chmod(0o777)
    with pytest.raises(RundirError, match="has mode 0777; expected a directory that only root can write"):
        rundir(root)


def test_a_link_in_place_of_our_directory_is_refused(root):
    (root / "elsewhere").mkdir()
    (root / OWN).symlink_to(root / "elsewhere")
    with pytest.raises(RundirError, match="cannot open flux-perilog"):
        rundir(root)


def test_one_helper_has_a_run_and_the_others_get_its_result(root):
    first, second, third = rundir(root), rundir(root), rundir(root)
    assert first.acquire()
    assert not second.acquire()
    assert not third.acquire()
    first.finish(3, "exited with 3")
    for other in (second, third):
        assert other.acquire()
        assert other.result() == (3, "exited with 3")
        other.leave()
    assert list((root / OWN).iterdir()) == []


def test_a_helper_that_comes_after_the_end_begins_anew(root):
    first, second = rundir(root), rundir(root)
    assert first.acquire()
    first.finish(0, "succeeded")
    assert second.acquire()
    assert second.result() is None


def test_a_helper_that_opened_the_lock_before_the_end_but_never_waited_begins_anew(root, monkeypatch):
    first, second = rundir(root), rundir(root)
    assert first.acquire()
    real = os.open

    def ends_meanwhile(*args, **kwargs):
        fd = real(*args, **kwargs)
        monkeypatch.setattr(os, "open", real)
        first.finish(0, "succeeded")
        return fd

    monkeypatch.setattr(os, "open", ends_meanwhile)
    assert second.acquire()
    assert second.result() is None
    assert (root / OWN / "epilog@f1.run").exists()


def test_one_of_those_who_wait_takes_over_when_the_helper_is_killed(root):
    first, second, third = rundir(root), rundir(root), rundir(root)
    assert first.acquire()
    assert not second.acquire()
    assert not third.acquire()
    first.leave()  # as the kernel does for the dead
    assert second.acquire()
    assert second.result() is None
    assert not third.acquire()


def test_a_result_that_was_left_behind_is_not_that_of_a_later_run(root):
    (root / OWN).mkdir(mode=0o700)
    (root / OWN / "epilog@f1.run").write_text("3\nexited with 3")  # killed before it removed the file
    first, second = rundir(root), rundir(root)
    assert first.acquire()
    assert first.result() is None
    assert not second.acquire()
    first.leave()
    assert second.acquire()
    assert second.result() is None


def test_the_status_is_what_the_unit_wrote(root):
    only = rundir(root)
    assert only.status() is None
    (root / OWN / "epilog@f1.status").write_text("exit-code exited 3\n")
    assert only.status() == ["exit-code", "exited", "3"]
    only.forget_status()
    assert only.status() is None


def test_a_link_in_place_of_the_status_is_not_read(root):
    (root / "x").write_text("success\n")
    only = rundir(root)
    (root / OWN / "epilog@f1.status").symlink_to(root / "x")
    assert only.status() is None
