import socket

import pytest


@pytest.fixture
def manager(tmp_path, monkeypatch):
    """A service manager's socket; `said()` is what has come."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as receiver:
        receiver.bind(f"{tmp_path}/notify")
        monkeypatch.setenv("NOTIFY_SOCKET", f"{tmp_path}/notify")

        def said():
            found = []
            while True:
                try:
                    found.append(receiver.recv(8192).decode())
                except BlockingIOError:
                    return found

        yield said


@pytest.fixture
def clock(monkeypatch):
    """The time of heartbeats, which stands still until it is moved."""
    from brokerctl import heartbeat

    class Clock:
        now_ns = 1_000 * heartbeat.S

        def move(self, ns):
            self.now_ns += ns

    made = Clock()
    monkeypatch.setattr(heartbeat, "monotonic_ns", lambda: made.now_ns)
    return made
