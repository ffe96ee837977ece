"""What the service manager is told: in which order, and byte for byte."""

import os
import socket

import pytest

PATIENCE_S = 10


@pytest.fixture
def manager(tmp_path):
    """A notification socket as systemd has it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound:
        bound.settimeout(PATIENCE_S)
        bound.bind(str(tmp_path / "notify"))
        yield bound


def told(manager, last=b"STATUS=Exiting"):
    """The datagrams up to the last one."""
    messages = []
    while not messages or messages[-1] != last:
        messages.append(manager.recv(1 << 16))
    return messages


def test_the_messages_of_flux_in_their_order(start, manager):
    config = "[[rc1]]\ncommand = 'true'\n[[cleanup]]\ncommand = 'echo a'\n[[rc3]]\ncommand = 'false'\n"
    broker = start(
        "--policy", "flux", "-S", "broker.sd-notify=1", "-S", "broker.sd-stop-timeout=90", config=config,
        env={"NOTIFY_SOCKET": manager.getsockname()},
    )  # fmt: skip
    broker.wait_for_state("run").signal()
    extend = b"EXTEND_TIMEOUT_USEC=90000000"
    assert told(manager) == [
        b"READY=1",
        b"STATUS=Fetching configuration update from parent",
        b"STATUS=Running true",
        b"STATUS=Waiting for instance quorum",
        b"STATUS=Running as leader of 1 node Flux instance",
        extend, b"STATUS=Running echo a",
        extend, b"STATUS=Waiting for overlay peers to shutdown",
        extend,
        extend, b"STATUS=Running false",
        extend,
        b"STATUS=Exiting",
    ]  # fmt: skip
    assert broker.wait() == 1


def test_text_beyond_ascii_arrives_as_it_is_and_newlines_as_spaces(start, manager):
    config = "[[cleanup]]\ncommand = '''echo ƒ39firM4HrF\ntrue'''\n"
    broker = start(config=config, env={"NOTIFY_SOCKET": manager.getsockname()}).wait_for_state("run").signal()
    assert "STATUS=Running echo ƒ39firM4HrF true".encode() in told(manager)
    assert broker.wait() == 0


def test_actions_do_not_inherit_the_socket_nor_the_watchdog(start, manager):
    config = "[[cleanup]]\ncommand = 'env'\n"
    env = {"NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": "200000", "FLUX_JOB_ID": "ƒ1", "PMI_RANK": "0"}
    broker = start(config=config, env=env).wait_for_state("run")
    manager.settimeout(PATIENCE_S)
    while manager.recv(1 << 16) != b"WATCHDOG=1":
        pass
    assert broker.signal().wait() == 0
    log = broker.log()
    assert "BROKERCTL_RUNDIR=" in log
    assert not any(name in log for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "FLUX_JOB_ID", "PMI_RANK"))


def test_a_manager_that_has_gone_or_does_not_read_changes_nothing(start, tmp_path):
    gone = start("--", "true", env={"NOTIFY_SOCKET": str(tmp_path / "gone")})
    assert gone.wait() == 0
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as deaf:
        deaf.bind(f"\0brokerctl-test-{os.getpid()}")
        assert start("--", "true", env={"NOTIFY_SOCKET": f"@brokerctl-test-{os.getpid()}"}).wait() == 0
