"""From `[puppet.NAME]` to `worlds.puppets.PuppetSpec`: durations, signals and rank sets are read here.

Errors are ScenarioError, `FILE: puppet.NAME.KEY: what; expected …`.
"""

from __future__ import annotations

import errno
import signal
from collections.abc import Callable, Mapping
from typing import Literal, TypeVar

from brokerctl import config, durations, workertable
from brokerctl.errors import ScenarioError
from brokerctl.model.puppet import Hit, Reaction, Say
from brokerctl.scenario import sets
from brokerctl.scenario.format import KillEntry, NotifyEntry, PuppetEntry, ReactionEntry
from brokerctl.worlds.puppets import FOREVER, PuppetSpec, Span

# What a process may die of; the other signals stop it, continue it or pass unnoticed (signal(7)).
_HARMLESS = frozenset({"CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "WINCH"})
_UNCATCHABLE = frozenset({signal.SIGKILL, signal.SIGSTOP})
_DEADLY_NUMBERS = {signal.Signals[f"SIG{name}"] for name in _HARMLESS}
_ERRNOS = {"ok": 0, "not-found": errno.ENOENT, "not-executable": errno.EACCES}
# What a process may ask of its broker: Flux's own cleanup actions, and what its commands for jobs do.
ASKED = ("queue-stop", "acquire-mute", "cancel-running", "queue-idle", "cancel", "post-event", "release", "wait-event")
# What a process of a unit may ask: to hear when main has ended, and what a client of the manager does.
UNIT_ASKED = ("main-gone", "systemctl")
OTHERS = -1  # PuppetSpec: every rank that is not named

_T = TypeVar("_T")
_V = TypeVar("_V")


def spec(name: str, entry: PuppetEntry, size: int, where: str) -> PuppetSpec:
    """The puppet as worlds want it; `where` is `FILE: puppet.NAME`."""
    command = name if entry.command is None else entry.command
    if not command.strip() or not command.isprintable():
        raise ScenarioError(f"{where}.command: {command!r} can't be logged; expected one line of text")
    runs = _by_rank(entry.runs, _span, size, f"{where}.runs")
    runs.setdefault(OTHERS, Span(0, 0))
    statuses = _by_rank(entry.exit, _status, size, f"{where}.exit")
    statuses.setdefault(OTHERS, 0)
    return PuppetSpec(
        name=name,
        command=command,
        runs=runs,
        statuses=statuses,
        on=_reactions(entry.on, f"{where}.on"),
        prints=(*_prints("out", entry.prints, where), *_prints("err", entry.prints_err, where)),
        leaves=entry.leaves,
        leaves_run=_read(_span, entry.leaves_run, f"{where}.leaves-run"),
        detached=entry.detached,
        start_errno=_ERRNOS[entry.start],
        uninterruptible=entry.kill == "uninterruptible",
        asks=_asks(entry.asks, f"{where}.asks"),
        says=_says(entry, where),
        hits=tuple(_hit(one, f"{where}.kills[{index}]") for index, one in enumerate(entry.kills)),
        leaves_ignore=tuple(_read(_catchable, name, f"{where}.leaves-ignore") for name in entry.leaves_ignore),
        hangs_ns=None if entry.hangs is None else finite(entry.hangs, f"{where}.hangs"),
        leaks=0 if entry.leaks is None else _read(workertable.parse_size, entry.leaks, f"{where}.leaks"),
    )


def _asks(text: str, where: str) -> tuple[str, ...]:
    words = tuple(text.split())
    if words and words[0] not in (*ASKED, *UNIT_ASKED):
        known = ", ".join((*ASKED, *UNIT_ASKED))
        raise ScenarioError(f"{where}: {words[0]!r} can't be asked for; expected one of {known}")
    if words[:1] == ("systemctl",) and words[1:] not in {(verb,) for verb in ("start", "stop", "restart", "reload")}:
        raise ScenarioError(f"{where}: {text!r} can't be asked for; expected such as systemctl stop")
    return words


def _says(entry: PuppetEntry, where: str) -> tuple[Say, ...]:
    says: list[Say] = []
    for index, one in enumerate(entry.notify):
        at = f"{where}.notify[{index}]"
        told = NotifyEntry(text=one) if isinstance(one, str) else one
        if (told.every is None) != (told.times == 1):
            raise ScenarioError(f"{at}: every and times belong together; expected both or none")
        every_ns = 0 if told.every is None else finite(told.every, f"{at}.every")
        begin_ns = finite(told.at, f"{at}.at")
        text = _datagram(told.text, f"{at}.text")
        says += [Say(begin_ns + nth * every_ns, text, told.child) for nth in range(told.times)]
    return tuple(says)


def _datagram(text: str, where: str) -> str:
    if not text or "\0" in text:
        raise ScenarioError(f"{where}: {text!r} is no message; expected such as READY=1")
    return text


def _hit(entry: str | KillEntry, where: str) -> Hit:
    kill = KillEntry(signal=entry) if isinstance(entry, str) else entry
    return Hit(finite(kill.at, f"{where}.at"), _read(config.signal_number, kill.signal, f"{where}.signal"))


def _catchable(name: str) -> int:
    signum = config.signal_number(name)
    if signum in _UNCATCHABLE:
        raise ValueError(f"{name} can't be ignored; expected another signal")
    return signum


def _read(read: Callable[[_V], _T], value: _V, where: str) -> _T:
    try:
        return read(value)
    except ValueError as error:
        raise ScenarioError(f"{where}: {error}") from None


def _by_rank(
    value: str | int | Mapping[str, str] | Mapping[str, str | int],
    read: Callable[[str | int], _T],
    size: int,
    where: str,
) -> dict[int, _T]:
    """One value for all ranks, or a table from rank sets and `default`."""
    if not isinstance(value, Mapping):
        return {OTHERS: _read(read, value, where)}
    found: dict[int, _T] = {}
    for key, one in value.items():
        ranks = [OTHERS] if key == "default" else _read(lambda text: sets.rank_set(text, size), key, where)
        for rank in ranks:
            if rank in found:
                raise ScenarioError(f"{where}: rank {rank} stands in two keys")
            found[rank] = _read(read, one, f"{where}.{key}")
    return found


def _span(text: str | int) -> Span:
    """`2s`, `forever`, or `1s..3s`."""
    words = str(text).split("..")
    if words == ["forever"]:
        return FOREVER
    if len(words) > 2:
        raise ValueError(f"{text!r} is no duration; expected such as 2s, 1s..3s or forever")
    low_ns = durations.parse(words[0])
    high_ns = durations.parse(words[-1])
    if len(words) == 2 and (low_ns is None or high_ns is None):
        raise ValueError(f"{text!r} has no end; expected two finite durations")
    if low_ns is not None and high_ns is not None and low_ns > high_ns:
        raise ValueError(f"{text!r} begins after its end")
    return Span(low_ns, high_ns)


def _status(value: str | int) -> int:
    """The wait status of an exit code, or of death by a signal's name (wait(2))."""
    if isinstance(value, int):
        if not 0 <= value <= 255:
            raise ValueError(f"{value} is no exit code; expected 0 to 255 or a signal's name")
        return value << 8
    signum = config.signal_number(value)
    if signum in _DEADLY_NUMBERS:
        raise ValueError(f"no process dies of {value}; expected a signal such as KILL")
    return signum


def _reactions(table: Mapping[str, Literal["ignore", "die"] | ReactionEntry], where: str) -> dict[int, Reaction]:
    reactions = {}
    for name, entry in table.items():
        signum = _read(config.signal_number, name, where)
        if signum in _UNCATCHABLE:
            raise ScenarioError(f"{where}.{name}: no process can catch it; expected another signal")
        if signum in reactions:
            raise ScenarioError(f"{where}.{name}: the signal stands here twice")
        if entry == "ignore":
            reactions[signum] = Reaction(ignore=True)
        elif isinstance(entry, ReactionEntry):
            after_ns = finite(entry.after, f"{where}.{name}.after")
            notify = tuple(_datagram(text, f"{where}.{name}.notify") for text in entry.notify)
            reactions[signum] = Reaction(after_ns=after_ns, code=entry.exit, notify=notify)
    return reactions


def duration(text: str, where: str) -> int | None:
    """A duration in nanoseconds, None for none; ScenarioError that begins with `where`."""
    return _read(durations.parse, text, where)


def span(text: str, where: str) -> Span:
    """A finite duration, or two between which it is drawn."""
    read = _read(_span, text, where)
    if read.high_ns is None:
        raise ScenarioError(f"{where}: {text!r} has no end; expected a finite duration")
    return read


def finite(text: str, where: str) -> int:
    """A duration that has an end, in nanoseconds."""
    value_ns = duration(text, where)
    if value_ns is None:
        raise ScenarioError(f"{where}: {text!r} has no end; expected a finite duration")
    return value_ns


def _prints(stream: Literal["out", "err"], texts: list[str], where: str) -> list[tuple[Literal["out", "err"], str]]:
    key = "prints" if stream == "out" else "prints-err"
    for text in texts:
        if not text.isprintable():
            raise ScenarioError(f"{where}.{key}: {text!r} is no line; expected printable text")
    return [(stream, text) for text in texts]
