"""`stop.toml`: what a stop may be told by the administrator, and by nobody else.

The wrapper runs as root, and what the file says is run or signalled: so the file, and every directory above it, must
belong to root (or to whom we run as) and be writable by nobody else, without a link on the way. What is checked is what
was opened, not what the name may mean a moment later. (A sticky directory such as /tmp will do: what root has put there
nobody else can replace.)
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePath

import msgspec

from brokerctl import config
from brokerctl.durations import parse
from brokerctl.errors import ConfigError
from brokerctl.records.stops import Kind
from brokerctl.settings import ACTIONS_MAX, StopSettings

DEFAULT = "/etc/brokerctl/stop.toml"
_SHELL = "/bin/sh"
_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class StopFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """The file's keys; durations as RFC 23 has them."""

    actions: list[config.ActionEntry] = []
    actions_timeout: str | None = None
    cleanup_timeout: str | None = None
    holders_after: str | None = None
    shed_after: str | None = None
    shed_in_cleanup_after: str | None = None
    finalize_patience: str | None = None
    stall_warn: str | None = None
    timeout_stop: str | None = None
    kill_ladder: str | None = None
    kind: Kind | None = None
    flux: str = ""
    environment: dict[str, str] = {}


class Configuration(msgspec.Struct, frozen=True):
    """What was configured; the defaults where nothing was."""

    settings: StopSettings = StopSettings()
    kind: Kind | None = None
    flux: str = ""
    environment: dict[str, str] = {}


def load(path: str) -> Configuration:
    """Read and check the file; ConfigError in one line otherwise."""
    with _opened(path) as fd:
        file = config.validate(config.parse_toml(_read(fd, path), path), StopFile, path)
    if len(file.actions) > ACTIONS_MAX:
        raise ConfigError(f"{path}: actions: {len(file.actions)} actions; expected at most {ACTIONS_MAX}")
    if file.flux and not PurePath(file.flux).is_absolute():
        raise ConfigError(f"{path}: flux: {file.flux!r} is no absolute path")
    for index, entry in enumerate(file.actions):
        if entry.ranks:
            raise ConfigError(f"{path}: actions[{index}].ranks: a site action runs here; expected no ranks")
    fields: dict[str, object] = {
        "actions": tuple(
            config.action(entry, _SHELL, f"{path}: actions[{index}]") for index, entry in enumerate(file.actions)
        )
    }
    for name in ("actions_timeout", "holders_after", "finalize_patience", "stall_warn"):
        _limit(fields, file, name, path, none=False)
    for name in ("cleanup_timeout", "shed_after", "shed_in_cleanup_after", "timeout_stop"):
        _limit(fields, file, name, path, none=True)
    if file.kill_ladder is not None:
        try:
            fields["ladder"] = config.parse_ladder(file.kill_ladder)
        except ValueError as error:
            raise ConfigError(f"{path}: kill-ladder: {error}") from None
    settings = msgspec.structs.replace(StopSettings(), **fields)
    return Configuration(settings, file.kind, file.flux, file.environment)


def _limit(fields: dict[str, object], file: StopFile, name: str, path: str, *, none: bool) -> None:
    text: str | None = getattr(file, name)
    if text is None:
        return
    key = name.replace("_", "-")
    try:
        value_ns = parse(text)
    except ValueError as error:
        raise ConfigError(f"{path}: {key}: {error}") from None
    if value_ns is None and not none:
        raise ConfigError(f"{path}: {key}: 'none' is not possible here; expected a duration")
    if value_ns == 0:
        raise ConfigError(f"{path}: {key}: 0 is no time; expected more")
    fields[f"{name}_ns"] = value_ns


# ---- opening what only root could have written


@contextmanager
def _opened(path: str) -> Iterator[int]:
    """The file's descriptor, reached from the root directory by directories that only root could have changed."""
    parts = PurePath(path).parts
    if parts[:1] != ("/",) or ".." in parts or len(parts) < 2:
        raise ConfigError(f"{path}: is no absolute path without '..'")
    fd = os.open("/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for index, name in enumerate(parts[1:], 2):
            last = index == len(parts)
            flags = os.O_NONBLOCK if last else os.O_DIRECTORY
            try:
                new = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | flags, dir_fd=fd)
            except OSError as error:
                where = str(PurePath(*parts[:index]))
                raise ConfigError(f"{where}: cannot open without following links: {error.strerror}") from None
            os.close(fd)
            fd = new
            _check(os.fstat(fd), str(PurePath(*parts[:index])), last=last)
        yield fd
    finally:
        os.close(fd)


def _check(found: os.stat_result, where: str, *, last: bool) -> None:
    if last and not stat.S_ISREG(found.st_mode):
        raise ConfigError(f"{where}: is no regular file")
    if found.st_uid not in {0, os.geteuid()}:
        raise ConfigError(
            f"{where}: belongs to user {found.st_uid}; expected root: what it says is run as another user"
        )
    if found.st_mode & _OTHERS and not (stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX):
        mode = stat.S_IMODE(found.st_mode)
        raise ConfigError(f"{where}: others may write it (mode {mode:04o}); expected that only root may")


def _read(fd: int, path: str) -> bytes:
    data = b""
    while len(data) <= config.FILE_SIZE_MAX:
        more = os.read(fd, 1 << 16)
        if not more:
            return data
        data += more
    raise ConfigError(f"{path}: larger than {config.FILE_SIZE_MAX >> 20} MiB")
