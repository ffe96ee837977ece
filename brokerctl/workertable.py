"""`[[worker]]` tables, of the file of `brokerctl run` and of scenarios alike (`settings.Worker`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from brokerctl import durations
from brokerctl.durations import MS
from brokerctl.errors import ConfigError
from brokerctl.records import Command
from brokerctl.settings import Worker

# Their stops follow one another, each with a slice of its own: more of them can't be stopped in any useful time.
WORKERS_MAX = 100
_WORKER = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SIZE = re.compile(r"([0-9]{1,18})([KMG]?)")
_SHIFTS = {"": 0, "K": 10, "M": 20, "G": 30}


class WorkerKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    """What configurations and scenarios say of a worker alike (`settings.Worker`).

    With `notify` it says when it is ready (sd_notify(3)), and beats where it has a `watchdog`. `memory` is a number of
    bytes, or such as `512M`.
    """

    name: str
    notify: bool = True
    ready_timeout: str = "60s"
    watchdog: str = "none"
    memory: str | int | None = None
    stop_timeout: str = "10s"
    required: bool = True


def parse_size(text: str) -> int:
    """Bytes: a number, or one with K, M or G (of 1024)."""
    match = _SIZE.fullmatch(text)
    if match is None or not int(match[1]):
        raise ValueError(f"{text!r} is no size; expected a number of bytes, or such as 512M")
    return int(match[1]) << _SHIFTS[match[2]]


_Read = TypeVar("_Read")


def worker(entry: WorkerKeys, made: Command, where: str) -> Worker:
    """The worker of a table, which runs that command; ConfigError that begins with `where`."""
    if not _WORKER.fullmatch(entry.name):
        raise ConfigError(f"{where}.name: {entry.name!r} is no name; expected letters, digits, '-' and '_'")

    def read(key: str, parse: Callable[[str], _Read]) -> _Read:
        try:
            return parse(str(getattr(entry, key)))
        except ValueError as error:
            raise ConfigError(f"{where}.{key.replace('_', '-')}: {error}") from None

    watchdog_ns = read("watchdog", durations.parse)
    if watchdog_ns is not None and (watchdog_ns < MS or not entry.notify):
        raise ConfigError(f"{where}.watchdog: expected at least 1ms, of a worker that notifies")
    return Worker(
        name=entry.name,
        command=msgspec.structs.replace(made, notifies=entry.notify, watchdog_ns=watchdog_ns),
        ready_timeout_ns=read("ready_timeout", durations.finite),
        watchdog_ns=watchdog_ns,
        memory=None if entry.memory is None else read("memory", parse_size),
        stop_timeout_ns=read("stop_timeout", durations.finite),
        required=entry.required,
    )


def check(entries: Sequence[WorkerKeys], where: str) -> None:
    """ConfigError where there are too many of them, or two of one name."""
    if len(entries) > WORKERS_MAX:
        raise ConfigError(f"{where}: worker: {len(entries)} workers; expected at most {WORKERS_MAX}")
    names = [entry.name for entry in entries]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise ConfigError(f"{where}: worker[{index}].name: {name!r} is the name of another one; expected a new one")
