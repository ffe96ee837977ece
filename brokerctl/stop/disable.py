"""`brokerctl stop --disable`: back to the unit as it was without brokerctl, by one command, and how to undo that.

A drop-in of the administrator's is renamed; one that came with a package is masked. Then the manager reloads, which
takes back what was added to the deadline of a stop under way (SYSTEMD.md 42): so not while any unit is being stopped.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

from brokerctl.durations import S
from brokerctl.errors import EXIT_FOUND, UsageError
from brokerctl.stop.errands import Command, Errand, Said, carry_out

UNIT, DROP_IN = "flux.service", "brokerctl.conf"
ADMINISTRATOR = Path("/etc/systemd/system")
_ASK_NS, _RELOAD_NS = 5 * S, 30 * S
# Units in these states have a deadline that a reload may move (SYSTEMD.md 38, 42).
_TIMED = "deactivating,activating"


def main(unit: str = "") -> int:
    """Disable the drop-in of a unit; 0, 1 where brokerctl is still in the unit afterwards, UsageError if refused."""
    unit = unit or UNIT
    if not unit.endswith(".service") or "/" in unit:
        raise UsageError(f"--disable {unit}: is no service unit; expected a name such as {UNIT}")
    _refuse_while_stopping(unit)
    paths = _drop_ins(unit)
    if not paths:
        print(f"{unit}: has no drop-in {DROP_IN}; nothing to do")
        return 0
    undo = " && ".join([*(away(path, unit) for path in paths), "systemctl daemon-reload"])
    failed = _ask(["systemctl", "daemon-reload"], _RELOAD_NS).why
    if failed:
        print(f"{unit}: {DROP_IN} is away, but systemd has not taken that in: {failed}; `systemctl daemon-reload` does")
    elif "brokerctl" in _show(unit, "ExecStop"):
        print(f"{unit}: its ExecStop= still calls brokerctl: see `systemctl cat {unit}`")
        failed = "still there"
    else:
        print(f"{unit}: {DROP_IN} is disabled; its next stop is the stock one, without brokerctl")
    print(f"to undo: {undo}")
    return EXIT_FOUND if failed else 0


def _refuse_while_stopping(unit: str) -> None:
    state = _show(unit, "ActiveState")
    if state in _TIMED.split(","):
        raise UsageError(
            f"--disable: {unit} is {state}: a reload now would take back what its deadline was extended by,"
            " and systemd might kill it before its state is saved; wait until `systemctl is-active` says otherwise"
        )
    argv = ["systemctl", "list-units", "--type=service", f"--state={_TIMED}", "--plain", "--no-legend", "--no-pager"]
    said = _check(_ask(argv, _ASK_NS))
    others = [line.split()[0] for line in said.splitlines() if line.strip()]
    if others:
        raise UsageError(
            f"--disable: {', '.join(others[:5])} is starting or stopping: a reload now may cost it its deadline;"
            " wait until `systemctl list-jobs` is empty"
        )


def _drop_ins(unit: str) -> list[Path]:
    """The drop-ins of that name which the manager has read."""
    return [Path(path) for path in _show(unit, "DropInPaths").split() if Path(path).name == DROP_IN]


def away(path: Path, unit: str) -> str:
    """Take one away: rename the administrator's, mask a package's; how to bring it back."""
    try:
        if any(path.is_relative_to(folder) for folder in (ADMINISTRATOR, Path("/run/systemd/system"))):
            aside = next(name for name in _asides(path) if not name.exists())
            os.replace(path, aside)  # noqa: PTH105 - the words of the undo
            return f"mv {aside} {path}"
        folder = ADMINISTRATOR / f"{unit}.d"
        folder.mkdir(exist_ok=True)
        mask = folder / DROP_IN
        mask.symlink_to(os.devnull)
    except OSError as error:
        raise UsageError(f"--disable: cannot take {path} away: {error.strerror}") from None
    return f"rm {mask}"


def _asides(path: Path) -> Iterator[Path]:
    """Names for a file that is disabled; the first may be an older one's, whose text nobody should lose."""
    yield path.with_name(f"{DROP_IN}.disabled")
    for number in itertools.count(1):
        yield path.with_name(f"{DROP_IN}.disabled.{number}")


def _show(unit: str, name: str) -> str:
    said = _check(_ask(["systemctl", "show", f"--property={name}", "--value", "--", unit], _ASK_NS))
    return said.strip()


def _ask(argv: list[str], within_ns: int) -> Said:
    def errand() -> Errand[Said]:
        return (yield [Command(argv, within_ns)])[0]

    return carry_out(errand(), within_ns) or Said("", f"{argv[0]}: no answer")


def _check(said: Said) -> str:
    if said.why:
        raise UsageError(f"--disable: {said.why}")
    return said.text
