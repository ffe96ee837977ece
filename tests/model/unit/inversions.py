"""For each scenario of a fact: how to turn the fact round in the model. The scenario must notice it.

An inversion is a function that patches the model, for the time of one test, so that the opposite is true.
"""

from __future__ import annotations

import msgspec

from brokerctl.durations import S
from brokerctl.model.unit import clocks, jobs, kill, machine, messages, result
from brokerctl.model.unit.clocks import Clocks
from brokerctl.model.unit.jobs import Jobs
from brokerctl.model.unit.machine import Unit
from brokerctl.model.unit.states import TABLE, WATCHED, Do, Sub, What
from brokerctl.records.units import ExitStatuses, Returned, StatusText

NONE = ExitStatuses()


def row(sub, what, do):
    """That state does something else then."""
    return lambda patch: patch.setitem(TABLE[sub], what, do)


def deaf(sub, what):
    """That state does nothing then."""
    return lambda patch: patch.delitem(TABLE[sub], what)


def blind(**fields):
    """The model does not see what the unit says, but this."""

    def invert(patch):
        init = Unit.__init__

        def made(unit, settings):
            init(unit, msgspec.structs.replace(settings, **fields))

        patch.setattr(Unit, "__init__", made)

    return invert


def dashes(name, *, on):
    """All lines of that list have a `-`, or none has."""

    def invert(patch):
        init = Unit.__init__

        def made(unit, settings):
            lines = tuple(msgspec.structs.replace(line, ignore_failure=on) for line in getattr(settings, name))
            init(unit, msgspec.structs.replace(settings, **{name: lines}))

        patch.setattr(Unit, "__init__", made)

    return invert


def constant(module, name, value):
    return lambda patch: patch.setattr(module, name, value)


def entry(table, key, value):
    return lambda patch: patch.setitem(table, key, value)


def both(*inversions):
    def invert(patch):
        for one in inversions:
            one(patch)

    return invert


def heard(access, *senders):
    return entry(messages.HEARD, access, frozenset(senders))


# ---- results


def control_never_fails(patch):
    verdict = result.verdict
    patch.setattr(result, "verdict", lambda *words, daemon: verdict(*words, daemon=True) if daemon else "success")


def control_is_a_daemon(patch):
    verdict = result.verdict
    patch.setattr(result, "verdict", lambda *words, **_daemon: verdict(*words, daemon=True))


def success_is_mains_alone(patch):
    verdict = result.verdict

    def strict(status, settings, *, daemon):
        if not daemon:
            settings = msgspec.structs.replace(settings, success_exit_status=NONE)
        return verdict(status, settings, daemon=daemon)

    patch.setattr(result, "verdict", strict)


def last_failure_wins(patch):
    def fail(unit, failure):
        if failure != "success":
            unit.result = failure

    patch.setattr(Unit, "fail", fail)


def second_failure_counts(patch):
    def fail(unit, failure):
        if failure != "success":
            unit.result = failure if unit.result == "success" else "protocol"

    patch.setattr(Unit, "fail", fail)


def mainpid_stays(patch):
    told = machine.environment
    patch.setattr(machine, "environment", lambda *words, **_main: told(*words, main=True))


def status_is_cleared(patch):
    enter = Unit.enter

    def cleared(unit, state):
        enter(unit, state)
        if state is Sub.FAILED:
            unit.emit(StatusText(""))

    patch.setattr(Unit, "enter", cleared)


def next_line_only_in_stop(patch):
    ended = Unit._control_ended

    def short(unit, status):
        if unit.state is Sub.STOP_SIGTERM:
            unit._lines = unit._lines[: unit._index + 1]
        ended(unit, status)

    patch.setattr(Unit, "_control_ended", short)


# ---- clocks


def one_limit_for_all_lines(patch):
    limit = Clocks.limit
    patch.setattr(Clocks, "limit", lambda self: limit(self) if self._unit.since_ns == self._unit.now_ns else None)


def one_limit_for_both_states(patch):
    limit = Clocks.limit
    patch.setattr(Clocks, "limit", lambda self: None if self._unit.state is Sub.STOP_SIGTERM else limit(self))


def extensions_also_shorten(patch):
    def extend(self, by_ns):
        for timer in tuple(self._deadlines):
            self._set(timer, self._unit.now_ns + by_ns)

    patch.setattr(Clocks, "extend", extend)


def extensions_last(patch):
    extend, limit, until = Clocks.extend, Clocks.limit, {}

    def kept(self, by_ns):
        until[self] = self._unit.now_ns + by_ns
        extend(self, by_ns)

    def again(self):
        limit(self)
        extend(self, until.get(self, 0) - self._unit.now_ns)

    patch.setattr(Clocks, "extend", kept)
    patch.setattr(Clocks, "limit", again)


def extends_once(patch):
    extend, seen = Clocks.extend, set()

    def once(self, by_ns):
        if self not in seen:
            seen.add(self)
            extend(self, by_ns)

    patch.setattr(Clocks, "extend", once)


def no_extension_in(sub):
    def invert(patch):
        extend = Clocks.extend
        patch.setattr(Clocks, "extend", lambda self, by_ns: None if self._unit.state is sub else extend(self, by_ns))

    return invert


def extension_without_end(patch):
    patch.setattr(Clocks, "extend", lambda self, _by_ns: self._set(clocks.STATE, None))


def extension_spares_the_watchdog(patch):
    extend = Clocks.extend

    def state_only(self, by_ns):
        deadline_ns = self._deadlines.pop(clocks.WATCHDOG, None)
        extend(self, by_ns)
        if deadline_ns is not None:
            self._deadlines[clocks.WATCHDOG] = deadline_ns

    patch.setattr(Clocks, "extend", state_only)


def any_number_extends(patch):
    patch.setattr(messages, "_usec", lambda *_words: 5_000_000)


def reload_is_harmless(patch):
    patch.setattr(Clocks, "reloaded", lambda _self: None)


def reload_drops_lines(patch):
    reloaded = Clocks.reloaded

    def dropping(self):
        reloaded(self)
        self._unit._lines = self._unit._lines[: self._unit._index + 1]

    patch.setattr(Clocks, "reloaded", dropping)


def runtime_begins_anew(patch):
    limit = Clocks.limit

    def anew(self):
        self._unit.active_ns = self._unit.now_ns
        limit(self)

    patch.setattr(Clocks, "limit", anew)


def stopping_stays(patch):
    state = messages._state

    def stubborn(unit, said):
        state(unit, "STOPPING=1" if unit.state is Sub.RUNNING else said)

    patch.setattr(messages, "_state", stubborn)


def watched_always(patch):
    everywhere = WATCHED | {Sub.STOP, Sub.STOP_SIGTERM}
    patch.setattr(machine, "WATCHED", everywhere)


# ---- jobs


def stop_tells_the_result(patch):
    down = Jobs._down

    def honest(self, job):
        if result.is_failure(self._unit.result):
            self._finish(jobs.RC_FAILED)
        else:
            down(self, job)

    patch.setattr(Jobs, "_down", honest)


def kill_means_main(patch):
    send = Jobs._kill
    patch.setattr(Jobs, "_kill", lambda self, event: send(self, msgspec.structs.replace(event, whom="main")))


def stop_from_inside_returns(patch):
    wanted = Jobs._wanted

    def returning(self, verb, client):
        if verb == "stop" and self._unit.state is Sub.STOP:
            self._unit.emit(Returned(client, 0))
        else:
            wanted(self, verb, client)

    patch.setattr(Jobs, "_wanted", returning)


def stop_forbids_no_restart(patch):
    stop = Jobs._stop

    def lax(self, job):
        stop(self, job)
        self._unit.stopped = False

    patch.setattr(Jobs, "_stop", lax)


def no_thaw(patch):
    patch.setattr(Jobs, "_thaw", lambda _self: None)


SUCCESS_ONLY = entry(result.RESTARTS, "always", frozenset({"success"}))
FAILURE_ONLY = entry(result.RESTARTS, "always", frozenset({"exit-code"}))
NO_SIGCONT = constant(kill, "SIGCONT", 15)

INVERSIONS = {
    # A
    "execstop-runs-before-sigterm": row(Sub.RUNNING, What.STOP, Do.SIGTERM),
    "execstop-missing": constant(result, "EXIT_EXEC", 0),
    "execstop-fails": control_never_fails,
    "execstop-dies-of-sigterm": control_is_a_daemon,
    "execstop-42-is-success": success_is_mains_alone,
    "execstop-dash": dashes("exec_stop", on=False),
    "systemctl-stop-returns-0": stop_tells_the_result,
    "execstop-first-failure-skips-the-rest": dashes("exec_stop", on=True),
    "execstop-dash-goes-on": dashes("exec_stop", on=False),
    "execstop-fresh-limit-for-each-line": one_limit_for_all_lines,
    "main-ends-during-first-line": mainpid_stays,
    "stop-post-fails": dashes("exec_stop_post", on=True),
    "wrapper-main-143": blind(success_exit_status=ExitStatuses(codes=(143,))),
    "wrapper-main-dies-of-hup": constant(result, "CLEAN_SIGNALS", frozenset({15})),
    "wrapper-main-dies-of-usr1": constant(result, "CLEAN_SIGNALS", frozenset({10, 15})),
    "wrapper-main-129-is-success": blind(success_exit_status=NONE),
    "wrapper-lingers": row(Sub.STOP, What.MAIN_OK, Do.SIGTERM),
    "wrapper-returns-early": row(Sub.STOP, What.CONTROL_OK, Do.NO_SIGNAL),
    "first-failure-wins-main": last_failure_wins,
    "first-failure-wins-timeout": last_failure_wins,
    "wrapper-forwards-129": second_failure_counts,
    # B
    "execstop-hangs": row(Sub.STOP, What.TIMEOUT, Do.SIGKILL),
    "execstop-hangs-and-nobody-heeds-sigterm": row(Sub.STOP_SIGTERM, What.TIMEOUT, Do.EXEC_STOP_POST),
    "execstop-ok-main-ignores": one_limit_for_both_states,
    "full-chain": row(Sub.STOP_POST, What.TIMEOUT, Do.SIGKILL),
    "no-execstop-kills-at-the-limit": row(Sub.STOP_SIGTERM, What.TIMEOUT, Do.SIGTERM),
    "mixed-spares-the-wrappers-child": blind(kill_mode="control-group"),
    "sigterm-answered-with-0-starts-the-next-line": next_line_only_in_stop,
    "no-limit": blind(timeout_stop_ns=S),
    "zero-is-no-limit": blind(timeout_stop_ns=S),
    "oneshot-answers-sigterm-with-0": constant(machine, "NEXT_MAIN", {Sub.START}),
    "oneshot-fresh-limit-for-each-line": constant(Clocks, "limit_of_start", lambda _self: None),
    "failure-mode-abort": blind(timeout_stop_failure_mode="terminate"),
    "failure-mode-kill": blind(timeout_stop_failure_mode="terminate"),
    # C
    "control-may-not-notify": heard("main", "main", "control"),
    "control-may-notify": heard("exec", "main"),
    "child-may-not-notify": heard("exec", "main", "control", "child"),
    "simple-hears-nobody": heard("none", "main"),
    "simple-hears-control-under-exec": heard("exec", "main"),
    "extension-never-shortens": extensions_also_shorten,
    "main-extends-execstop": no_extension_in(Sub.STOP),
    "extension-before-the-stop": extensions_last,
    "extension-of-one-state-only": extensions_last,
    "extension-of-one-line-only": extensions_last,
    "extension-repeated": extends_once,
    "extension-in-stop-post": no_extension_in(Sub.STOP_POST),
    "extension-values": any_number_extends,
    "daemon-reload-drops-the-extension": reload_is_harmless,
    "daemon-reload-after-the-base-deadline": reload_is_harmless,
    "daemon-reload-does-no-other-harm": reload_drops_lines,
    "stopping-by-itself": row(Sub.RUNNING, What.STOPPING, Do.EXEC_STOP),
    "stopping-and-ready-again": row(Sub.STOP_SIGTERM, What.READY, Do.RUN),
    "stopping-taken-back-in-one-message": stopping_stays,
    "stopping-then-systemctl-stop": row(Sub.STOP_SIGTERM, What.STOP, Do.SIGTERM),
    "stopping-in-execstop": row(Sub.STOP, What.STOPPING, Do.NO_SIGNAL),
    "status-stays": status_is_cleared,
    "message-too-long": constant(messages, "MESSAGE_MAX", 4097),
    # D
    "clean-exit-runs-execstop": row(Sub.RUNNING, What.MAIN_OK, Do.SIGTERM),
    "failure-skips-execstop": row(Sub.RUNNING, What.MAIN_FAILED, Do.EXEC_STOP),
    "never-ready": row(Sub.START, What.MAIN_OK, Do.RUN),
    "start-takes-too-long": row(Sub.START, What.TIMEOUT, Do.EXEC_STOP),
    "start-pre-fails": row(Sub.START_PRE, What.CONTROL_FAILED, Do.START),
    "condition-not-met": constant(result, "condition", lambda *_words: "exit-code"),
    "condition-met": constant(result, "condition", lambda *_words: "exec-condition"),
    "reload-does-not-renew-runtime-max": runtime_begins_anew,
    "runtime-max": row(Sub.RUNNING, What.TIMEOUT, Do.SIGTERM),
    "stop-while-activating": row(Sub.START, What.STOP, Do.EXEC_STOP),
    "stop-during-reload": row(Sub.RELOAD, What.STOP, Do.EXEC_STOP),
    "stop-in-auto-restart": row(Sub.AUTO_RESTART, What.STOP, Do.EXEC_STOP_POST),
    "restart-hooks": row(Sub.RUNNING, What.MAIN_OK, Do.EXEC_STOP_POST),
    "second-stop-joins": lambda patch: patch.delitem(jobs.JOINS, ("stop", "stop")),
    "cancel-the-stop-job": constant(jobs, "RC_FAILED", 0),
    "start-during-stop": entry(jobs.JOINS, ("stop", "start"), "start"),
    "restart-with-failing-execstop": stop_tells_the_result,
    "kill-during-execstop": kill_means_main,
    "reload-fails": row(Sub.RELOAD, What.CONTROL_FAILED, Do.EXEC_STOP),
    "reload-of-a-oneshot-that-remains": row(Sub.RELOAD, What.CONTROL_OK, Do.EXEC_STOP),
    "execstop-stops-its-own-unit": stop_from_inside_returns,
    "shutdown": constant(jobs, "RC_REFUSED", 1),
    # E
    "mixed-main-ended-by-sigterm": row(Sub.STOP_SIGTERM, What.MAIN_OK, Do.SIGKILL),
    "mixed-main-ended-by-itself": row(Sub.RUNNING, What.MAIN_OK, Do.EXEC_STOP_POST),
    "execstop-children-are-killed": blind(kill_mode="process"),
    "control-group-leftover": blind(kill_mode="mixed"),
    "kill-mode-process": blind(kill_mode="mixed"),
    "kill-mode-none": blind(kill_mode="process"),
    "no-sigkill": blind(send_sigkill=True),
    "kill-signal-int": blind(kill_signal=15),
    "kill-signal-quit": blind(kill_signal=15),
    "restart-kill-signal": blind(restart_kill_signal=None),
    "send-sighup": blind(send_sighup=False),
    "stopped-main-is-continued": NO_SIGCONT,
    "exit-type-cgroup": blind(exit_type="main"),
    "frozen-unit-is-thawed": no_thaw,
    # F
    "watchdog-missed": row(Sub.RUNNING, What.WATCHDOG, Do.EXEC_STOP),
    "watchdog-abort-ignored": row(Sub.STOP_WATCHDOG, What.TIMEOUT, Do.EXEC_STOP_POST),
    "watchdog-rests-during-the-stop": watched_always,
    "watchdog-woken-in-the-stop": deaf(Sub.STOP_SIGTERM, What.WATCHDOG),
    "watchdog-lulled-in-the-stop": constant(Clocks, "override", lambda _self, _ns: None),
    "watchdog-by-message": constant(Clocks, "override", lambda _self, _ns: None),
    "watchdog-triggered": deaf(Sub.RUNNING, What.WATCHDOG),
    "watchdog-extended": extension_spares_the_watchdog,
    # G
    "restart-prevented": blind(restart_prevent_exit_status=NONE),
    "restart-after-129": SUCCESS_ONLY,
    "stop-never-restarts": stop_forbids_no_restart,
    "sigterm-by-hand-restarts": FAILURE_ONLY,
    "start-limit": blind(start_limit_burst=5),
    # K, and what FLUX.md adds: the unit's part of each
    "flux-healthy": row(Sub.RUNNING, What.STOP, Do.NO_SIGNAL),
    "flux-stuck-cleanup": blind(success_exit_status=ExitStatuses(codes=(129,))),
    "flux-limit-below-cleanup-timeout": blind(timeout_stop_ns=90 * S),
    "flux-stop-timeout-below-cleanup-timeout": extension_without_end,
    "flux-shutdown-is-not-restarted": blind(restart_prevent_exit_status=NONE),
    "flux-sigterm-by-hand-restarts": FAILURE_ONLY,
    "flux-wrapper-gives-up": row(Sub.STOP, What.CONTROL_OK, Do.NO_SIGNAL),
    "flux-wrapper-gives-up-in-finalize": row(Sub.STOP, What.CONTROL_OK, Do.NO_SIGNAL),
    "flux-extends-its-wrapper": no_extension_in(Sub.STOP),
    "flux-daemon-reload-kills": reload_is_harmless,
    "flux-killed-in-shutdown": blind(timeout_stop_ns=90 * S),
    "flux-extended-in-shutdown": heard("exec", "main"),
    "flux-stopped-broker-is-continued": NO_SIGCONT,
    "flux-stopped-broker-and-a-bare-sigterm": row(Sub.STOP, What.TIMEOUT, Do.SIGKILL),
    "flux-stop-joins-a-shutdown": row(Sub.RUNNING, What.STOP, Do.NO_SIGNAL),
}
