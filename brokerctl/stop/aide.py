"""The process that the helper of a stop is: forked from the core's, with two pipes to it.

It is lean, so that the first one can be begun before the core imports what it needs itself: the helper has the time of
the core's own start for what it will surely be asked.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from brokerctl.kernel import pidfd, reap
from brokerctl.kernel.offspring import beget
from brokerctl.kernel.spawn import Child

if TYPE_CHECKING:
    from brokerctl.stop.target import Aim

# SIGKILL takes about a millisecond; nothing of the helper may hold the core.
_KILL_PATIENCE_NS = 200_000_000
# Its life, between its ends of the pipes: what is asked, and what it answers.
Serve = Callable[[int, int, "Aim"], None]


def serve(questions: int, answers: int, aim: Aim) -> None:
    """The helper's life; it is imported where it lives."""
    from brokerctl.stop.helper import serve as life

    life(questions, answers, aim)


def serve_first(questions: int, answers: int, aim: Aim) -> None:
    """The life of the first one of a Flux broker, which begins with what it will surely be asked."""
    from brokerctl.stop.ahead import Ahead

    ahead = Ahead(aim)
    from brokerctl.stop.helper import serve as life

    life(questions, answers, aim, ahead)


class Aide(NamedTuple):
    """A helper that lives, and the core's ends of its pipes."""

    child: Child
    questions: int
    answers: int

    def end(self) -> None:
        """End it and reap it; one in state D is left to whoever cleans up the unit."""
        os.close(self.questions)
        os.close(self.answers)
        pidfd.send(self.child.pidfd, signal.SIGKILL)
        pidfd.ends_within(self.child.pidfd, _KILL_PATIENCE_NS)
        reap.collect(self.child.pid)
        os.close(self.child.pidfd)


def begin(aim: Aim, life: Serve) -> Aide:
    """Start one; OSError where no process can be made."""
    asked, questions = os.pipe()
    answers, answered = os.pipe()
    os.set_blocking(questions, False)
    os.set_blocking(answers, False)
    try:
        child = beget(lambda reader, writer: life(reader, writer, aim), asked, answered)
    except OSError:
        os.close(questions)
        os.close(answers)
        raise
    finally:
        os.close(asked)
        os.close(answered)
    return Aide(child, questions, answers)
