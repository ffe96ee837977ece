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

from brokerctl import config, stoptable
from brokerctl.errors import ConfigError
from brokerctl.kernel.trust import untrusted
from brokerctl.records.stops import Kind
from brokerctl.settings import StopSettings

DEFAULT = "/etc/brokerctl/stop.toml"
_SHELL = "/bin/sh"


class StopFile(stoptable.StopKeys, frozen=True):
    """The file's keys."""

    actions: list[config.ActionEntry] = msgspec.field(default_factory=list)
    kind: Kind | None = None
    flux: str = ""
    environment: dict[str, str] = msgspec.field(default_factory=dict)


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
    if file.flux and not PurePath(file.flux).is_absolute():
        raise ConfigError(f"{path}: flux: {file.flux!r} is no absolute path")
    for name, value in file.environment.items():
        if not name or "=" in name or "\0" in name + value:
            raise ConfigError(f"{path}: environment: {name!r}: is no variable; expected a name without '=', and no NUL")
    for index, entry in enumerate(file.actions):
        if entry.ranks:
            raise ConfigError(f"{path}: actions[{index}].ranks: a site action runs here; expected no ranks")
    actions = tuple(
        config.action(entry, _SHELL, f"{path}: actions[{index}]") for index, entry in enumerate(file.actions)
    )
    return Configuration(stoptable.settings(file, actions, f"{path}: "), file.kind, file.flux, file.environment)


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
    if why := untrusted(found, (0, os.geteuid()), sticky=True):
        raise ConfigError(f"{where}: {why}; expected that only root may write it: it tells root's hook what to run")


def _read(fd: int, path: str) -> bytes:
    data = b""
    while len(data) <= config.FILE_SIZE_MAX:
        more = os.read(fd, 1 << 16)
        if not more:
            return data
        data += more
    raise ConfigError(f"{path}: larger than {config.FILE_SIZE_MAX >> 20} MiB")
