"""Models that are wrong in one place, each with a recorded run that shows it: what the comparison must see.

A mutant is one change in the text of one function. Its code is put in the place of the function's for a while, so
that whoever has imported it runs the mutant; nothing is loaded anew.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import NamedTuple


class Mutant(NamedTuple):
    """In `function` of `module`, `old` stands once, and is `new`; the run `row` differs then."""

    about: str
    module: str
    function: str
    old: str
    new: str
    row: str


MUTANTS = [
    # ---- codes
    Mutant("the last failure counts, not the first", "actions", "ActionList._ended",
           "if rc and not self.rc", "if rc", "08-cleanup-push"),
    Mutant("a failed cleanup is a success", "broker", "Broker._cleanup_done",
           "CLEANUP_FAIL if rc", "CLEANUP_SUCCESS if rc", "08-cleanup-push"),
    Mutant("a failed rc1 is a success", "broker", "Broker._rc1_done",
           "RC1_FAIL if rc", "RC1_SUCCESS if rc", "13-startup-faults--rc1-fails"),
    Mutant("a lost parent is no failure", "ending", "_exit_code",
           "1 if broker.orphaned", "0 if broker.orphaned", "36-router-restart--leader"),
    Mutant("exit-norestart after a signal too", "ending", "_exit_code",
           'broker.reason == "request"', 'broker.reason == "signal"', "24-exit-norestart--sigterm"),
    Mutant("a death by signal is its number", "run", "Run._verdict",
           "128 + signum", "signum", "02-rc2-fails--killed"),
    Mutant("an aborted action that exits 0 is a success", "run", "Run._verdict",
           "return RC_ABORTED", "return 0", "10-cleanup-catches-hup"),
    Mutant("a code of tasks is no wait status", "tasks", "Tasks._answered",
           "rc << 8", "rc", "14-kill9-leaf--job"),
    Mutant("the least wait status of an epilog counts", "perilog", "Perilog._status",
           "status = max(", "status = min(", "21-epilog-fails-one-rank"),
    # ---- order
    Mutant("actions run from the last to the first", "actions", "ActionList._next",
           "self._pending.pop(0)", "self._pending.pop()", "01-clean-exit--size1"),
    Mutant("a pushed action goes behind the others", "actions", "ActionList.push",
           "self._pending.insert(0, action)", "self._pending.append(action)", "08-cleanup-push"),
    Mutant("a failed prolog is told before the epilog begins", "perilog", "Perilog._prolog_finished",
           "first = manager.node.settings.count_every_epilog", "first = True", "20-prolog-fails-one-rank"),
    Mutant("a follower does not stop with its parent", "broker", "Broker.parent_changed",
           "State.RUN if state is State.SHUTDOWN", "State.RUN if state is State.EXIT", "03-sigterm-idle--size4"),
    Mutant("the status comes before the extension", "manager", "Manager.action",
           'if not self._node.settings.extend_to_bound and self._extending:\n            self._step()\n        '
           'self._node.emit(Notify(f"STATUS=Running {text}"))',
           'self._node.emit(Notify(f"STATUS=Running {text}"))\n        if self._extending:\n            self._step()',
           "25-sd-notify--sigterm"),
    # ---- what is missing
    Mutant("an abort keeps the rest of the list", "actions", "ActionList._drop",
           "if action.essential]", "]", "09-cleanup-ignores-hup--no-further-actions"),
    Mutant("a ladder has a rung too few, which here is none", "run", "Run.abort",
           "self._rung(self._ladder.hurry())", "pass", "05-sigterm-stuck-epilog"),
    Mutant("a failed epilog drains nobody", "perilog", "Perilog._judge",
           'self._drain(script, ranks, f"{name} failed")', "pass", "21-epilog-fails-one-rank"),
    Mutant("what is pending to a lost rank stays pending", "overlay", "Overlay._forget",
           "self._node.rexec.lost(peer)", "pass", "05-sigterm-stuck-epilog"),
    Mutant("nobody is told dead", "overlay", "Overlay._tell_dead",
           'node.log("broker", ERR', 'node.log("broker", 7', "14-kill9-leaf--idle"),
    Mutant("a lost router takes only itself along", "overlay", "Overlay._severed",
           "below > 0", "below > 9", "16-kill9-router--idle"),
    Mutant("a quorum is not warned of", "broker", "Broker._quorum_slow",
           'self.node.log("broker", ERR', 'self.node.log("broker", 7', "13-startup-faults--sigterm-in-quorum"),
    Mutant("the end of SHUTDOWN by its timeout is silent", "ending", "_shutdown_timeout",
           'broker.node.log("broker", ERR, "shutdown timeout")', "pass", "15-sigstop-leaf--timeout3"),
    Mutant("a job is not freed before it is clean", "jobs", "JobManager._act",
           'self.post(job, "free")', 'self.post(job, "clean")', "21-epilog-fails-one-rank"),
    # ---- when
    Mutant("a request has a cleanup-timeout too", "broker", "Broker._enter_cleanup",
           "if self.signalled:", "if True:", "06-fluxshutdown-stuck-epilog"),
    Mutant("cleanup-timeout is a tenth longer", "broker", "Broker.arm_cleanup_timeout",
           '"cleanup-timeout", limit_ns', '"cleanup-timeout", limit_ns * 11 // 10', "10-cleanup-catches-hup"),
    Mutant("goodbye has half of its time", "ending", "enter_goodbye",
           "node.settings.goodbye_timeout_ns", "node.settings.goodbye_timeout_ns // 2", "35-leaf-goodbye-timeout"),
    Mutant("epilogs begin in CLEANUP", "perilog", "Perilog.job_finished",
           "not in STOPPING", "in STOPPING or True", "04-sigterm-running-job--epilog-hk"),
    Mutant("a timed-out epilog is not ended", "perilog", "Perilog._timeout",
           "self._end(script)", "pass", "22-perilog-timeouts--epilog-timeout-term"),
    Mutant("the leader dies of SIGUSR1", "signals", "heard",
           "signum in FORWARDED and node.rank == 0", "signum in FORWARDED and node.rank == 9", "26-signals--usr1"),
    Mutant("SIGUSR1 does not stop a follower", "signals", "heard",
           "signum not in TERMINATING and signum not in FORWARDED", "signum not in TERMINATING",
           "26-signals--usr1-leaf"),
]  # fmt: skip


@contextmanager
def in_place(mutant: Mutant) -> Iterator[None]:
    """The function is the mutant."""
    module = importlib.import_module(f"brokerctl.model.{mutant.module}")
    function: object = module
    for name in mutant.function.split("."):
        function = inspect.getattr_static(function, name)
    assert isinstance(function, FunctionType)
    source = inspect.getsource(function)
    assert source.count(mutant.old) == 1, f"{mutant.about}: {mutant.old!r} does not stand once in {mutant.function}"
    whole = inspect.getsource(module).replace(source, source.replace(mutant.old, mutant.new))
    compiled = compile(whole, module.__file__ or "", "exec")
    kept = function.__code__
    function.__code__ = next(code for code in codes(compiled) if code.co_qualname == kept.co_qualname)
    try:
        yield
    finally:
        function.__code__ = kept


def codes(code: CodeType) -> Iterator[CodeType]:
    """A code and all that stand in it."""
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from codes(inner)
