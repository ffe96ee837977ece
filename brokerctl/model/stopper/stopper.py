"""The wrapper around a service's stop: it asks, runs the site's actions, sends one SIGTERM, and waits for main's end.

Why it never does more
----------------------
A second SIGTERM to a Flux broker is never harmless: in CLEANUP it aborts the cleanup, in FINALIZE rc3, and what was to
be saved is lost (FLUX.md 100, 101). Nor may the wrapper leave early: systemd then sends that SIGTERM (SYSTEMD.md 16).
So main gets SIGTERM (and SIGCONT, for one that is stopped: FLUX.md 107) at most once, only if no stop is under way, and
the wrapper ends only when main has, or when systemd ends it.

A main that can't be asked
--------------------------
Nobody answers within the patience: most likely main is in RUN and the asking is broken, or it is wedged. Either way
SIGTERM is what lets it save its state; to wait would only leave that SIGTERM to systemd, when the time is over. It is
sent, without the site's actions, which may need a main that works. A stop that is under way would show in main's
status, which is asked for as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from brokerctl.durations import MS, S, as_short
from brokerctl.ids import idset
from brokerctl.model.actions import ActionList
from brokerctl.model.desk import HANDLERS, Desk
from brokerctl.model.lifecycle import STOPPING, State
from brokerctl.model.run import ERR, INFO, SIGKILL, WARNING
from brokerctl.model.stopper.holders import HoldersOfCleanup
from brokerctl.model.stopper.manager import Manager
from brokerctl.model.stopper.questions import Questions
from brokerctl.model.stopper.shedding import Shedding
from brokerctl.model.stopper.watch import UNTOLD, Watch, state_of
from brokerctl.model.words import ESRCH, error_text, signal_name
from brokerctl.records import (
    Abandon,
    Aimed,
    Answered,
    Exit,
    Kill,
    MainGone,
    QueryFailed,
    Signal,
    SignalFailed,
    SignalMain,
)
from brokerctl.records.stops import Look, Report

if TYPE_CHECKING:
    from brokerctl.settings import StopSettings

SIGTERM, SIGCONT = 15, 18
# docs/wrapper.md. systemd counts none of them as success, unless the unit says so.
EXIT_FAILED, EXIT_BROKEN, EXIT_TOLD = 1, 3, 75

UNASKED = "main could not be asked for its state"
ASK_AGAIN_NS = 200 * MS
# The report of what runs now needs a moment; the first of Flux's cleanup actions to touch a job comes ~0.4 s after the
# SIGTERM (FLUX.md 15), so a late report is still right, and a stop is not held up for it.
BEFORE_PATIENCE_NS = 150 * MS
BEFORE_TIMEOUT_NS = 2 * S
AFTER_TIMEOUT_NS = 2 * S
# A process of another kind tells nothing of itself; what is promised about its stop is systemd's own time.
STILL_THERE_NS = 30 * S
# What the helper reports is for people: a screenful.
REPORT_LINES_MAX = 60
REPORT_LINE_MAX = 400
_LEVELS = "01234567"  # of syslog(3)


class Stopper(Desk):
    """One stop. `handle` is the only way in; the effects it appends are the only way out."""

    __slots__ = (
        "_acting", "_actions", "_aimed", "_asked_ns", "_broken", "_never_joined", "_said", "began_ns", "failed", "gone",
        "holders", "manager", "questions", "shedding", "signalled", "watch",
    )  # fmt: skip

    settings: StopSettings

    def __init__(self, settings: StopSettings) -> None:
        super().__init__()
        self.settings = settings
        self._aimed = Aimed("other")
        self._actions: ActionList | None = None
        self._acting = False
        self._never_joined = False  # so that its rc3 fails, as is expected
        self._asked_ns = 0  # since when it is asked in vain
        self._broken: list[str] = []  # the bounds that did not hold
        self._said: set[str] = set()
        self.began_ns = 0
        self.failed: list[str] = []  # what else went wrong
        self.signalled = False  # main got its SIGTERM from us
        self.gone = False
        self.questions = Questions(self)
        self.watch = Watch(self)
        self.holders = HoldersOfCleanup(self)
        self.shedding = Shedding(self)
        self.manager = Manager(self)

    @property
    def whom(self) -> str:
        """`flux-broker-0 (pid 4711)`: main, in words."""
        name = self._aimed.name or "main"
        return f"{name} (pid {self._aimed.pid})" if self._aimed.pid else name

    # ---- the beginning: what does main do?

    def _aimed_at(self, event: Aimed) -> None:
        self._aimed, self.began_ns, self._asked_ns = event, self.now_ns, self.now_ns
        if event.complaint:
            self.log("stop", ERR, event.complaint)
            self.failed.append(event.complaint)
        if event.kind == "other":
            self._act()
        else:
            self._ask(self._first)

    def _ask(self, then: Callable[[Look], None]) -> None:
        self.watch.ask(then, self._unanswered)

    def _unanswered(self, why: str) -> None:
        if self.now_ns - self._asked_ns < self.settings.ask_patience_ns:
            self.emit(SignalMain(SIGCONT))  # it may be stopped; to all others it means nothing (FLUX.md 33)
            self.arm("ask", ASK_AGAIN_NS, lambda: self._ask(self._first))
            return
        actions = "" if self._actions is not None else ", no site action"
        self.log("stop", WARNING, f"{self.whom} can't be asked what it does ({why}): it gets SIGTERM{actions}")
        self.failed.append(UNASKED)
        self._terminate()

    def _first(self, look: Look) -> None:
        state = self.watch.state
        if look.guessed:
            self.say_once(
                f"{self.whom} does not answer; by its status it is in {look.state}: who holds its stop is left alone"
            )
        if state is None or state_of(look) is None:
            self._unanswered(UNTOLD)
        elif state in STOPPING:
            self._join(state)
        elif self._actions is not None:
            self._terminate()  # they have run: this was the last look before the SIGTERM
        elif state is State.RUN:
            self._running(look)
        else:
            self._starting(state, look)

    def _join(self, state: State) -> None:
        reason = f" ({self.watch.look.reason})" if self.watch.look.reason else ""
        self.log("stop", INFO, f"{self.whom} is in {state}: a stop is under way{reason}; joined, no signal is sent")
        self.watch.begin()
        self.manager.tell()

    def _starting(self, state: State, look: Look) -> None:
        """Nothing runs yet that the site's actions would be for."""
        self.log("stop", INFO, f"{self.whom} is in {state}, not in run: it gets SIGTERM, no site action")
        if look.rank and state is State.JOIN:
            self._never_joined = True
            text = 'its rc3 will fail ("upstream offline"), which is expected of a follower that never joined'
            self.log("stop", INFO, text)
        self._terminate()

    def _running(self, look: Look) -> None:
        self.questions.ask("before", Report, BEFORE_TIMEOUT_NS, self._before, lambda _why: self._before(Report()))
        if look.rank:
            jobs = f", under {look.jobs} running jobs" if look.jobs else ""
            level = WARNING if look.jobs else INFO
            self.log("stop", level, f"follower (rank {look.rank} of {look.size}){jobs}: it stops alone, no site action")
        if self.settings.actions and not look.rank:
            self._act()
        else:
            self.arm("before", BEFORE_PATIENCE_NS, self._terminate)

    def _before(self, report: Report) -> None:
        self._tell(report)
        if self.is_armed("before"):
            self.cancel("before")
            self._terminate()

    def _tell(self, report: Report) -> None:
        for line in report.lines[:REPORT_LINES_MAX]:
            level, text = INFO, line
            if line[:1] == "<" and line[2:3] == ">" and line[1] in _LEVELS:
                level, text = int(line[1]), line[3:]
            self.log("stop", level, text.replace("\n", " ")[:REPORT_LINE_MAX])

    # ---- the site's actions

    def _act(self) -> None:
        if not self.settings.actions:
            self._terminate()
            return
        self._actions = ActionList(
            self, "stop", self.settings.actions, started=self._action_started, done=self._acted
        )  # fmt: skip
        self._acting = True
        self.arm("actions-timeout", self.settings.actions_timeout_ns, self._actions_timeout)
        self._actions.start()

    def _action_started(self, text: str) -> None:
        total, left = len(self.settings.actions), len(self._actions or ())
        self.manager.say(f"site action {total - left}/{total}, before the SIGTERM: {text}")

    def _actions_timeout(self) -> None:
        assert self._actions is not None
        limit = as_short(self.settings.actions_timeout_ns)
        self.log("stop", ERR, f"actions-timeout: {self._actions.describe()} is aborted after {limit}")
        self._actions.abort(hurry=False)

    def _acted(self, rc: int) -> None:
        assert self._actions is not None
        self._acting = False
        self.cancel("actions-timeout")
        if rc:
            self.failed.append(f"site action {self._actions.culprit or 'cut off'} (rc={rc})")
        if self.gone:
            self._finish()
        elif self._aimed.kind == "other":
            self._terminate()
        else:
            self._asked_ns = self.now_ns
            self._ask(self._first)  # a stop may have begun meanwhile: then it gets no signal

    # ---- the one SIGTERM, and what is waited for

    def _terminate(self) -> None:
        assert not self.signalled, "a second SIGTERM is never harmless (FLUX.md 100)"
        self.signalled = True
        # Said first: main's own status, which comes with its CLEANUP, must not be overwritten by this one.
        self.manager.say(f"SIGTERM to {self.whom}")
        self.emit(SignalMain(SIGTERM))
        self.emit(SignalMain(SIGCONT))
        if self._aimed.kind == "other":
            self.arm("still-there", STILL_THERE_NS, self._still_there, reminder=True)
        else:
            self.watch.begin()

    def _signal_failed(self, event: SignalFailed) -> None:
        if event.errno == ESRCH or event.signum != SIGTERM:
            return  # it has gone: that is told too
        text = f"cannot send SIGTERM to {self.whom}: {error_text(event.errno)}"
        self.log("stop", ERR, f"{text}; it is left to the service manager")
        self._exit(EXIT_FAILED)

    def _still_there(self) -> None:
        after = as_short(STILL_THERE_NS)
        text = f"{self.whom} has not ended within {after} of SIGTERM; the service manager's own time decides"
        self.log("stop", WARNING, text)

    def entered(self, state: State) -> None:
        """Main was seen in another state (told by the watch)."""
        self.holders.end()
        if state is State.CLEANUP:
            self.holders.arm()
        self.shedding.entered(state)
        if state in STOPPING:
            self.manager.entered(state)

    def limited(self, state: State) -> None:
        """Main's own limits are known only now, or are others (told by the watch)."""
        if state is State.CLEANUP:
            self.holders.arm()
        self.shedding.entered(state)

    def broke(self, text: str) -> None:
        """A bound did not hold: this stop does not count as a good one."""
        if text not in self._broken:
            self._broken.append(text)

    def say_once(self, text: str, level: int = WARNING) -> None:
        """What is worth its line the first time."""
        if text not in self._said:
            self._said.add(text)
            self.log("stop", level, text)

    # ---- the end

    def _main_gone(self, _event: MainGone) -> None:
        self.gone = True
        self.watch.end()
        self.holders.end()
        for timer in ("shed", "still-there", "before", "ask"):
            self.cancel(timer)
        self.questions.drop()
        if not self._acting:
            self._finish()

    def _finish(self) -> None:
        if self._aimed.kind == "other":
            self._verdict(Report())
            return
        self.manager.say(f"{self.whom} has ended; reporting")
        timeout_ns = AFTER_TIMEOUT_NS
        self.questions.ask("after", Report, timeout_ns, self._verdict, self._no_report, tuple(self._facts()))

    def _no_report(self, why: str) -> None:
        self.log("stop", WARNING, f"no report: {why}")
        self._verdict(Report())

    def _facts(self) -> list[str]:
        watch = self.watch
        facts = [f"took={self.now_ns - self.began_ns}"]
        if watch.state is not None:
            held_ns = {**watch.held_ns, watch.state: watch.known_ns()}
            facts += [f"state.{state}={held}" for state, held in held_ns.items()]
        if self.shedding.ranks:
            facts.append(f"shed={idset(sorted(self.shedding.ranks))}")
        return facts + [f"ended={text}" for text in self.holders.ended()]

    def _verdict(self, report: Report) -> None:
        self._tell(report)
        if self.watch.look.guessed and not self.watch.answered:
            self.failed.append(UNASKED)  # so that nothing could be done about whoever held it
        if report.failed and not self._never_joined:
            self.failed.append(f"the service's own {report.failed}")
        if self._broken:
            self.log("stop", ERR, f"main has ended, but not within its bounds: {'; '.join(self._broken)}")
            self._exit(EXIT_BROKEN)
        elif self.failed:
            self.log("stop", ERR, f"main has ended; failed: {'; '.join(self.failed)}")
            self._exit(EXIT_FAILED)
        else:
            self._exit(0)

    def _told_to_end(self, event: Signal) -> None:
        """The service manager's time is over, and it signals main itself (SYSTEMD.md 26; P4: promptly, and not 0)."""
        state = f" in {self.watch.state}" if self.watch.state is not None else ""
        rest = "main has ended" if self.gone else f"{self.whom} still runs{state}"
        self.log("stop", ERR, f"told to end by {signal_name(event.signum)}: {rest}")
        for name in tuple(self.runs):
            self.emit(Kill(name, SIGKILL, "group"))
            self.emit(Abandon(name))
        self._exit(EXIT_TOLD)

    def _exit(self, code: int) -> None:
        self.emit(Exit(code))

    # ---- dispatch

    def _answered(self, event: Answered) -> None:
        self.questions.answered(event)

    def _query_failed(self, event: QueryFailed) -> None:
        self.questions.failed(event)


Stopper.HANDLERS = {
    **HANDLERS,
    Aimed: Stopper._aimed_at,
    Answered: Stopper._answered,
    QueryFailed: Stopper._query_failed,
    MainGone: Stopper._main_gone,
    SignalFailed: Stopper._signal_failed,
    Signal: Stopper._told_to_end,
}
