"""Questions of the wrapper: each is answered, fails, or is over when its time is; never more than one of these."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from brokerctl.durations import as_short
from brokerctl.records import Answered, Query, QueryFailed
from brokerctl.records.stops import AnyAnswer, Ask, Holders, Look, Peers, Report, Sheds, Written

if TYPE_CHECKING:
    from brokerctl.model.desk import Desk

_T = TypeVar("_T", bound=AnyAnswer)

_ANSWERS: dict[type[object], tuple[Ask, ...]] = {
    Look: ("look",),
    Peers: ("peers",),
    Sheds: ("shed",),
    Holders: ("holders",),
    Written: ("written",),
    Report: ("before", "after"),
}


class Questions:
    """All that are open; an answer to another one, or of another kind, is worth nothing."""

    __slots__ = ("_desk", "_next", "_open")

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._next = 0
        self._open: dict[int, tuple[type[AnyAnswer], Callable[[AnyAnswer], None], Callable[[str], None]]] = {}

    def ask(
        self,
        what: Ask,
        kind: type[_T],
        within_ns: int,
        then: Callable[[_T], None],
        failed: Callable[[str], None],
        words: tuple[str, ...] = (),
    ) -> None:
        """Ask; `then` gets the answer, or `failed` why there is none, within the time."""
        assert what in _ANSWERS[kind], f"{kind.__name__} does not answer {what}"
        self._next += 1
        number = self._next
        self._open[number] = (kind, then, failed)  # type: ignore[assignment]

        def over() -> None:
            self.failed(QueryFailed(number, f"no answer within {as_short(within_ns)}"))

        self._desk.arm(f"query {number}", within_ns, over)
        self._desk.emit(Query(number, what, words, within_ns))

    def answered(self, event: Answered) -> None:
        """An answer has come."""
        expected = self._open.get(event.query)
        if expected is None:
            return  # too late, or never asked
        if not isinstance(event.answer, expected[0]):
            self.failed(QueryFailed(event.query, f"the answer is a {type(event.answer).__name__}"))
            return
        self._close(event.query)
        expected[1](event.answer)

    def failed(self, event: QueryFailed) -> None:
        """No answer will come."""
        expected = self._open.get(event.query)
        if expected is not None:
            self._close(event.query)
            expected[2](event.why)

    def drop(self) -> None:
        """Nobody wants an answer any more."""
        for number in tuple(self._open):
            self._close(number)

    def _close(self, number: int) -> None:
        del self._open[number]
        self._desk.cancel(f"query {number}")
