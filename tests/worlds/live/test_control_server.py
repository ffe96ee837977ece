import json
import os
import socket
import stat
import time

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from brokerctl.errors import ControlError
from brokerctl.worlds.live import control_server
from brokerctl.worlds.live.control_server import (
    BACKLOG_MAX,
    CLIENTS_MAX,
    REQUEST_MAX,
    WORDS_MAX,
    ControlServer,
    Request,
    parse_request,
    peer_uid,
)
from brokerctl.worlds.live.loop import Loop

PATIENCE_S = 20


# ---- requests


def test_what_may_be_asked():
    assert parse_request(b'{"brokerctl": 1, "ask": "status"}') == Request(1, "status")
    assert parse_request(b'{"ask":"follow","brokerctl":1}\r').ask == "follow"
    pushed = parse_request('{"brokerctl": 1, "ask": "cleanup-push", "words": ["echo", "ƒ"]}'.encode())
    assert pushed.words == ("echo", "ƒ")


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "no request"),
        (b"status", "no request"),
        (b"\x00\xff", "no request"),
        (b"[]", "no request"),
        (b"{}", "no request"),
        (b'{"ask": "status"}', "no request"),
        (b'{"brokerctl": 2, "ask": "status"}', "version 2; expected 1"),
        (b'{"brokerctl": 2, "question": "status"}', "version 2; expected 1"),
        (b'{"brokerctl": "1", "ask": "status"}', "version 1; expected 1"),
        (b'{"brokerctl": 1, "ask": "panic"}', "no request"),
        (b'{"brokerctl": 1, "ask": "status", "more": 1}', "no request"),
        (b'{"brokerctl": 1, "ask": "status", "words": ["x"]}', "with words"),
        (b'{"brokerctl": 1, "ask": "cleanup-push"}', "without words"),
        (b'{"brokerctl": 1, "ask": "cleanup-push", "words": "x"}', "no request"),
        (b'{"brokerctl": 1, "ask": "cleanup-push", "words": [1]}', "no request"),
        (b'{"brokerctl": 1, "ask": "cleanup-push", "words": ["a\\u0000"]}', "NUL"),
        (b'{"brokerctl": 1, "ask": "cleanup-push", "words": [' + b'"",' * WORDS_MAX + b'""]}', "expected at most"),
        (b"[" * REQUEST_MAX, "no request"),
        (b" " * (REQUEST_MAX + 1), "longer than 64 KiB"),
    ],
)
def test_nonsense_is_one_line(data, text):
    with pytest.raises(ControlError, match=text) as caught:
        parse_request(data)
    assert "\n" not in str(caught.value)


json_like = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["brokerctl", "ask", "words"]) | st.text(), inner),
)


@given(st.binary(max_size=300) | json_like.map(lambda value: json.dumps(value).encode()))
@example(b'{"brokerctl": 1, "ask": "cleanup-push", "words": ["\\ud800"]}')
@example(b'{"brokerctl": 1, "ask": "cleanup-push", "words": ["\xed\xa0\x80"]}')
def test_any_bytes_are_a_request_or_a_control_error(data):
    told = ""
    try:
        request = parse_request(data)
    except ControlError as error:
        told = str(error)
    else:
        msgspec.json.encode(request)  # it can be traced
    assert told.isprintable()
    assert len(told) < 300


# ---- the server


class Serving:
    """A server in this process, stepped by hand."""

    def __init__(self, path):
        self.loop = Loop()
        self.asked = []
        self.server = ControlServer(self.loop, path, lambda request, reply: self.asked.append((request, reply)))
        self.path = path
        self.peers = []

    def connect(self, *lines):
        peer = socket.socket(socket.AF_UNIX)
        peer.settimeout(PATIENCE_S)
        self.peers.append(peer)
        peer.connect(str(self.path))
        for line in lines:
            peer.sendall(line)
        self.turns()
        return peer

    def turns(self, count=4):
        for _ in range(count):
            self.loop.after(0, self.loop.stop)
            self.loop.run()

    def until(self, condition):
        end = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < end
            self.turns(1)

    def read(self, peer, count=1):
        """This many lines, while the server serves."""
        peer.setblocking(False)
        data = b""

        def enough():
            nonlocal data
            try:
                got = peer.recv(1 << 20)
            except BlockingIOError:
                return False
            data += got
            return not got or data.count(b"\n") >= count

        self.until(enough)
        return [json.loads(line) for line in data.splitlines()]

    def close(self):
        self.server.close()
        self.loop.close()
        for peer in self.peers:
            peer.close()


@pytest.fixture
def serving(tmp_path):
    made = Serving(tmp_path / "control")
    yield made
    made.close()


def line(ask, **more):
    return json.dumps({"brokerctl": 1, "ask": ask, **more}).encode() + b"\n"


def is_closed(serving, peer):
    peer.setblocking(False)
    try:
        return peer.recv(1 << 16) == b""
    except BlockingIOError:
        serving.turns(1)
        return False
    except ConnectionResetError:
        return True


def test_the_socket_is_for_its_owner_alone_and_goes_with_the_server(tmp_path):
    mask = os.umask(0)
    try:
        serving = Serving(tmp_path / "control")
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "control").stat().st_mode) == 0o600
    serving.close()
    assert not (tmp_path / "control").exists()


def test_a_path_that_cannot_be_bound_is_one_line(tmp_path, serving):
    with pytest.raises(ControlError, match="cannot listen"):
        ControlServer(serving.loop, serving.path, lambda *_: None)
    with pytest.raises(ControlError, match="cannot listen"):
        ControlServer(serving.loop, tmp_path / ("x" * 200), lambda *_: None)


def test_a_question_reaches_the_model_and_its_answer_the_asker(serving):
    peer = serving.connect(line("status"))
    ((request, reply),) = serving.asked
    assert request.ask == "status"
    serving.server.answer(reply, {"state": "run"})
    assert serving.read(peer) == [{"brokerctl": 1, "state": "run"}]
    serving.until(lambda: is_closed(serving, peer))


def test_a_request_may_come_in_pieces_and_without_its_newline(serving):
    peer = serving.connect(line("status")[:10])
    assert not serving.asked
    peer.sendall(line("status")[10:-1])
    peer.shutdown(socket.SHUT_WR)
    serving.until(lambda: serving.asked)
    serving.server.answer(serving.asked[0][1], {})
    assert serving.read(peer) == [{"brokerctl": 1}]


@pytest.mark.parametrize("data", [b"\xff\xfe\n", b"x" * (REQUEST_MAX + 1), b"{}\n", line("status")[:-3] + b"\n"])
def test_nonsense_is_answered_with_one_line_and_closed(serving, data):
    peer = serving.connect()
    peer.setblocking(True)
    peer.sendall(data)
    (answer,) = serving.read(peer)
    assert answer["brokerctl"] == 1
    assert answer["error"]
    serving.until(lambda: is_closed(serving, peer))
    assert not serving.asked


def test_a_second_request_of_a_connection_is_forgotten(serving):
    serving.connect(line("status") + line("shutdown"), line("shutdown"))
    assert [request.ask for request, _ in serving.asked] == ["status"]


def test_an_answer_to_who_has_gone_is_no_error(serving):
    peer = serving.connect(line("status"))
    ((_, reply),) = serving.asked
    peer.close()
    serving.until(lambda: not serving.server._clients)
    serving.server.answer(reply, {"x": "y" * 100})
    serving.server.answer(12345, {})


def test_followers_get_the_log_after_their_answer_and_the_code_at_the_end(serving):
    follower = serving.connect(line("follow"))
    stopper = serving.connect(line("shutdown"))
    ((_, reply),) = serving.asked
    serving.server.answer(reply, {})
    assert serving.server.followed
    serving.server.log("broker.info[0]: x", 6)
    serving.server.close(129)
    for peer in (follower, stopper):
        assert serving.read(peer, 3) == [{"brokerctl": 1}, {"log": "broker.info[0]: x", "level": 6}, {"exit": 129}]


def test_a_refused_shutdown_is_not_followed(serving):
    peer = serving.connect(line("shutdown"))
    serving.server.answer(serving.asked[0][1], {"error": "no"})
    assert not serving.server.followed
    assert serving.read(peer) == [{"brokerctl": 1, "error": "no"}]


def test_a_follower_that_does_not_read_is_cut_off_and_the_others_go_on(serving):
    slow = serving.connect(line("follow"))
    quick = serving.connect(line("follow"))
    got = serving.read(quick)
    for _ in range(2 * BACKLOG_MAX // 1000):
        serving.server.log("x" * 1000, 6)
        got += serving.read(quick)
    assert len(got) == 1 + 2 * BACKLOG_MAX // 1000
    assert len(serving.server._clients) == 1
    assert serving.server.followed
    slow.close()


def test_the_end_waits_for_a_slow_follower_only_for_a_moment(serving):
    serving.connect(line("follow"))
    for _ in range(BACKLOG_MAX // 2000):
        serving.server.log("x" * 1000, 6)
    began = time.monotonic()
    serving.server.close(0)
    assert time.monotonic() - began < PATIENCE_S / 2


def test_silent_clients_time_out_and_followers_do_not(serving, monkeypatch):
    monkeypatch.setattr(control_server, "IDLE_NS", 50_000_000)
    silent = serving.connect()
    chatty = serving.connect(b"{")
    unanswered = serving.connect(line("status"))
    serving.connect(line("follow"))
    for peer in (silent, chatty, unanswered):
        serving.until(lambda peer=peer: is_closed(serving, peer))
    assert serving.server.followed


def test_no_more_than_so_many_clients_are_served_at_once(serving):
    for _ in range(CLIENTS_MAX):
        serving.connect(line("follow"))
    over = serving.connect()
    assert "already" in serving.read(over)[0]["error"]
    serving.peers[0].close()
    serving.turns()
    assert serving.read(serving.connect(line("follow"))) == [{"brokerctl": 1}]


def test_who_hung_up_behind_a_half_closed_connection_makes_room(serving):
    for _ in range(CLIENTS_MAX):
        peer = serving.connect(line("follow"))
        peer.shutdown(socket.SHUT_WR)
        serving.turns()
    assert len(serving.server._clients) == CLIENTS_MAX
    for peer in serving.peers:
        peer.close()
    serving.turns()
    assert serving.read(serving.connect(line("follow"))) == [{"brokerctl": 1}]


def test_others_are_told_that_they_may_not(serving, monkeypatch):
    monkeypatch.setattr(control_server, "peer_uid", lambda _: os.geteuid() + 1)
    peer = serving.connect(line("status"))
    assert "not permitted" in serving.read(peer)[0]["error"]
    assert not serving.asked


def test_the_uid_at_the_other_end_is_the_kernels_word():
    one, other = socket.socketpair()
    with one, other:
        assert peer_uid(one) == os.geteuid()


def test_without_descriptors_accepting_pauses_instead_of_spinning(serving, monkeypatch):
    class Exhausted:
        def accept(self):
            raise OSError(24, "Too many open files")

        def fileno(self):
            return listener.fileno()

    listener = serving.server._listener
    serving.server._listener = Exhausted()
    serving.connect()
    assert listener.fileno() not in serving.loop._selector.get_map()
    serving.server._listener = listener
    monkeypatch.setattr(time, "monotonic_ns", lambda now=time.monotonic_ns: now() + control_server.ACCEPT_PAUSE_NS)
    serving.turns()
    assert listener.fileno() in serving.loop._selector.get_map()
