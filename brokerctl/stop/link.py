"""The core's end of its helper: questions go out, answers come in, and nothing of it can hold or harm the core.

A helper that dies, hangs, or talks nonsense costs what it was asked, no more: its open questions fail, and the next one
starts another, at most three times.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from brokerctl.records import Answered, Query, QueryFailed
from brokerctl.stop import aide, protocol
from brokerctl.stop.aide import Aide, Serve
from brokerctl.stop.target import Aim
from brokerctl.worlds.live.loop import READ, Loop, Timer

RESTARTS_MAX = 3
# The second helper starts at once after the first; then a cause may need a moment to go away.
BACK_OFF_NS = 200_000_000
# A helper that is late by this much hangs: it bounds its own calls by the question's time.
LATE_NS = 1_000_000_000
_READ = 64 << 10

Post = Callable[[Answered | QueryFailed], None]


class Link:
    """One helper at a time; `post` gets an answer, or why there is none, for each question.

    `first` lives already; it is the link's from now on.
    """

    def __init__(self, loop: Loop, aim: Aim, post: Post, life: Serve = aide.serve, first: Aide | None = None) -> None:
        self._loop = loop
        self._aim = aim
        self._post = post
        self._life = life
        self._aide: Aide | None = None
        self._buffer = bytearray()
        self._open: dict[int, Timer] = {}
        self._started = 0
        self._not_before_ns = 0
        if first is not None:
            self._take(first)

    @property
    def pid(self) -> int | None:
        """The helper that lives, if one does."""
        return None if self._aide is None else self._aide.child.pid

    def ask(self, query: Query) -> None:
        """Hand a question to the helper, which is started for it if there is none."""
        failed = self._start()
        if self._aide is None:
            self._post(QueryFailed(query.query, failed))
            return
        line = protocol.encode(protocol.Question(query.query, query.what, query.words, query.within_ns))
        try:
            sent = os.write(self._aide.questions, line)
        except OSError as error:
            sent, failed = -1, error.strerror or str(error)
        self._open[query.query] = self._loop.after(query.within_ns + LATE_NS, lambda: self._end("the helper hangs"))
        if sent != len(line):
            self._end(f"the helper takes no questions: {failed or 'its pipe is full'}")

    # ---- its life

    def _start(self) -> str:
        """Start one if there is none; what went wrong, or nothing."""
        if self._aide is not None:
            return ""
        if self._started > RESTARTS_MAX:
            return f"the helper has ended {self._started} times"
        if time.monotonic_ns() < self._not_before_ns:
            return "the helper is about to be started again"
        try:
            self._take(aide.begin(self._aim, self._life))
        except OSError as error:
            return f"no helper can be started: {error.strerror}"
        return ""

    def _take(self, one: Aide) -> None:
        self._aide = one
        self._not_before_ns = time.monotonic_ns() + (BACK_OFF_NS << self._started)
        self._started += 1
        self._loop.watch(one.answers, READ, self._readable)

    def _readable(self, _events: int) -> None:
        assert self._aide is not None
        try:
            data = os.read(self._aide.answers, _READ)
        except BlockingIOError:
            return
        if not data:
            self._end("the helper has died")
            return
        lines: list[bytes] = []
        self._buffer += data
        if b"\n" in data:  # of a long line, nothing is looked at twice
            *lines, rest = bytes(self._buffer).split(b"\n")
            self._buffer = bytearray(rest)
        if len(self._buffer) > protocol.LINE_MAX:
            self._end("the helper talks without end")
            return
        for line in lines:
            try:
                self._answered(protocol.reply(line))
            except ValueError as error:
                self._end(f"the helper talks nonsense: {error}")
                return

    def _answered(self, reply: protocol.Reply) -> None:
        timer = self._open.pop(reply.id, None)
        if timer is None:
            return
        timer.cancel()
        if reply.answer is not None:
            self._post(Answered(reply.id, reply.answer))
        else:
            self._post(QueryFailed(reply.id, reply.error or "the helper does not know"))

    def _end(self, why: str) -> None:
        """The helper is of no use any more."""
        self.close()
        for number, timer in self._open.items():
            timer.cancel()
            self._post(QueryFailed(number, why))
        self._open.clear()

    def close(self) -> None:
        """End the helper and reap it."""
        one, self._aide = self._aide, None
        if one is not None:
            self._loop.unwatch(one.answers)
            one.end()
            self._buffer.clear()
