"""What the manager tells a control process by its environment (SYSTEMD.md 37, 55–60; P1, P2, P8)."""

from __future__ import annotations

from brokerctl.model.words import short_name
from brokerctl.records.units import MAIN, NotifyAccess

_TOLD_RESULT = ("exec-stop.", "exec-stop-post.")  # no other line is told how the service has done


def exit_words(status: int) -> tuple[str, str]:
    """EXIT_CODE and EXIT_STATUS of a wait status: `exited 0`, `killed TERM`, `dumped SEGV`."""
    signum = status & 0x7F
    if not signum:
        return "exited", str(status >> 8)
    return "dumped" if status & 0x80 else "killed", short_name(signum)


def environment(run: str, result: str, main_status: int | None, access: NotifyAccess, *, main: bool) -> dict[str, str]:
    """The variables of a control process that depend on what has happened.

    `main`: the main process lives. `main_status` is its wait status where it has lived and ended.
    """
    told = {"MAINPID": MAIN} if main else {}
    if run.startswith(_TOLD_RESULT):
        told["SERVICE_RESULT"] = result
        if main_status is not None and not main:
            told["EXIT_CODE"], told["EXIT_STATUS"] = exit_words(main_status)
    if access in {"exec", "all"}:
        told["NOTIFY_SOCKET"] = "notify"
    return told
