"""The helper of a stop: it answers the core's questions, each by itself, and dies without harm.

It is forked from the core, so it starts in a millisecond. All that can hang is a command, which is ended at its time.
"""

from __future__ import annotations

import gc
import os
from functools import cached_property
from typing import TYPE_CHECKING

from brokerctl.durations import MS, S
from brokerctl.records.stops import AnyAnswer
from brokerctl.stop.broker import FluxBroker
from brokerctl.stop.errands import Errand, Runner
from brokerctl.stop.protocol import LINE_MAX, Question, Reply, encode, question
from brokerctl.stop.target import Aim

if TYPE_CHECKING:
    from brokerctl.stop.ahead import Ahead
    from brokerctl.stop.reporting import Reporter
    from brokerctl.stop.supervised import Supervised

_READ = 64 << 10
# An answer is on its way before the core's own time for it is over.
MARGIN_NS = 100 * MS
LEARN_NS = 2 * S


def serve(questions: int, answers: int, aim: Aim, ahead: Ahead | None = None) -> None:
    """Answer what comes until the questions end; `ahead` is what is asked already."""
    gc.enable()  # the core starts without it
    Helper(questions, answers, aim, ahead).run()


class Helper:
    """The questions of one core about one main."""

    def __init__(self, questions: int, answers: int, aim: Aim, ahead: Ahead | None) -> None:
        self._questions = questions
        self._answers = answers
        self._buffer = b""
        self._ended = False
        self._ahead = ahead
        self._runner = Runner() if ahead is None else ahead.runner
        self._broker = _broker(aim)

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
            self._asked(question(line))

    def _asked(self, asked: Question) -> None:
        if asked.ask == "before" and self._ahead is not None:
            self._ahead.then(lambda said: self._answer(asked, self._reporter.before(said)))
        else:
            self._answer(asked, self._errand(asked))
        _ = self._reporter  # made while commands are under way, and main lives

    @cached_property
    def _reporter(self) -> Reporter:
        from brokerctl.stop.reporting import Reporter

        return Reporter(self._broker)

    def _answer(self, asked: Question, errand: Errand[AnyAnswer]) -> None:
        def answered(answer: AnyAnswer | None, why: str) -> None:
            self._reply(Reply(asked.id, answer, why))
            self._learn()

        self._runner.start(errand, max(0, asked.within_ns - MARGIN_NS), answered)

    def _learn(self) -> None:
        """What no SIGTERM has to wait for."""
        if isinstance(self._broker, FluxBroker) and not self._broker.asked:
            self._runner.start(self._broker.learn(), LEARN_NS, lambda _done, _why: None)

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
        while view:  # where the core has gone this raises, which ends us, as it should
            view = view[os.write(self._answers, view) :]


def _broker(aim: Aim) -> FluxBroker | Supervised:
    if aim.kind == "flux":
        return FluxBroker(aim)
    from brokerctl.stop.supervised import Supervised  # 5 ms, which a stop of Flux need not wait for

    return Supervised(aim)
