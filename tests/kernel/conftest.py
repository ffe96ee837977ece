"""Processes of a test: started by the function under test, ended and reaped whatever happens."""

import contextlib
import os
import signal
import time

import pytest

from brokerctl.kernel import pidfd
from brokerctl.kernel.spawn import spawn

PATIENCE_S = 20


def wait_for(condition, what):
    """Poll until it is true: an upper bound, never a measure."""
    end = time.monotonic() + PATIENCE_S
    while not (value := condition()):
        assert time.monotonic() < end, f"no {what}"
        time.sleep(0.005)
    return value


def status_of(child):
    """The wait status of a child that ends by itself."""
    while (status := pidfd.wait(child.pidfd)) is None:
        wait_for(lambda: os.waitid(os.P_PIDFD, child.pidfd, os.WEXITED | os.WNOHANG | os.WNOWAIT), "exit")
    os.close(child.pidfd)
    return status


def run(argv, **options):
    """Start, read stdout to its end, reap: (wait status, what it wrote)."""
    reader, writer = os.pipe()
    try:
        try:
            child = spawn(argv, stdout=writer, **{"env": dict(os.environ), **options})
        finally:
            os.close(writer)
        with open(reader, "rb", closefd=False) as file:
            data = file.read()
    finally:
        os.close(reader)
    return status_of(child), data


@pytest.fixture
def start():
    """Starts processes that are killed and reaped at the end."""
    children = []

    def start_one(argv, **options):
        children.append(spawn(argv, **{"env": dict(os.environ), **options}))
        return children[-1]

    yield start_one
    for child in children:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        try:
            pidfd.send(child.pidfd, signal.SIGKILL)
            status_of(child)
        except OSError:
            continue  # the test has reaped it
