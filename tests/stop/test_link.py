"""The core's end of its helper: whatever the helper does, each question is answered or fails, and nothing is left."""

from __future__ import annotations

import os
import signal
import time

import pytest

from brokerctl.durations import MS, S
from brokerctl.kernel import proc
from brokerctl.kernel.proc import User
from brokerctl.records import Answered, Query, QueryFailed
from brokerctl.records.stops import Holding, Look, Peers
from brokerctl.stop import link as links
from brokerctl.stop import protocol
from brokerctl.stop.link import Link
from brokerctl.stop.target import Aim
from brokerctl.worlds.live.loop import Loop

AIM = Aim("flux", 4711, "flux-broker-0", "flux.service", User(0, 0))


def questions(fd):
    with os.fdopen(fd, "rb", closefd=False) as file:
        for line in file:
            yield protocol.question(line)


def honest(asked, answers, _aim):
    for question in questions(asked):
        os.write(answers, protocol.encode(protocol.Reply(question.id, Look("run"))))


def dies(asked, _answers, _aim):
    next(questions(asked))
    os._exit(3)


def raises(asked, _answers, _aim):
    next(questions(asked))
    raise RuntimeError("broken for a test")


def hangs(_asked, _answers, _aim):
    time.sleep(60)


def babbles(asked, answers, _aim):
    next(questions(asked))
    os.write(answers, b"\xff{garbage\n")
    time.sleep(60)


def never_ends_a_line(asked, answers, _aim):
    next(questions(asked))
    while True:
        os.write(answers, b"x" * 60000)


def another_version(asked, answers, _aim):
    next(questions(asked))
    os.write(answers, b'{"v":2,"id":1,"error":"x"}\n')
    time.sleep(60)


def answers_what_was_not_asked(asked, answers, _aim):
    for question in questions(asked):
        os.write(answers, protocol.encode(protocol.Reply(question.id + 100, Look("run"))))
        os.write(answers, protocol.encode(protocol.Reply(question.id, Look("quorum"))))


class Asker:
    """A loop with a link; `ask` returns what comes of a question."""

    def __init__(self, life):
        self.loop = Loop()
        self.got = []
        self.link = Link(self.loop, AIM, self.took, life)
        self.number = 0

    def took(self, event):
        self.got.append(event)
        self.loop.stop()

    def ask(self, within_ns=100 * MS):
        self.number += 1
        self.got.clear()
        query = Query(self.number, "look", (), within_ns)
        self.loop.after(0, lambda: self.link.ask(query))
        end = self.loop.after(20 * S, self.loop.stop)
        while not self.got:
            self.loop.run()
        end.cancel()
        return self.got[0]


@pytest.fixture
def asker(capfd):
    made = []

    def make(life):
        made.append(Asker(life))
        return made[-1]

    yield make
    for each in made:
        each.link.close()
        assert each.link.pid is None
        assert each.loop.armed() <= 1
        each.loop.close()
    capfd.readouterr()


def test_an_honest_helper_answers_one_question_after_the_other_and_is_started_once(asker):
    made = asker(honest)
    first = made.ask()
    pid = made.link.pid
    assert first == Answered(1, Look("run"))
    assert made.ask() == Answered(2, Look("run"))
    assert made.link.pid == pid


@pytest.mark.parametrize(
    ("life", "why"),
    [
        (dies, "has died"),
        (raises, "has died"),
        (babbles, "talks nonsense"),
        (never_ends_a_line, "talks without end"),
        (another_version, "talks nonsense: version 2"),
    ],
)
def test_a_broken_helper_costs_its_question_and_is_reaped(asker, life, why):
    made = asker(life)
    got = made.ask()
    assert isinstance(got, QueryFailed)
    assert why in got.why
    assert made.link.pid is None


def test_a_helper_that_hangs_is_killed_a_second_after_the_time_of_its_question(asker):
    made = asker(hangs)
    began = time.monotonic()
    got = made.ask()
    assert isinstance(got, QueryFailed)
    assert "hangs" in got.why
    assert 1 <= time.monotonic() - began < 5
    assert made.link.pid is None


def test_a_stopped_helper_is_killed_as_one_that_hangs(asker):
    made = asker(honest)
    made.ask()
    os.kill(made.link.pid, signal.SIGSTOP)
    assert "hangs" in made.ask().why


def test_a_helper_is_started_again_three_times_with_pauses_and_then_no_more(asker, monkeypatch):
    monkeypatch.setattr(links, "BACK_OFF_NS", 100 * MS)
    made = asker(dies)
    whys = []
    deadline = time.monotonic() + 10
    while "4 times" not in (whys[-1] if whys else "") and time.monotonic() < deadline:
        whys.append(made.ask().why)
        time.sleep(0.005)
    assert sum("has died" in why for why in whys) == 4
    assert any("about to be started again" in why for why in whys)
    assert whys[-1] == "the helper has ended 4 times"


def test_an_answer_to_a_question_that_was_never_asked_is_ignored(asker):
    assert asker(answers_what_was_not_asked).ask() == Answered(1, Look("quorum"))


def test_an_answer_about_all_ranks_of_the_largest_instance_comes_through(asker):
    held = Peers("all", tuple(Holding(rank, f"node{rank:05}.cluster", "has not said goodbye") for rank in range(16384)))

    def tells(asked, answers, _aim):
        for question in questions(asked):
            data = protocol.encode(protocol.Reply(question.id, held))
            while data:
                data = data[os.write(answers, data) :]

    assert asker(tells).ask(within_ns=10 * S) == Answered(1, held)


def test_the_helper_has_no_descriptor_of_the_core_but_its_two_pipes(asker):
    def tells(asked, answers, _aim):
        for question in questions(asked):
            held = sorted(int(name) for name in os.listdir("/proc/self/fd"))  # noqa: PTH208
            os.write(answers, protocol.encode(protocol.Reply(question.id, error=" ".join(map(str, held)))))

    extra = os.open("/", os.O_RDONLY)
    try:
        got = asker(tells).ask()
    finally:
        os.close(extra)
    # 0, 1, 2, the two pipes, and the listing itself.
    assert got.why == "0 1 2 3 4 5"


def test_the_helper_dies_with_the_core():
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        made = Asker(honest)
        made.ask()
        os.write(writer, str(made.link.pid).encode())
        time.sleep(60)
    helper = int(os.read(reader, 20))
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    deadline = time.monotonic() + 5
    while (at := proc.stat(helper)) is not None and at.state != "Z":
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.close(reader)
    os.close(writer)
