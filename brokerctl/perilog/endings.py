"""How a run ended: the exit code that Flux gets, and the words for people. Pure.

A script may itself exit with 124, 125 or 143; the words tell those apart from ours.
"""

from __future__ import annotations

CANCELED = 143  # 128 + SIGTERM, as the script itself would end
TIMED_OUT = 124
NOT_STARTED = 125


class Ending:
    """The exit code, and how it came about.

    `canceled`: somebody wished it, the script did not fail. `shared`: it is another helper's, which reacts to it.
    """

    __slots__ = ("canceled", "code", "how", "shared")

    def __init__(self, code: int, how: str, *, canceled: bool = False, shared: bool = False) -> None:
        self.code = code
        self.how = how
        self.canceled = canceled
        self.shared = shared


def of_unit(service_result: str, exit_code: str = "", exit_status: str = "") -> Ending:
    """The ending by the words that systemd has for its ExecStopPost (systemd.exec(5), $SERVICE_RESULT)."""
    script = _of_script(exit_code, exit_status)
    match service_result:
        case "success":
            return Ending(0, "succeeded")
        case "timeout":
            after = f", its main process {script.how}" if script else ""
            return Ending(TIMED_OUT, f"timed out: a limit of the unit itself, TimeoutStartSec or TimeoutStopSec{after}")
        case "exec-condition":
            return Ending(NOT_STARTED, "was not started: an ExecCondition said no")
        case _ if script is None:
            return Ending(NOT_STARTED, f"could not start: {service_result}")
        case _ if script.code == 0:
            return Ending(1, f"failed ({service_result}), though its main process {script.how}")
    return Ending(script.code, f"{script.how}: out of memory") if service_result == "oom-kill" else script


def _of_script(exit_code: str, exit_status: str) -> Ending | None:
    """The ending of the main process; None where there was none."""
    if exit_code == "exited" and exit_status.isdecimal():
        return Ending(int(exit_status), f"exited with {exit_status}")
    if exit_code in {"killed", "dumped"}:
        dumped = ", core dumped" if exit_code == "dumped" else ""
        return Ending(128 + _number(exit_status), f"was killed by SIG{exit_status}{dumped}")
    return None


def signal_name(signum: int) -> str:
    """`SIGTERM`; the number where it has no name."""
    import signal  # 5 ms, for the few that end so

    return next((name for name, value in signal.Signals.__members__.items() if value == signum), f"signal {signum}")


def _number(name: str) -> int:
    """The number of a signal by systemd's name for it, `TERM` or `RTMIN+2`."""
    import signal

    base, _, offset = name.partition("+")
    found = signal.Signals.__members__.get(f"SIG{base}")
    return (found or 0) + (int(offset) if offset.isdecimal() else 0)
