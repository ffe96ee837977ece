"""Settings from a policy, a TOML file and `-S attribute=value`, in this order; each later one wins.

Attributes carry Flux's own names wherever Flux has one (flux-broker-attributes(7)). All bad input raises ConfigError
with one line: where, what, what was expected.
"""

from __future__ import annotations

import os
import re
import signal
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from brokerctl import durations, workertable
from brokerctl.durations import MINUTE, MS, S
from brokerctl.errors import ConfigError
from brokerctl.ids import idset, parse_idset
from brokerctl.records import Command
from brokerctl.settings import ACTIONS_MAX, SD_STOP_TIMEOUT_MAX_NS, Action, Rung, Settings, Worker

SHELL_DEFAULT = Settings().shell
FILE_SIZE_MAX = 1 << 20
# Flux 0.88, faithful (FLUX.md): one SIGHUP, no bound but the ones that are set.
FLUX = Settings(
    online_batch_ns=100 * MS,
    unload_takes_ns=1 * MS,
    shutdown_timeout_outlives_state=True,
)

# Each limit has its precedents: flux.service 45 s for cleanup; systemd 90 s, Kubernetes 30 s, supervisord 10 s and
# pebble 5 s for a stop; 5 minutes is flux.service's patience for its peers, and rc3 writes what must not be lost.
HARDENED = Settings(
    cleanup_timeout_ns=45 * S,
    finalize_timeout_ns=5 * MINUTE,
    config_sync_timeout_ns=60 * S,
    output_grace_ns=1 * S,
    ladder=(Rung(signal.SIGHUP, 2 * S), Rung(signal.SIGTERM, 5 * S), Rung(signal.SIGKILL, 5 * S)),
    ladder_scope="all",
    same_signal_ns=1 * S,
    signal_in_requested_cleanup="arm",
    signal_in_finalize="arm",
    shutdown_slack_ns=10 * S,
    shed=True,
    loss_at_once=True,
    abort_rc1_with_parent=True,
    explain=True,
    sd_notify=True,
    extend_to_bound=True,
    lost_status=68 << 8,  # EX_NOHOST of sysexits(3), as of a remote action
    drain_lost=True,
    count_every_epilog=True,
    epilog_in_cleanup=True,  # else a node would be used again, after the restart, without one
    perilog_kill=True,
    housekeeping_drains=True,
    store_before_rc3=True,
    shells_hang=False,
    rerun_epilog=True,
)

POLICIES: Mapping[str, Settings] = {"flux": FLUX, "hardened": HARDENED}


# ---- attributes


def _duration(text: str) -> int | None:
    return durations.parse(text)


def _stop_timeout(text: str) -> int:
    value = durations.finite(text)
    if not 0 < value <= SD_STOP_TIMEOUT_MAX_NS:
        raise ValueError(f"{text!r} is out of range; expected more than 0 and at most 35m")
    return value


def _exit_code(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) <= 255):
        raise ValueError(f"{text!r} is no exit code; expected 0 to 255")
    return int(text)


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise ValueError(f"{text!r} is no count; expected 1 or more")
    return int(text)


def _flag(text: str) -> bool:
    if text not in {"0", "1"}:
        raise ValueError(f"{text!r} is no flag; expected 0 or 1")
    return text == "1"


def parse_ladder(text: str) -> tuple[Rung, ...]:
    """`HUP:2s,TERM:5s,KILL:5s`: signals in order, each with its time; the last may have none (`HUP:none`)."""
    rungs = []
    for word in text.split(","):
        name, colon, time = word.strip().partition(":")
        signum = signal_number(name)
        if not colon:
            raise ValueError(f"{word!r} is no rung; expected SIGNAL:DURATION")
        rungs.append(Rung(signum, durations.parse(time)))
    if any(rung.wait_ns is None for rung in rungs[:-1]):
        raise ValueError(f"{text!r}: only the last rung can wait for ever")
    return tuple(rungs)


def signal_number(name: str) -> int:
    """15 for `TERM`, `SIGTERM` or `15`; ValueError for anything else."""
    word = name.strip().upper()
    if word.isascii() and word.isdigit() and 1 <= int(word) < signal.NSIG:
        return int(word)
    found = signal.Signals.__members__.get(word if word.startswith("SIG") else f"SIG{word}")
    if found is None:
        raise ValueError(f"{name!r} is no signal; expected a name such as TERM or a number")
    return int(found)


class Attribute(msgspec.Struct, frozen=True):
    """One attribute: the setting that it sets, how its text is read, and one line of documentation."""

    field: str
    parse: Callable[[str], Any]
    about: str


ATTRIBUTES: Mapping[str, Attribute] = {
    "broker.cleanup-timeout": Attribute(
        "cleanup_timeout_ns", _duration, "one budget for all cleanup actions of a signal-initiated stop"
    ),
    "broker.shutdown-timeout": Attribute(
        "shutdown_timeout_ns", _duration, "how long the leader waits for its peers to shut down"
    ),
    "broker.shutdown-slack": Attribute(
        "shutdown_slack_ns", _duration, "what each level below a broker adds to its bound, beyond its rc3 and ladder"
    ),
    "broker.finalize-timeout": Attribute(
        "finalize_timeout_ns", _duration, "how long rc3 may take in a signal-initiated stop"
    ),
    "broker.config-sync-timeout": Attribute(
        "config_sync_timeout_ns", _duration, "how long a follower waits for its parent's configuration"
    ),
    "broker.goodbye-timeout": Attribute(
        "goodbye_timeout_ns", durations.finite, "how long a follower waits for its parent's goodbye"
    ),
    "broker.quorum": Attribute("quorum", _count, "how many ranks make the instance full"),
    "broker.lost-exit-code": Attribute("lost_exit_code", _exit_code, "exit code if ranks were lost or shed"),
    "heartbeat.timeout": Attribute(
        "heartbeat_timeout_ns", _duration, "how long a parent may be silent before it counts as lost"
    ),
    "tbon.torpid_max": Attribute("torpid_max_ns", _duration, "how long a child may be silent before it is named"),
    "broker.quorum-warn": Attribute("quorum_warn_ns", _duration, "how often a delayed quorum is logged"),
    "broker.shutdown-warn": Attribute("shutdown_warn_ns", _duration, "how often a delayed shutdown is logged"),
    "broker.essential-timeout": Attribute(
        "essential_timeout_ns", durations.finite, "the reserved slice of an essential action that has no timeout"
    ),
    "broker.output-grace": Attribute(
        "output_grace_ns", _duration, "how long a stranger may hold the output of a process that has exited"
    ),
    "broker.kill-ladder": Attribute("ladder", parse_ladder, "the signals that end an action, and their times"),
    "broker.same-signal": Attribute("same_signal_ns", durations.finite, "two equal signals within this time are one"),
    "exec.kill-timeout": Attribute(
        "exec_kill_timeout_ns",
        durations.finite,
        "how long the tasks of a job may take to end after SIGTERM, before SIGKILL",
    ),
    "kvs.checkpoint-period": Attribute(
        "checkpoint_period_ns", _duration, "how often jobs are stored while the broker runs"
    ),
    "broker.exit-norestart": Attribute("exit_norestart", _exit_code, "exit code after a request or a failed rc1"),
    "broker.sd-notify": Attribute("sd_notify", _flag, "tell the service manager (sd_notify)"),
    "broker.sd-stop-timeout": Attribute(
        "sd_stop_timeout_ns", _stop_timeout, "the extension asked of the service manager for one step"
    ),
}


def parse_attribute(name: str, value: str, where: str) -> tuple[str, Any]:
    """The setting's name and value, or ConfigError that begins with `where`."""
    attribute = ATTRIBUTES.get(name)
    if attribute is None:
        raise ConfigError(f"{where}: unknown attribute {name!r}; known are {', '.join(ATTRIBUTES)}")
    try:
        return attribute.field, attribute.parse(value)
    except ValueError as error:
        raise ConfigError(f"{where}: {name}: {error}") from None


# ---- the file


class ActionEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """`[[rc1]]`, `[[cleanup]]`, `[[rc3]]`: a string for the shell, or a list that is run directly.

    `text` is what logs call it, if not the command itself. `ranks` (of a cleanup action) says where it runs: `all` or
    an RFC 22 idset, else on the leader alone.
    """

    command: str | list[str]
    timeout: str | None = None
    essential: bool = False
    text: str = ""
    ranks: str = ""


class WorkerEntry(workertable.WorkerKeys, frozen=True):
    """`[[worker]]`: a process that is started after rc1, watched, and stopped in CLEANUP."""

    command: str | list[str]


class ConfigFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The configuration file of `brokerctl run`."""

    attrs: dict[str, str | int | float | bool] = {}
    rc1: list[ActionEntry] = []
    cleanup: list[ActionEntry] = []
    rc3: list[ActionEntry] = []
    worker: list[WorkerEntry] = []


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file; ConfigError in one line otherwise."""
    try:
        # O_NONBLOCK: opening a FIFO that nobody writes to would wait for ever.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ConfigError(f"{path}: is no regular file")
            data = file.read(FILE_SIZE_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{path}: cannot read: {error.strerror}") from None
    if len(data) > FILE_SIZE_MAX:
        raise ConfigError(f"{path}: larger than {FILE_SIZE_MAX >> 20} MiB")
    return parse_toml(data, str(path))


def parse_toml(data: bytes, where: str) -> dict[str, Any]:
    """The tables of a TOML text; ConfigError that begins with `where` otherwise."""
    import tomllib  # 3 ms, which a broker without a file need not pay

    try:
        return tomllib.loads(data.decode())
    except UnicodeDecodeError as error:
        raise ConfigError(f"{where}: byte {error.start} is not UTF-8; expected TOML") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{where}: {_first_line(error)}") from None
    except ValueError:
        # tomllib lets this one of Python's own limits through.
        raise ConfigError(f"{where}: a number has too many digits; expected at most 4300") from None


def _first_line(error: Exception) -> str:
    text = (str(error) or type(error).__name__).splitlines()[0]
    return text[0].lower() + text[1:]


_T = TypeVar("_T")
_AT = re.compile(r"(?P<what>.*?)(?: - at `(?P<path>.*)`)?", re.DOTALL)


def validate(value: object, kind: type[_T], where: str) -> _T:
    """The value as that type; else ConfigError with `where`, the key path, and what was expected."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        match = _AT.fullmatch(str(error))
        assert match is not None
        path = (match["path"] or "").removeprefix("$").removeprefix(".").replace("[...]", "")
        what = match["what"].replace("`", "'")
        what = what[0].lower() + what[1:]
        raise ConfigError(f"{where}: {path}: {what}" if path else f"{where}: {what}") from None


def load(path: Path) -> ConfigFile:
    """Read and check a configuration file."""
    return validate(read_toml(path), ConfigFile, str(path))


# ---- the whole


def command(words: str | Sequence[str], shell: str = SHELL_DEFAULT, text: str = "") -> Command:
    """A command from a string, which the shell runs (FLUX.md 13), or a list, which is run directly."""
    argv = (shell, "-c", words) if isinstance(words, str) else tuple(words)
    shown = words if isinstance(words, str) else " ".join(words)
    if not shown.strip() or not argv[0]:
        raise ValueError("is empty; expected a command")
    if any("\0" in word for word in argv):
        raise ValueError("has a NUL byte; no command can")
    return Command(text or shown, argv)


def action(entry: ActionEntry, shell: str, where: str) -> Action:
    """An action of a list, or ConfigError that begins with `where`."""
    try:
        made = command(entry.command, shell, entry.text)
    except ValueError as error:
        raise ConfigError(f"{where}.command: {error}") from None
    try:
        timeout_ns = durations.parse(entry.timeout) if entry.timeout is not None else None
    except ValueError as error:
        raise ConfigError(f"{where}.timeout: {error}") from None
    return Action(made, timeout_ns, entry.essential, _ranks(entry.ranks, f"{where}.ranks"))


def _ranks(text: str, where: str) -> str:
    """`all`, or the idset in its shortest form."""
    if text in {"", "all"}:
        return text
    try:
        return idset(parse_idset(text))
    except ValueError as error:
        raise ConfigError(f"{where}: {error}, or all") from None


def attributes(attrs: Mapping[str, str | int | float | bool], where: str) -> dict[str, Any]:
    """Settings from an `[attrs]` table."""
    fields = {}
    for name, value in attrs.items():
        text = str(int(value)) if isinstance(value, bool) else str(value)
        field, parsed = parse_attribute(name, text, f"{where}: attrs")
        fields[field] = parsed
    return fields


def assignments(sets: Sequence[str]) -> dict[str, Any]:
    """Settings from `-S attribute=value` options."""
    fields = {}
    for word in sets:
        name, equals, value = word.partition("=")
        if not equals:
            raise ConfigError(f"-S {word}: expected ATTRIBUTE=VALUE")
        field, parsed = parse_attribute(name, value, "-S")
        fields[field] = parsed
    return fields


def resolve(
    policy: str,
    file: Path | None = None,
    sets: Sequence[str] = (),
    *,
    rc2: Sequence[str] = (),
    shell: str = SHELL_DEFAULT,
) -> Settings:
    """The settings of `brokerctl run`: the policy's defaults, then the file, then `-S`."""
    fields: dict[str, Any] = {"shell": shell}
    if file is not None:
        config = load(file)
        fields.update(attributes(config.attrs, str(file)))
        for name in ("rc1", "cleanup", "rc3"):
            entries: list[ActionEntry] = getattr(config, name)
            if len(entries) > ACTIONS_MAX:
                raise ConfigError(f"{file}: {name}: {len(entries)} actions; expected at most {ACTIONS_MAX}")
            for index, entry in enumerate(entries):
                if entry.ranks and name != "cleanup":
                    raise ConfigError(f"{file}: {name}[{index}].ranks: expected it for cleanup actions alone")
            fields[name] = tuple(
                action(entry, shell, f"{file}: {name}[{index}]") for index, entry in enumerate(entries)
            )
        fields["workers"] = _workers(config.worker, shell, file)
    fields.update(assignments(sets))
    if rc2:
        fields["rc2"] = (Action(Command(" ".join(rc2), tuple(rc2), inherit=True)),)
    return with_fields(policy, fields)


def _workers(entries: list[WorkerEntry], shell: str, file: Path) -> tuple[Worker, ...]:
    workertable.check(entries, str(file))
    made = []
    for index, entry in enumerate(entries):
        where = f"{file}: worker[{index}]"
        try:
            run = command(entry.command, shell)
        except ValueError as error:
            raise ConfigError(f"{where}.command: {error}") from None
        made.append(workertable.worker(entry, run, where))
    return tuple(made)


def with_fields(policy: str, fields: Mapping[str, Any]) -> Settings:
    """The policy's settings, some of them replaced."""
    base = POLICIES.get(policy)
    if base is None:
        raise ConfigError(f"unknown policy {policy!r}; known are {', '.join(POLICIES)}")
    return msgspec.structs.replace(base, **fields)
