"""How a unit goes down: ExecStop=, the signals of each rung, ExecStopPost=, and what it is then (SYSTEMD.md A–E)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from brokerctl.model.unit import result
from brokerctl.model.unit.kill import Operation, kill
from brokerctl.model.unit.states import Sub

if TYPE_CHECKING:
    from brokerctl.model.unit.machine import Unit

WARNING = 4

_OPERATIONS = {
    Sub.STOP_WATCHDOG: Operation.WATCHDOG,
    Sub.STOP_SIGTERM: Operation.TERMINATE,
    Sub.STOP_SIGKILL: Operation.KILL,
    Sub.FINAL_WATCHDOG: Operation.WATCHDOG,
    Sub.FINAL_SIGTERM: Operation.TERMINATE,
    Sub.FINAL_SIGKILL: Operation.KILL,
}
_STOP = (Sub.STOP_SIGTERM, Sub.STOP_WATCHDOG, Sub.STOP_SIGKILL)
_FINAL = (Sub.FINAL_SIGTERM, Sub.FINAL_WATCHDOG, Sub.FINAL_SIGKILL)


def exec_stop(unit: Unit) -> None:
    """ExecStop=, main untouched (SYSTEMD.md 1)."""
    if not unit.run_lines(Sub.STOP, "exec-stop", unit.settings.exec_stop):
        signal(unit, Sub.STOP_SIGTERM)


def exec_stop_post(unit: Unit) -> None:
    """ExecStopPost=, once (SYSTEMD.md 11)."""
    if not unit.run_lines(Sub.STOP_POST, "exec-stop-post", unit.settings.exec_stop_post):
        signal(unit, Sub.FINAL_SIGTERM)


def signal(unit: Unit, state: Sub) -> None:
    """Signal who is left, by KillMode=, and wait for them; where nobody is, go on to the next rung."""
    operation = _OPERATIONS[state]
    if state is Sub.STOP_SIGTERM and unit.restart_asked:
        operation = Operation.RESTART
    if kill(unit, operation):
        unit.enter(state)
        return
    sigkill = unit.settings.send_sigkill
    if state in _STOP:
        if state is not Sub.STOP_SIGKILL and sigkill:
            signal(unit, Sub.STOP_SIGKILL)
        else:
            exec_stop_post(unit)
    elif state is not Sub.FINAL_SIGKILL and sigkill:
        signal(unit, Sub.FINAL_SIGKILL)
    else:
        end(unit)


def no_signal(unit: Unit) -> None:
    """The service has said that it stops: only its time counts (SYSTEMD.md 44)."""
    unit.enter(Sub.STOP_SIGTERM)


def _expired(unit: Unit, mode: str, states: tuple[Sub, Sub, Sub]) -> None:
    """A limit is over: what the failure mode says (SYSTEMD.md 34)."""
    term, abort, last = states
    if mode == "kill":
        sigkill(unit, last)
    else:
        signal(unit, term if mode == "terminate" else abort)


def start_expired(unit: Unit) -> None:
    """TimeoutStartSec= is over."""
    _expired(unit, unit.settings.timeout_start_failure_mode, _STOP)


def stop_expired(unit: Unit) -> None:
    """TimeoutStopSec= of an ExecStop= line is over (SYSTEMD.md 26)."""
    _expired(unit, unit.settings.timeout_stop_failure_mode, _STOP)


def post_expired(unit: Unit) -> None:
    """TimeoutStopSec= of an ExecStopPost= line is over."""
    _expired(unit, unit.settings.timeout_stop_failure_mode, _FINAL)


def sigterm_expired(unit: Unit) -> None:
    """TimeoutStopSec= after SIGTERM is over (SYSTEMD.md 27)."""
    _expired(unit, _after_term(unit), _STOP)


def final_expired(unit: Unit) -> None:
    """TimeoutStopSec= after the last SIGTERM is over (SYSTEMD.md 29)."""
    _expired(unit, _after_term(unit), _FINAL)


def _after_term(unit: Unit) -> str:
    return "abort" if unit.settings.timeout_stop_failure_mode == "abort" else "kill"


def sigkill(unit: Unit, state: Sub) -> None:
    """SIGKILL, where SendSIGKILL= lets it (SYSTEMD.md 77)."""
    if unit.settings.send_sigkill:
        signal(unit, state)
    elif state is Sub.STOP_SIGKILL:
        exec_stop_post(unit)
    else:
        rest(unit)


def end(unit: Unit) -> None:
    """It is down; Restart= may start it again, if nobody asked for the stop (SYSTEMD.md 87)."""
    if unit.stopped or not result.restarts(unit.result, unit.main_status, unit.settings):
        rest(unit)
        return
    unit.jobs.ended(failed=result.is_failure(unit.result))
    unit.enter(Sub.AUTO_RESTART)


def rest(unit: Unit) -> None:
    """Dead or failed; a unit that nothing refers to is unloaded, and forgets (SYSTEMD.md 89, 91)."""
    left = unit.others + unit.main
    if left:
        unit.log(WARNING, f"{left} processes remain running after unit stopped.")
    failed = result.is_failure(unit.result)
    if failed:
        unit.log(WARNING, f"Failed with result '{unit.result}'.")
    unit.enter(Sub.FAILED if failed else Sub.DEAD)
    if not unit.jobs.is_idle():
        return
    if not failed:
        unit.forget()
    elif unit.settings.collect_mode == "inactive-or-failed":
        unload(unit)


def unload(unit: Unit) -> None:
    """A unit that has failed is inactive and knows nothing: reset-failed, CollectMode=, no restart any more (63)."""
    unit.result = result.SUCCESS
    unit.forget()
    unit.enter(Sub.DEAD)
