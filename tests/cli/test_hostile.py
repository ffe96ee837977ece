"""Hostile clients, floods, and what the broker costs under them."""

import json
import os
import socket
import time

import pytest

from brokerctl.records import OutputEnded

CLIENTS_MAX = 32


def ask(broker, data, *, end=True):
    """Send bytes, and read what comes until the broker hangs up."""
    with broker.connect() as peer:
        try:
            peer.sendall(data)
            if end:
                peer.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it has refused already
        answer = b""
        try:
            while more := peer.recv(1 << 16):
                answer += more
        except ConnectionResetError:
            pass  # it hung up with our bytes unread
        return answer


def works(broker):
    """The broker still answers, at once."""
    began = time.monotonic()
    answer = json.loads(ask(broker, b'{"brokerctl":1,"ask":"status"}\n'))
    assert time.monotonic() - began < 2
    return answer["state"] == "run"


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"\n", "no request"),
        (b"hello\n", "no request"),
        (b"\x00\xff\xfe\n", "no request"),
        (b"[1, 2]\n", "no request"),
        (b"{}\n", ""),
        (b'{"brokerctl": 2, "ask": "status"}\n', "version 2; expected 1"),
        (b'{"brokerctl": 1, "ask": "reboot"}\n', "reboot"),
        (b'{"brokerctl": 1, "ask": 5}\n', "no request"),
        (b'{"brokerctl": 1, "ask": "status", "sudo": true}\n', "sudo"),
        (b'{"brokerctl": 1, "ask": "cleanup-push", "words": "rm"}\n', "no request"),
        (b'{"brokerctl": 1, "ask": "cleanup-push", "words": ["a\\u0000b"]}\n', "NUL"),
        (b"[" * 60_000 + b"\n", "no request"),
        (b"x" * (1 << 20), "request longer than 64 KiB"),
    ],
)
def test_nonsense_gets_one_line_of_error_and_the_broker_goes_on(start, data, what):
    broker = start().wait_for_state("run")
    answer = ask(broker, data)
    assert answer.count(b"\n") == 1, answer
    body = json.loads(answer)
    assert body["brokerctl"] == 1
    assert what in body["error"]
    assert works(broker)
    assert broker.signal().wait() == 0


def test_silent_and_endless_clients_are_neither_waited_for_nor_kept(start):
    broker = start().wait_for_state("run")
    peers = [broker.connect() for _ in range(CLIENTS_MAX)]
    for peer in peers[::2]:
        peer.sendall(b'{"brokerctl":')
    # Full: one more is told so and turned away.
    assert b"clients are connected already" in ask(broker, b'{"brokerctl":1,"ask":"status"}\n')
    # They time out by themselves.
    end = time.monotonic() + 20
    while time.monotonic() < end and b"error" in ask(broker, b'{"brokerctl":1,"ask":"status"}\n'):
        time.sleep(0.5)
    assert works(broker)
    for peer in peers:
        peer.close()
    assert broker.signal().wait() == 0


def test_a_follower_that_does_not_read_stalls_nobody(start):
    command = "for i in $(seq 900); do echo $i $(printf %050d $i); done"
    config = f"[[cleanup]]\ncommand = '{command}'\n" * 20
    broker = start(config=config).wait_for_state("run")
    with broker.connect() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.sendall(b'{"brokerctl":1,"ask":"follow"}\n')
        time.sleep(0.2)
        broker.signal()
        assert broker.wait() == 0


def test_a_socket_that_others_may_not_use_is_0600(start):
    broker = start().wait_for_state("run")
    assert (broker.rundir / "control").stat().st_mode & 0o777 == 0o600
    assert broker.rundir.stat().st_mode & 0o777 == 0o700
    broker.signal().wait()


def _rss_kib(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as file:  # noqa: PTH123
        return int(next(line for line in file if line.startswith("VmHWM:")).split()[1])


def test_a_gigabyte_of_output_costs_a_megabyte_of_memory_and_a_small_trace(start):
    size = 1_000_000_000
    config = f"[[cleanup]]\ncommand = 'yes | head -c {size}'\n[[cleanup]]\ncommand = 'sleep 1000'\n"
    broker = start(config=config).wait_for_state("run")
    before = _rss_kib(broker.process.pid)
    broker.signal().wait_until(lambda: broker.facts(OutputEnded), "end of the output")
    assert _rss_kib(broker.process.pid) - before <= 2048  # 1 MiB, and what the first lines of a log import and cache
    assert broker.trace.stat().st_size < 1 << 20
    (ended,) = broker.facts(OutputEnded)
    # `yes` writes two bytes a line, and 1000 lines are shown.
    assert ended.dropped == size - 2 * 1000
    broker.signal(2).wait()


def test_a_flood_does_not_delay_a_signal(start):
    config = "[[cleanup]]\ncommand = 'yes'\n"
    broker = start("-S", "broker.cleanup-timeout=1s", config=config).wait_for_state("run")
    broker.signal()
    began = time.monotonic()
    assert broker.wait() == 129
    assert 1 <= time.monotonic() - began < 3


def test_neither_descriptors_nor_zombies_pile_up(start):
    config = "[[cleanup]]\ncommand = '(sleep 0.01 &) ; true'\n" * 30 + "[[cleanup]]\ncommand = 'sleep 1000'\n"
    broker = start(config=config).wait_for_state("run")
    folder = f"/proc/{broker.process.pid}/fd"
    before = len(os.listdir(folder))  # noqa: PTH208
    broker.signal().wait_for_start("cleanup.30")
    assert len(os.listdir(folder)) <= before + 3  # noqa: PTH208 - a pidfd and two pipes of the one that runs
    with open(f"/proc/{broker.process.pid}/task/{broker.process.pid}/children", encoding="ascii") as file:  # noqa: PTH123
        assert len(file.read().split()) == 1
    broker.signal(2).wait()
