"""`brokerctl start` where it is refused, and on a terminal."""

import contextlib
import os
import pty
import select
import time

import pytest

from tests.cli.outsider import COMMAND, ENV, PATIENCE_S, brokerctl_

# ---- bad input


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--size", "0"], "--size 0: expected a number from 1 to 1000"),
        (["--size", "x"], "--size x: expected a number"),
        ([], "the following arguments are required: --size"),
        (["--size", "2", "--topology", "kary:0"], "--topology kary:0: is no topology; expected kary:K or flat"),
        (["--size", "2", "--exit-timeout", "none"], "--exit-timeout: 'none' is not possible here"),
        (["--size", "2", "--policy", "soft"], "unknown policy 'soft'"),
        (["--size", "2", "--"], "-- without a command"),
        (["--size", "2", "--trace", "/no/such/file"], "--trace /no/such/file: cannot write"),
        (["--size", "2", "--rundir", "/proc/nothing"], "rundir /proc/nothing: cannot create"),
        (["--size", "2", "--rundir", "x" * 90], "the path of its socket is too long"),
    ],
)
def test_a_mistake_is_one_line_and_nothing_is_started(words, error, tmp_path):
    done = brokerctl_("start", *words, cwd=tmp_path, env={"BROKERCTL_RUNDIR": str(tmp_path / "r")})
    assert done.returncode == 2
    assert done.stderr.startswith("brokerctl start: ")
    assert error in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("config", "error"),
    [
        ('[[cleanup]]\ncommand = "true"\nranks = "0-2"', "cleanup[0].ranks: 0-2 is out of range; expected less than 2"),
        ('[[cleanup]]\ncommand = "true"\nranks = "x"', "cleanup[0].ranks: 'x' is no idset"),
        ('[[rc1]]\ncommand = "true"\nranks = "all"', "rc1[0].ranks: expected it for cleanup actions alone"),
    ],
)
def test_ranks_that_cannot_be_are_one_line(config, error, tmp_path):
    file = tmp_path / "config.toml"
    file.write_text(config)
    done = brokerctl_("start", "--size", "2", "--config", file, "--rundir", tmp_path / "r")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert error in done.stderr


# ---- a terminal


def test_on_a_terminal_the_command_has_it_and_ctrl_c_reaches_it(tmp_path_factory):
    folder = tmp_path_factory.mktemp("p")
    words = [*COMMAND, "start", "--size", "2", "--rundir", str(folder / "r"), "--", "sh", "-c"]
    script = "test -t 0 && test -t 2 && echo IT-IS; read word; echo GOT $word; exec sleep 1000"
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(words[0], [*words, script], ENV)  # noqa: S606 - in the child of pty.fork
    shown = b""

    def until(text):
        nonlocal shown
        end = time.monotonic() + PATIENCE_S
        while text not in shown:
            assert time.monotonic() < end, shown
            if select.select([terminal], [], [], 0.1)[0]:
                with contextlib.suppress(OSError):
                    shown += os.read(terminal, 4096)

    try:
        until(b"IT-IS")
        os.write(terminal, b"hello\n")
        until(b"GOT hello")
        os.write(terminal, b"\x03")
        until(b"exit code 130")
    finally:
        with contextlib.suppress(OSError):
            while os.read(terminal, 4096):
                pass
        os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 130
    assert b"broker[1]" in shown
    assert list(folder.iterdir()) == []
