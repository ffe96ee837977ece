"""Whatever breaks in whichever phase: the service stops, its state saved, unless systemd itself cuts FINALIZE."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.stop.service import LASTS_S, PHASES, PYTHON, STOP, Service

BROKEN = Path(__file__).with_name("broken_stop.py")
# A core that is gone early, or a time that is over, makes systemd send main a second SIGTERM: nothing prevents that.
FAULTS = ("exception", "helper-killed", "helper-hangs", "core-killed", "streams-closed", "term-at-t")
LOST = {("core-killed", "finalize"), ("term-at-t", "finalize")}


class Cell:
    """One fault in one phase."""

    def __init__(self, manager, place: Path, fault: str, phase: str) -> None:
        self.fault, self.phase = fault, phase
        stop, timeout, access, lasts = STOP, 60.0, "exec", (LASTS_S,) * 3
        if fault == "exception":
            stop = f"{PYTHON} {BROKEN} {phase} --pid $MAINPID"
        elif fault == "streams-closed":
            stop = f"/bin/sh -c 'exec {PYTHON} -m brokerctl stop --pid $MAINPID <&- >&- 2>&-'"
        elif fault == "term-at-t":
            # The time is over in the middle of the phase, and what comes after it fits; nobody may ask for more.
            timeout, access = 3.0, "main"
            lasts = tuple(4.5 if each == phase else 0.2 for each in PHASES)
        name = f"{fault}-{phase}"
        self.service = Service(manager, place, name, size=2, stop=stop, timeout=timeout, access=access, lasts=lasts)

    def strike(self) -> None:
        if self.fault == "helper-killed":
            self.service.kill_helper("KILL")
        elif self.fault == "helper-hangs":
            self.service.kill_helper("STOP")
        elif self.fault == "core-killed":
            self.service.kill_control("KILL")

    def struck(self) -> bool:
        """The fault did what it should."""
        match self.fault:
            case "exception":
                return self.service.told("this is a bug: RuntimeError")
            case "core-killed":
                return self.service.show("Result") == "signal"
            case "term-at-t":
                return self.service.show("Result") == "timeout"
            case _:
                return True

    def verdict(self) -> str:
        """What is wrong; nothing, if nothing is."""
        saved, lost = self.service.saved(), (self.fault, self.phase) in LOST
        if saved == lost or not self.struck():
            what = "saved" if saved else "LOST"
            return f"{self.fault} in {self.phase}: {what}: {self.service.journal()}"
        return ""


@pytest.mark.slow
@pytest.mark.parametrize("phase", PHASES)
def test_whatever_breaks_in_any_phase_nothing_is_lost_that_systemd_does_not_cut_itself(
    private_systemd, tmp_path, phase
):
    cells = [Cell(private_systemd, tmp_path, fault, phase) for fault in FAULTS]
    for cell in cells:
        cell.service.start()
    for cell in cells:
        cell.service.await_run()
    for cell in cells:
        cell.service.begin_stop()
    for cell in cells:
        cell.service.await_phase(phase)
    time.sleep(0.3)  # the wrapper has seen it too
    for cell in cells:
        cell.strike()
    for cell in cells:
        cell.service.await_end()
    assert not [text for text in (cell.verdict() for cell in cells) if text]


@pytest.mark.slow
def test_without_a_journal_a_stop_is_as_any_other(private_systemd, tmp_path):
    services = [Service(private_systemd, tmp_path, f"mute-{phase}", size=2) for phase in PHASES]
    for service in services:
        service.start()
        service.await_run()
    for service in services:
        service.begin_stop()
    try:
        for service, phase in zip(services, PHASES, strict=True):
            service.await_phase(phase)
            private_systemd.systemctl("kill", "--signal=STOP", "systemd-journald.service")
        for service in services:
            service.await_end()
        assert [service.saved() for service in services] == [True] * 3
    finally:
        private_systemd.systemctl("kill", "--signal=CONT", "systemd-journald.service")
