"""What carries out each deed of `states.TABLE`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from brokerctl.model.unit import start, stop
from brokerctl.model.unit.states import Do, Sub

if TYPE_CHECKING:
    from brokerctl.model.unit.machine import Unit

DEEDS: Mapping[Do, Callable[[Unit], None]] = {
    Do.CONDITION: start.condition,
    Do.START_PRE: start.start_pre,
    Do.START: start.start_main,
    Do.START_POST: start.start_post,
    Do.RUN: start.run,
    Do.EARLY: start.early,
    Do.RELOAD: start.reload,
    Do.RELOADED: start.run,
    Do.RELOAD_TIMEOUT: start.reload_timeout,
    Do.EXEC_STOP: stop.exec_stop,
    Do.SIGTERM: lambda unit: stop.signal(unit, Sub.STOP_SIGTERM),
    Do.NO_SIGNAL: stop.no_signal,
    Do.SIGABRT: lambda unit: stop.signal(unit, Sub.STOP_WATCHDOG),
    Do.SIGKILL: lambda unit: stop.sigkill(unit, Sub.STOP_SIGKILL),
    Do.EXEC_STOP_POST: stop.exec_stop_post,
    Do.FINAL_SIGTERM: lambda unit: stop.signal(unit, Sub.FINAL_SIGTERM),
    Do.FINAL_SIGKILL: lambda unit: stop.sigkill(unit, Sub.FINAL_SIGKILL),
    Do.END: stop.end,
    Do.START_AGAIN: start.start_again,
    Do.REST: stop.unload,
    Do.START_EXPIRED: stop.start_expired,
    Do.STOP_EXPIRED: stop.stop_expired,
    Do.SIGTERM_EXPIRED: stop.sigterm_expired,
    Do.POST_EXPIRED: stop.post_expired,
    Do.FINAL_EXPIRED: stop.final_expired,
}
