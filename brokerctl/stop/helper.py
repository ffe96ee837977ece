"""The helper of a stop: it answers the core's questions, each by itself, and dies without harm.

It is forked from the core, so it starts in a millisecond. All that can hang is a command, which is ended at its time.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from brokerctl.durations import MS
from brokerctl.records.stops import AnyAnswer
from brokerctl.stop.broker import FluxBroker
from brokerctl.stop.errands import Errand, Runner
from brokerctl.stop.protocol import LINE_MAX, Question, Reply, encode, question
from brokerctl.stop.reporting import Reporter
from brokerctl.stop.target import Aim

if TYPE_CHECKING:
    from brokerctl.stop.supervised import Supervised

_READ = 64 << 10
# An answer is on its way before the core's own time for it is over.
MARGIN_NS = 100 * MS


def serve(questions: int, answers: int, aim: Aim) -> None:
    """Answer what comes until the questions end."""
    Helper(questions, answers, aim).run()


class Helper:
    """The questions of one core about one main."""

    def __init__(self, questions: int, answers: int, aim: Aim) -> None:
        self._questions = questions
        self._answers = answers
        self._buffer = b""
        self._ended = False
        self._runner = Runner()
        self._broker = _broker(aim)
        self._reporter = Reporter(self._broker)

    def run(self) -> None:
        """To the end of the questions."""
        self._runner.watch(self._questions, self._read)
        try:
            while not self._ended:
                self._runner.turn()
        finally:
            self._runner.close()

    def _read(self) -> None:
        data = os.read(self._questions, _READ)
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        self._ended = not data or len(self._buffer) > LINE_MAX
        for line in lines:
            asked = question(line)
            self._runner.start(
                self._errand(asked),
                max(0, asked.within_ns - MARGIN_NS),
                lambda answer, why, number=asked.id: self._reply(Reply(number, answer, why)),  # type: ignore[misc]
            )

    def _errand(self, asked: Question) -> Errand[AnyAnswer]:
        broker, words = self._broker, asked.words
        if asked.ask == "look":
            return (yield from broker.look())
        if asked.ask == "peers":
            return (yield from broker.peers())
        if asked.ask == "shed":
            return (yield from broker.shed(words[0]))
        if asked.ask == "before":
            return (yield from self._reporter.before())
        if asked.ask == "after":
            return (yield from self._reporter.after(words))
        raise ValueError(f"{asked.ask}: is no question for the helper")

    def _reply(self, reply: Reply) -> None:
        line = encode(reply)
        if len(line) > LINE_MAX:
            line = encode(Reply(reply.id, error=f"an answer of {len(line)} bytes is too long"))
        view = memoryview(line)
        while view:  # the core reads; if it has gone, SIGPIPE ends us, as it should
            view = view[os.write(self._answers, view) :]


def _broker(aim: Aim) -> FluxBroker | Supervised:
    if aim.kind == "flux":
        return FluxBroker(aim)
    from brokerctl.stop.supervised import Supervised  # 5 ms, which a stop of Flux need not wait for

    return Supervised(aim)
