"""The asker's side of the control socket, against brokers that are not there, too slow, or no brokers."""

import contextlib
import json
import os
import socket
import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from brokerctl.errors import ControlError, UsageError
from brokerctl.worlds.live.client import Connection, ask


@contextlib.contextmanager
def served(folder, reply, *, hang=False):
    """A socket that reads one line and sends `reply`, whatever it is."""
    folder.mkdir(exist_ok=True)
    got = []
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder / "control"))
        server.listen()
        done = threading.Event()

        def serve():
            with contextlib.suppress(OSError), server.accept()[0] as peer:
                peer.settimeout(5)
                got.append(peer.makefile("rb").readline())
                peer.sendall(reply)
                if hang:
                    done.wait(10)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield got
        finally:
            done.set()
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
    (folder / "control").unlink()


def test_one_line_is_sent_and_one_is_read(tmp_path):
    with served(tmp_path, b'{"brokerctl": 1, "state": "run"}\n') as got:
        assert ask(tmp_path, "cleanup-push", ["echo hä"]) == {"state": "run"}
    assert json.loads(got[0]) == {"brokerctl": 1, "ask": "cleanup-push", "words": ["echo hä"]}


def test_a_refusal_is_an_answer(tmp_path):
    with served(tmp_path, b'{"brokerctl": 1, "error": "no"}\n'):
        assert ask(tmp_path, "shutdown") == {"error": "no"}


def test_lines_follow_the_answer_until_the_broker_hangs_up(tmp_path):
    with (
        served(tmp_path, b'{"brokerctl": 1}\n{"log": "a", "level": 6}\n{"exit": 129}\n'),
        Connection(tmp_path) as connection,
    ):
        connection.send("shutdown")
        assert connection.answer() == {}
        assert connection.follow() == {"log": "a", "level": 6}
        assert connection.follow() == {"exit": 129}
        assert connection.follow() is None


def test_the_listener_is_known(tmp_path):
    with served(tmp_path, b'{"brokerctl": 1}\n'), Connection(tmp_path) as connection:
        assert connection.peer_pid() == os.getpid()
        connection.send("status")


def test_no_broker_is_told_from_a_stale_socket(tmp_path):
    with pytest.raises(ControlError, match=r"no broker is running: rundir .*/none does not exist$"):
        ask(tmp_path / "none", "status")
    with pytest.raises(ControlError, match=r"has no broker$"):
        ask(tmp_path, "status")
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(tmp_path / "control"))
    with pytest.raises(ControlError, match="is left over from one that was killed"):
        ask(tmp_path, "status")
    with pytest.raises(UsageError, match="too long"):
        ask(tmp_path / ("x" * 108), "status")


@pytest.mark.parametrize(
    ("reply", "what"),
    [
        (b"", "hung up without an answer"),
        (b'{"brokerctl": 2}\n', "speaks version 2; expected 1"),
        (b'{"brokerctl": "1"}\n', "speaks version '1'; expected 1"),
        (b'{"state": "run"}\n', "is no broker"),
        (b"[1]\n", "is no broker"),
        (b"hello\n", "is no broker"),
        (b"\xff\xfe\n", "is no broker"),
        (b"[" * 100_000 + b"\n", "is no broker"),
        (b'{"brokerctl": 1', "was cut off"),
        (b"x" * (3 << 20), "an answer of more than 1 MiB"),
    ],
)
def test_nonsense_is_one_short_line(tmp_path, reply, what):
    with served(tmp_path, reply), pytest.raises(ControlError, match=what) as caught:
        ask(tmp_path, "status")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_a_silent_broker_is_not_waited_for(tmp_path):
    with served(tmp_path, b"", hang=True), pytest.raises(ControlError, match=r"does not answer within 0\.2s"):
        ask(tmp_path, "status", timeout_s=0.2)


def test_a_broker_that_lets_nobody_in_is_told_at_once(tmp_path):
    with socket.socket(socket.AF_UNIX) as listener, contextlib.ExitStack() as waiting:
        listener.bind(str(tmp_path / "control"))
        listener.listen(0)
        waiting.enter_context(Connection(tmp_path))
        with pytest.raises(ControlError, match="is stopped or starved: others wait already to be let in"):
            Connection(tmp_path)


def test_a_request_that_no_broker_would_read_is_not_sent(tmp_path):
    with served(tmp_path, b"{}\n"), pytest.raises(ControlError, match="are too long; expected at most 65536"):
        ask(tmp_path, "cleanup-push", ["x" * (64 << 10)])
    with served(tmp_path, b"{}\n"), pytest.raises(ControlError, match="not UTF-8"):
        ask(tmp_path, "cleanup-push", ["\udcff"])


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(reply=st.binary(max_size=200))
def test_any_bytes_are_an_answer_or_a_control_error(tmp_path, reply):
    with served(tmp_path, reply):
        try:
            assert isinstance(ask(tmp_path, "status", timeout_s=5), dict)
        except ControlError as error:
            assert "\n" not in str(error)  # noqa: PT017 - both ends are right


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_another_user_is_told_that_it_is_not_permitted(tmp_path):
    folder = tmp_path / "run"
    with served(folder, b'{"brokerctl": 1}\n'):
        folder.chmod(0o700)
        os.seteuid(65534)
        try:
            with pytest.raises(ControlError, match="not permitted; expected the broker's user or root"):
                ask(folder, "status")
        finally:
            os.seteuid(0)
        assert ask(folder, "status") == {}
