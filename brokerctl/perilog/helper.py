"""The helper: one run of a prolog, epilog or housekeeping unit, from Flux's call to its exit code.

It is started as root, without arguments, by an executable per kind, mostly through Flux's IMP; what it knows of the job
is in its environment. It hands that over, starts the unit, waits for its end and returns the script's own exit code;
143 if it was canceled, 124 if it timed out, 125 if it could not start. One line says which, and where to look.

A run belongs to the helper that holds its lock (`rundir`). Others that come meanwhile wait for its result. If the
holder is killed, the unit goes on, and the next to come takes over.
"""

from __future__ import annotations

import os
import time

from brokerctl.errors import BrokerctlError, UsageError
from brokerctl.kernel import stdio
from brokerctl.perilog import endings, environment, manager, names, processes
from brokerctl.perilog.endings import Ending
from brokerctl.perilog.rundir import Rundir
from brokerctl.perilog.settings import Settings, load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import NoReturn

JOB_ID = "FLUX_JOB_ID"
# The lock of a run has no way to wake us that a signal could interrupt.
_TURN_NS = 50_000_000
# How long systemd may be away: it executes itself anew (systemctl daemon-reexec), which takes a second or so.
_LOST_PATIENCE_NS = 60_000_000_000


def executable(kind: str) -> NoReturn:
    """The whole of `flux-run-KIND`. Nothing is buffered; the interpreter's own end would take 2 ms."""
    os._exit(main(kind))


def main(kind: str) -> int:
    """Run one kind; returns the exit code. Whatever goes wrong is one line on stderr, and never a traceback."""
    processes.hold_signals()
    stdio.open_standard_streams()
    unit = f"flux-{kind}@"
    look = ""
    chosen = Settings(kind)
    try:
        chosen = load(kind)
        number = _job()
        unit = names.unit(kind, number)
        look = f"; see: journalctl -u {unit}"
        ending = Run(chosen, number, os.environb).run()
    except BrokerctlError as error:
        ending = Ending(endings.NOT_STARTED, f"could not start: {error}")
    except OSError as error:
        ending = Ending(endings.NOT_STARTED, f"could not start: {error.strerror}")
    except Exception as error:  # noqa: BLE001 - a traceback is nothing for Flux's log
        ending = Ending(endings.NOT_STARTED, f"could not start: this is a bug: {type(error).__name__}: {error}")
    if ending.code:
        from brokerctl.perilog import failure

        failure.tell(unit, f"{ending.how}{look}")
        # A prolog that Flux cancels is no failure of the node (FLUX.md 73); an epilog that is cut off is.
        if not ending.shared and not (kind == "prolog" and ending.canceled):
            failure.react(chosen, unit, ending)
    return ending.code


def _job() -> int:
    try:
        return names.job_number(os.environb.get(JOB_ID.encode(), b""))
    except ValueError as error:
        raise UsageError(f"{JOB_ID}: {error}") from None


class Run:
    """One run of a unit."""

    def __init__(self, chosen: Settings, number: int, environ: Mapping[bytes, bytes]) -> None:
        self._settings = chosen
        self._environ = environ
        self._unit = names.unit(chosen.kind, number)
        self._rundir = Rundir(chosen.kind, names.instance(number))
        self._deadline_ns = None if chosen.timeout_ns is None else time.monotonic_ns() + chosen.timeout_ns
        self._ours = False

    def run(self) -> Ending:
        """Do it; nothing of it runs any more at the return, and no file is left."""
        try:
            ending = self._supervise()
        except processes.Told as told:
            how = f"canceled by {endings.signal_name(told.signum)}"
            ending = self._cut_off(endings.CANCELED, how, canceled=True)
        except processes.Late:
            from brokerctl import durations

            limit = durations.as_text(self._settings.timeout_ns)
            ending = self._cut_off(endings.TIMED_OUT, f"timed out after {limit}")
        except BrokerctlError as error:
            ending = Ending(endings.NOT_STARTED, f"could not start: {error}")
        except BaseException:
            self._cut_off(endings.NOT_STARTED, "")
            raise
        finally:
            if not self._ours:
                self._rundir.leave()
        if self._ours:
            self._rundir.finish(ending.code, ending.how)
        return ending

    def _supervise(self) -> Ending:
        if not manager.booted():
            return Ending(endings.NOT_STARTED, "could not start: systemd does not run this node")
        joined = self._take_turn()
        if joined is not None:
            return joined
        self._ours = True
        if self._under_way():
            self._say("joins a run that is under way, with that one's environment")
        else:
            wanted = (*environment.ALLOWED, *self._settings.environment)
            data, dropped = environment.render(self._environ, wanted)
            for name, why in dropped:
                self._say(f"{name} is not handed over: it {why}")
            self._rundir.forget_status()
            self._rundir.write_environment(data)
        return self._follow()

    def _under_way(self) -> bool:
        """Whether the unit runs without a helper. The end of an earlier run takes the environment away: wait for it."""
        while (state := manager.state(self._unit)) == "deactivating":
            processes.pause(_TURN_NS, self._deadline_ns)
        # Where nobody answers, the start finds out: it joins what runs, and has an environment if nothing does.
        return state not in {*manager.DOWN, manager.UNKNOWN}

    def _take_turn(self) -> Ending | None:
        """Wait until no other helper has this run; how that one ended, if there was one."""
        if not self._rundir.acquire():
            self._say("waits for a run that is under way, with that one's environment")
            while not self._rundir.acquire():
                processes.pause(_TURN_NS, self._deadline_ns)
        result = self._rundir.result()
        return None if result is None else Ending(*result, shared=True)

    def _follow(self) -> Ending:
        """Start the unit, or join its start, until it is known how it ended."""
        lost_ns: int | None = None
        processes.pause(0, self._deadline_ns)  # told to stop before anything was started
        while True:
            code, words = self._start()
            if code < 0:  # a signal to our process group may reach a child that has not left it yet
                processes.pause(0, self._deadline_ns)
            canceled = code != 0 and "canceled" in words
            ended = self._rundir.status()
            if canceled or ended is None:
                self._see_stop_end(canceled=canceled)
                ended = self._rundir.status()
            if canceled:
                why = "the node is shutting down" if manager.node_stops() else "somebody stopped the unit"
                return Ending(endings.CANCELED, f"canceled: {why}", canceled=True)
            if ended:
                return endings.of_unit(*ended[:3])
            if code == processes.NOT_FOUND or (code >= 0 and not manager.runs(self._unit)):
                return _not_started(code, words)
            # systemd was executed anew and has lost us, not the unit (SYSTEMD.md 99), or our client was killed: again.
            now_ns = time.monotonic_ns()
            lost_ns = lost_ns or now_ns
            if now_ns - lost_ns > _LOST_PATIENCE_NS:
                return self._cut_off(endings.NOT_STARTED, f"lost: {words or 'systemd does not answer'}")
            processes.pause(_TURN_NS, self._deadline_ns)

    def _see_stop_end(self, *, canceled: bool) -> None:
        """A stop cancels a start at once, and goes on (SYSTEMD.md 93): until its end nobody else may use our files."""
        state = manager.state(self._unit)
        if state == "deactivating" or (canceled and state not in manager.DOWN):
            manager.stop(self._unit)  # joins it (SYSTEMD.md 65)

    def _start(self) -> tuple[int, str]:
        """Start the unit and wait for its end; the exit code (-N: killed by signal N) and words of `systemctl`."""
        output = os.memfd_create("systemctl")
        try:
            pid = processes.start(manager.start_command(self._unit), processes.TOOL_ENVIRONMENT, output)
            try:
                return processes.wait(pid, self._deadline_ns), processes.words(output)
            except BaseException:
                processes.kill(pid)  # before anything else: what it has not asked for by now, it never will
                raise
        except OSError as error:
            return processes.not_started(error), f"systemctl: {error.strerror}"
        finally:
            os.close(output)

    def _cut_off(self, code: int, how: str, *, canceled: bool = False) -> Ending:
        """Stop the unit; then also a start that systemd had not read yet finds no environment, and can't run."""
        down = manager.stop(self._unit)
        if self._ours:
            self._rundir.remove_environment()
            # What did not end the first time does not get the time twice: Flux's own patience is nearly over.
            if down and manager.runs(self._unit):
                down = manager.stop(self._unit)
        return Ending(code, how if down else f"{how}; it may still run, SIGKILL has not ended it", canceled=canceled)

    def _say(self, text: str) -> None:
        from brokerctl.perilog import failure

        failure.tell(self._unit, text)


def _not_started(code: int, words: str) -> Ending:
    """The ending of a run that systemd has not (any more), where no ExecStopPost told how it ended."""
    first = words.partition("\n")[0]
    if code == 0:  # (SYSTEMD.md 101)
        return Ending(endings.NOT_STARTED, "was not started, or its ExecStopPost was replaced: a condition said no?")
    if manager.node_stops():
        return Ending(endings.NOT_STARTED, "could not start: the node is shutting down")
    return Ending(endings.NOT_STARTED, f"could not start: {first or f'systemctl exits with {code}'}")
