"""A process of our own program: nothing of its parent's but memory, and no way back into it."""

from __future__ import annotations

import os
import signal

import pytest

from brokerctl.kernel import pidfd
from brokerctl.kernel.offspring import beget


@pytest.fixture
def run():
    """Runs a body in a process of its own: what it has written, and its exit code."""

    def make(body):
        asked, question = os.pipe()
        answers, answered = os.pipe()
        os.write(question, b"hello")
        child = beget(body, asked, answered)
        for fd in (asked, question, answered):
            os.close(fd)
        with os.fdopen(answers, "rb") as file:
            said = file.read().decode()
        signal.pidfd_send_signal(child.pidfd, 0)
        _, status = os.waitpid(child.pid, 0)
        os.close(child.pidfd)
        return said, os.waitstatus_to_exitcode(status)

    return make


def test_it_reads_and_writes_by_the_two_descriptors_that_it_was_given(run):
    assert run(lambda reader, writer: os.write(writer, os.read(reader, 9).upper())) == ("HELLO", 0)


def test_it_leads_a_process_group_of_its_own(run):
    said, _ = run(lambda _, writer: os.write(writer, f"{os.getpgrp() == os.getpid()}".encode()))
    assert said == "True"


def test_no_signal_is_blocked_or_handled_as_its_parent_does(run):
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    masked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    try:
        _, code = run(lambda *_: os.kill(os.getpid(), signal.SIGTERM))
        blocked, _ = run(lambda _, w: os.write(w, str(len(signal.pthread_sigmask(signal.SIG_BLOCK, ()))).encode()))
    finally:
        signal.signal(signal.SIGTERM, before)
        signal.pthread_sigmask(signal.SIG_SETMASK, masked)
    assert code == -signal.SIGTERM
    assert blocked == "0"


@pytest.mark.parametrize("error", [RuntimeError("broken"), SystemExit(0), KeyboardInterrupt()])
def test_no_exception_leaves_it(run, error, capfd):
    def raises(*_):
        raise error

    assert run(raises) == ("", 1)
    assert type(error).__name__ in capfd.readouterr().err


def test_a_pidfd_tells_its_end():
    asked, question = os.pipe()
    child = beget(lambda *_: None, asked, question)
    os.close(asked)
    os.close(question)
    os.waitpid(child.pid, 0)
    assert pidfd.send(child.pidfd, signal.SIGTERM) != 0
    os.close(child.pidfd)
