"""The fixture `private_systemd`: a manager of the test's own, booted once a process, as good as new for each test."""

import pytest

from brokerctl.errors import KernelError
from brokerctl.worlds.systemd.private import PrivateSystemd, unsupported


class Booted:
    """The manager that the tests of this process share; one that a test has left busy or broken is replaced."""

    def __init__(self, shared):
        self.shared = shared
        self.manager = None

    def fresh(self):
        """The manager, with no unit of an earlier test."""
        if self.manager is not None:
            try:
                busy = self.manager.is_busy()
                if not busy:
                    self.manager.forget()
            except KernelError:
                busy = True
            if busy:
                self.close()
        if self.manager is None:
            self.manager = PrivateSystemd([self.shared])
        return self.manager

    def close(self):
        """End it."""
        if self.manager is not None:
            self.manager.close()
            self.manager = None


@pytest.fixture(scope="session")
def booted_systemd(tmp_path_factory):
    """What `private_systemd` boots in; tests use that one."""
    booted = Booted(tmp_path_factory.getbasetemp())
    yield booted
    booted.close()


@pytest.fixture
def private_systemd(booted_systemd):
    """A private systemd (brokerctl.worlds.systemd.private) without units; skips with the reason where there is none.

    The test's `tmp_path` is the same inside. Units need not be removed or stopped.
    """
    reason = unsupported()
    if reason:
        pytest.skip(f"no private systemd: {reason}")
    try:
        return booted_systemd.fresh()
    except KernelError as error:
        pytest.skip(str(error))
