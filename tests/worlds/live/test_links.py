"""The links of a live broker, each end in a loop: what is told, when, and what is not."""

import socket
import time

import pytest

from brokerctl import config
from brokerctl.durations import MS, S
from brokerctl.model.tree import Tree
from brokerctl.records import (
    Command,
    ConfigGet,
    Contacted,
    Disconnect,
    Exec,
    Goodbye,
    GoodbyeOk,
    Hello,
    Lost,
    Online,
    Received,
    Responsive,
    StateIs,
    Torpid,
)
from brokerctl.trace import Topology
from brokerctl.worlds.live import links, wire
from brokerctl.worlds.live.links import Links
from brokerctl.worlds.live.loop import Loop

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")

PATIENCE_NS = 20 * S
TREE = Tree(Topology((-1, 0, 0, 1), ("a", "b", "c", "d")))


class Place:
    """Ranks that share a loop, so that both ends of a link can be looked at."""

    def __init__(self, folder, policy="hardened", **fields):
        self.folder = folder
        self.settings = config.with_fields(policy, fields)
        self.loop = Loop()
        self.told, self.complaints, self.joined, self.ranks = {}, [], [], {}

    def rank(self, number):
        told = self.told.setdefault(number, [])
        made = Links(
            self.loop, number, TREE, self.settings,
            post=told.append, complain=self.complaints.append, joined=lambda: self.joined.append(number),
        )  # fmt: skip
        parent = TREE.parents[number]
        made.open(self.path(number), self.path(parent) if number else None)
        self.ranks[number] = made
        return made

    def path(self, number):
        return self.folder / str(number)

    def until(self, condition, what):
        """Turn the loop until that holds."""
        end_ns = time.monotonic_ns() + PATIENCE_NS
        done = []

        def look():
            if condition():
                done.append(True)
                self.loop.stop()
            elif time.monotonic_ns() > end_ns:
                self.loop.stop()
            else:
                self.loop.after(2 * MS, look)

        self.loop.after(0, look)
        self.loop.run()
        assert done, f"no {what}: {self.told}, {self.complaints}"

    def turn(self, ns):
        end_ns = time.monotonic_ns() + ns
        self.until(lambda: time.monotonic_ns() >= end_ns, "time")

    def until_told(self, number, *events):
        self.until(lambda: self.told[number][-len(events) :] == list(events), f"{events} at rank {number}")

    def stranger(self, number=0):
        peer = socket.socket(socket.AF_UNIX)
        peer.setblocking(False)
        peer.connect(str(self.path(number)))
        return peer

    def close(self):
        for made in self.ranks.values():
            made.close()
        self.loop.close()


@pytest.fixture
def place(tmp_path_factory):
    made = []

    def make(**options):
        made.append(Place(tmp_path_factory.mktemp("l"), **options))
        return made[-1]

    yield make
    for each in made:
        files = list(each.folder.iterdir())
        each.close()
        assert all(file.name in "0123" for file in files), files
        assert list(each.folder.iterdir()) == []


def joined(place, *numbers, **options):
    here = place(**options)
    ranks = [here.rank(number) for number in numbers]
    for number, rank in zip(numbers, ranks, strict=True):
        if number:
            rank.send(TREE.parents[number], Hello())
            here.until_told(TREE.parents[number], Received(number, Hello()))
    here.until(lambda: sorted(here.joined) == sorted(number for number in numbers if number), "answer")
    return here, *ranks


def test_a_child_that_comes_before_its_parent_is_heard_when_that_is_there(place):
    here = place()
    child = here.rank(1)
    child.send(0, Hello())
    child.send(0, ConfigGet())
    here.turn(300 * MS)
    here.rank(0)
    here.until_told(0, Received(1, Hello()), Received(1, ConfigGet()))
    here.until(lambda: here.joined == [1], "answer")
    assert here.path(0).stat().st_mode & 0o777 == 0o600


def test_both_ways_messages_come_in_their_order(place):
    here, leader, child = joined(place, 0, 1)
    for state in ("quorum", "run", "cleanup"):
        leader.send(1, StateIs(state))
    here.until_told(1, *(Received(0, StateIs(state)) for state in ("quorum", "run", "cleanup")))
    child.send(0, Online((1, 3)))
    here.until_told(0, Received(1, Online((1, 3))))


def test_a_long_message_arrives_whole(place):
    here, leader, _ = joined(place, 0, 1)
    message = Exec("cleanup.0", Command("x" * 5_000_000, ("x",)), ())
    leader.send(1, message)
    here.until_told(1, Received(0, message))


def test_hardened_the_end_of_a_connection_is_told_at_once_at_each_end(place):
    here, _leader, child = joined(place, 0, 1)
    child.cut()
    here.until_told(0, Lost(1, "connection lost"))
    here.until_told(1, Lost(0, "connection lost"))


def test_under_flux_a_parent_notices_with_its_next_heartbeat_and_a_child_after_heartbeat_timeout(place):
    here, _leader, child = joined(place, 0, 1, policy="flux", heartbeat_period_ns=300 * MS, heartbeat_timeout_ns=S)
    began = time.monotonic_ns()
    child.cut()
    here.until_told(0, Lost(1, "no heartbeat for 1s"))
    assert time.monotonic_ns() - began < 700 * MS
    assert not any(isinstance(event, Lost) for event in here.told[1])
    here.until_told(1, Lost(0, "no heartbeat for 1s"))
    assert time.monotonic_ns() - began >= S


def test_after_a_hangup_what_was_sent_arrives_and_nothing_is_lost(place):
    here, leader, child = joined(place, 0, 1)
    child.send(0, Goodbye())
    here.until_told(0, Received(1, Goodbye()))
    leader.send(1, GoodbyeOk())
    leader.hangup(1)
    here.until_told(1, Received(0, GoodbyeOk()))
    child.send(0, Online((1,)))
    here.turn(300 * MS)
    assert [type(event) for event in here.told[0] + here.told[1]].count(Lost) == 0


def test_a_disconnect_tells_all_there_is_to_tell(place):
    here, leader, _ = joined(place, 0, 1)
    leader.send(1, Disconnect())
    leader.hangup(1)
    here.until_told(1, Received(0, Disconnect()))
    here.turn(300 * MS)
    assert here.told[1] == [Received(0, Disconnect())]


def test_heartbeats_keep_a_silent_link_alive_and_are_no_events(place):
    here, *_ = joined(place, 0, 1, heartbeat_period_ns=100 * MS, heartbeat_timeout_ns=900 * MS, torpid_max_ns=900 * MS)
    before = {number: list(told) for number, told in here.told.items()}
    here.turn(2 * S)
    assert here.told == before


def test_a_period_that_is_longer_than_the_patience_is_shortened(place):
    here, *_ = joined(place, 0, 1, heartbeat_period_ns=60 * S, heartbeat_timeout_ns=900 * MS, torpid_max_ns=900 * MS)
    here.turn(2 * S)
    assert not any(isinstance(event, Lost | Torpid) for event in here.told[0] + here.told[1])


def test_a_child_that_is_silent_is_torpid_once_until_it_is_heard_again(place):
    here = place(torpid_max_ns=300 * MS)
    here.rank(0)
    peer = here.stranger()
    peer.sendall(wire.first_line(1) + wire.line(Hello()))
    here.until(lambda: any(isinstance(event, Torpid) for event in here.told[0]), "torpor")
    here.turn(700 * MS)
    (torpid,) = [event for event in here.told[0] if isinstance(event, Torpid)]
    assert torpid.peer == 1
    assert 300 * MS <= torpid.silent_ns < 5 * S
    peer.sendall(wire.HEARTBEAT)
    here.until_told(0, Responsive(1))
    peer.close()
    here.until_told(0, Lost(1, "connection lost"))


def test_a_parent_that_is_silent_is_lost(place):
    here = place(heartbeat_timeout_ns=S)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(here.path(0)))
    listener.listen()
    here.rank(1)
    here.until_told(1, Lost(0, "no heartbeat for 1s"))
    listener.close()
    here.path(0).unlink()


def test_who_never_said_hello_in_this_life_is_told_as_contacted(place):
    here = place()
    here.rank(0)
    with here.stranger() as peer:
        peer.sendall(wire.first_line(1) + wire.line(ConfigGet()))
        here.until_told(0, Contacted(1))


def test_a_rank_may_come_again_in_a_new_life(place):
    here = place(policy="flux", heartbeat_period_ns=60 * S)
    here.rank(0)
    for _ in range(2):
        with here.stranger() as peer:
            peer.sendall(wire.first_line(1) + wire.line(Hello()))
            here.until_told(0, Received(1, Hello()))
        here.turn(50 * MS)
    assert [type(event) for event in here.told[0]] == [Received, Lost, Received]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"nothing\n", "a connection is dropped: no first line of a broker"),
        (b"x" * 1000, "a connection is dropped: a line that is too long"),
        (wire.first_line(3), "a connection is dropped: rank 3, which is no child of this one"),
        (wire.first_line(1), "a connection is dropped: rank 1 for a second time"),
        (wire.first_line(2) + b"nothing\n", "rank 2 is dropped: no message"),
        (wire.first_line(2) + wire.line(Hello()) + wire.line(Online((1,))), "rank 2 is dropped: ranks that are not"),
        (wire.first_line(2) + wire.line(GoodbyeOk()), "rank 2 is dropped: GoodbyeOk from a child"),
    ],
)
def test_nonsense_drops_its_sender_with_one_line_and_nobody_else(place, said, why):
    here, leader, _ = joined(place, 0, 1)
    with here.stranger() as peer:
        peer.sendall(said)
        here.until(lambda: here.complaints, "complaint")
        here.turn(50 * MS)
    assert len(here.complaints) == 1
    assert why in here.complaints[0]
    leader.send(1, StateIs("run"))
    here.until_told(1, Received(0, StateIs("run")))


def test_a_command_that_is_sent_twice_is_nonsense(place):
    here, leader, _ = joined(place, 0, 1)
    message = Exec("cleanup.0", Command("a", ("a",)), ())
    leader.send(1, message)
    leader.send(1, message)
    here.until_told(1, Received(0, message), Lost(0, "connection lost"))
    assert here.complaints == ["tbon: rank 0 is dropped: a run for a second time"]


def test_who_takes_nothing_is_dropped_when_too_much_waits_for_it(place, monkeypatch):
    monkeypatch.setattr(links, "BACKLOG_MAX", 1 << 20)
    here = place()
    leader = here.rank(0)
    with here.stranger() as peer:
        peer.sendall(wire.first_line(1) + wire.line(Hello()))
        here.until_told(0, Received(1, Hello()))
        began = time.monotonic()
        leader.send(1, Exec("cleanup.0", Command("x" * (3 << 20), ("x",)), ()))
        assert time.monotonic() - began < 2
        here.until_told(0, Lost(1, "connection lost"))


def test_closing_waits_only_a_moment_for_who_takes_nothing(place):
    here = place()
    leader = here.rank(0)
    with here.stranger() as peer:
        peer.sendall(wire.first_line(1) + wire.line(Hello()))
        here.until_told(0, Received(1, Hello()))
        leader.send(1, Exec("cleanup.0", Command("x" * (3 << 20), ("x",)), ()))
        began = time.monotonic()
        here.ranks.pop(0).close()
        assert time.monotonic() - began < 3


def test_who_does_not_say_who_it_is_is_dropped_in_time(place, monkeypatch):
    monkeypatch.setattr(links, "UNKNOWN_NS", 100 * MS)
    here = place()
    here.rank(0)
    with here.stranger() as peer:
        here.until(lambda: here.complaints, "complaint")
        assert peer.recv(10) == b""
    assert here.complaints == ["tbon: a connection is dropped: it does not say who it is"]


def test_a_parent_that_was_there_and_is_dead_is_lost_to_who_comes_too_late(place):
    here = place()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(here.path(0)))
    here.rank(1).send(0, Hello())
    here.until_told(1, Lost(0, "connection lost"))
    here.path(0).unlink()
