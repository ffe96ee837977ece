"""How a unit comes up: its conditions and lines, main, and what makes it running (SYSTEMD.md D, G)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from brokerctl.model.unit import stop
from brokerctl.model.unit.kill import SIGKILL
from brokerctl.model.unit.result import SUCCESS
from brokerctl.model.unit.states import Sub, What
from brokerctl.records.units import KillProcess, Restarted

if TYPE_CHECKING:
    from brokerctl.model.unit.machine import Unit

WARNING, INFO = 4, 6


def start(unit: Unit) -> None:
    """A start job runs; so many of them in a time are too many (SYSTEMD.md 89)."""
    settings = unit.settings
    since_ns = unit.now_ns - settings.start_limit_interval_ns
    unit.started = [at_ns for at_ns in unit.started if at_ns > since_ns]
    if settings.start_limit_interval_ns and settings.start_limit_burst <= len(unit.started):
        unit.log(WARNING, "Start request repeated too quickly.")
        unit.fail("start-limit-hit")
        stop.rest(unit)
        return
    unit.started.append(unit.now_ns)
    unit.main, unit.control = False, ""  # what survived an earlier life is nobody's
    unit.result, unit.main_status, unit.nth_main = SUCCESS, None, 0
    unit.status, unit.stopping, unit.stopped, unit.restart_asked, unit.frozen = "", False, False, False, False
    unit.clocks.reset_watchdog()
    unit.happens(What.START)


def start_again(unit: Unit) -> None:
    """The wait of RestartSec= is over."""
    unit.restarts += 1
    unit.emit(Restarted(unit.restarts))
    unit.log(INFO, f"Scheduled restart job, restart counter is at {unit.restarts}.")
    start(unit)


def condition(unit: Unit) -> None:
    """ExecCondition= first."""
    if not unit.run_lines(Sub.CONDITION, "exec-condition", unit.settings.exec_condition):
        start_pre(unit)


def start_pre(unit: Unit) -> None:
    """Then ExecStartPre=."""
    if not unit.run_lines(Sub.START_PRE, "exec-start-pre", unit.settings.exec_start_pre):
        start_main(unit)


def start_main(unit: Unit) -> None:
    """Then ExecStart=: a simple service is started with that, others say so, or have done their work."""
    if unit.others:
        unit.log(WARNING, f"Found {unit.others} left-over processes in control group while starting unit.")
    unit.start_main()
    if unit.settings.type in {"notify", "oneshot"}:
        unit.enter(Sub.START)
    else:
        start_post(unit)


def start_post(unit: Unit) -> None:
    """Then ExecStartPost=; the watchdog counts from here."""
    unit.clocks.start_watchdog()
    if not unit.run_lines(Sub.START_POST, "exec-start-post", unit.settings.exec_start_post):
        run(unit)


def early(unit: Unit) -> None:
    """Main has ended in `start`: a oneshot has done its work, a notify service never was ready (SYSTEMD.md 58)."""
    if unit.settings.type == "oneshot":
        start_post(unit)
    else:
        unit.fail("protocol")
        stop.signal(unit, Sub.STOP_SIGTERM)


def run(unit: Unit) -> None:
    """Running, if anything runs: else it is over, and its ExecStop= runs only if nothing has failed (56, 57)."""
    if unit.result != SUCCESS:
        stop.signal(unit, Sub.STOP_SIGTERM)
    elif unit.main or (unit.settings.exit_type == "cgroup" and unit.others):
        unit.enter(Sub.RUNNING)
        if unit.stopping:
            unit.happens(What.STOPPING)
    elif unit.settings.remain_after_exit:
        unit.enter(Sub.EXITED)
    else:
        stop.exec_stop(unit)


def reload(unit: Unit) -> None:
    """ExecReload=."""
    unit.run_lines(Sub.RELOAD, "exec-reload", unit.settings.exec_reload)


def reload_timeout(unit: Unit) -> None:
    """A reload that takes too long is killed, whatever KillMode= says; the service goes on."""
    unit.log(WARNING, "Reload operation timed out. Killing reload process.")
    unit.emit(KillProcess(unit.control, SIGKILL))
    unit.control, unit.jobs.reload_failed = "", True
    run(unit)
