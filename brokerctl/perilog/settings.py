"""What a site may set, /etc/brokerctl/perilog.toml, and what holds where it doesn't.

The helper is started without arguments and with an environment that others influence, so this file, which only root
can write, is the one place that decides.
"""

from __future__ import annotations

import os
import stat

from brokerctl.errors import ConfigError
from brokerctl.kernel.trust import untrusted
from brokerctl.perilog import environment
from brokerctl.perilog.names import KINDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from brokerctl.perilog.toml import Value

FILE = "/etc/brokerctl/perilog.toml"
_SIZE_MAX = 1 << 16
_MINUTE_NS = 60_000_000_000

# Flux ends a prolog after 30 m, an epilog never (flux-config-job-manager(5)); the unit's TimeoutStartSec is between the
# two, so that each limit is told by whoever knows most about it.
TIMEOUT_NS = {"prolog": 25 * _MINUTE_NS, "epilog": None, "housekeeping": None}
# Flux drains for a failed prolog or epilog by itself, for a failed housekeeping it does not (FLUX.md 68, 82).
ON_FAILURE = {
    "prolog": (),
    "epilog": (),
    "housekeeping": (("flux", "resource", "drain", "--update", "{host}", "{unit}: {how}"),),
}


class Settings:
    """The settings of one kind."""

    __slots__ = (
        "environment", "exit_on_first_error", "kind", "legacy_script", "on_failure", "package_scripts", "site_scripts",
        "timeout_ns",
    )  # fmt: skip

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.timeout_ns: int | None = TIMEOUT_NS[kind]
        self.environment: tuple[str, ...] = ()
        self.on_failure: tuple[tuple[str, ...], ...] = ON_FAILURE[kind]
        self.exit_on_first_error = False
        # Where Flux has its scripts since 0.78 (flux-admin(1), system-scripts).
        self.package_scripts = f"/usr/libexec/flux/{kind}.d"
        self.site_scripts = f"/etc/flux/system/{kind}.d"
        self.legacy_script = f"/etc/flux/system/{kind}"

    def set(self, key: str, value: Value) -> None:
        """Set one key of the file; ValueError says what was expected."""
        match key, value:
            case "timeout", str():
                from brokerctl import durations  # imports `decimal`

                self.timeout_ns = durations.parse(value)
                if self.timeout_ns == 0:
                    raise ValueError(f'{value!r} would end every run at once; expected more, or "none" for no limit')
            case "environment", list():
                self.environment = tuple(_name(item) for item in value)
            case "on-failure", list():
                self.on_failure = tuple(_command(item) for item in value)
            case "exit-on-first-error", bool():
                self.exit_on_first_error = value
            case "package-scripts", str():
                self.package_scripts = _absolute(value)
            case "site-scripts", str():
                self.site_scripts = _absolute(value)
            case "legacy-script", str():
                self.legacy_script = _absolute(value)
            case _:
                expected = _KEYS.get(key)
                raise ValueError(f"expected {expected}" if expected else f"unknown; expected one of {', '.join(_KEYS)}")


_KEYS = {
    "timeout": 'a duration, as in "30m", or "none"',
    "environment": "an array of names of variables",
    "on-failure": "an array of commands, each an array of strings",
    "exit-on-first-error": "true or false",
    "package-scripts": "the absolute path of a directory",
    "site-scripts": "the absolute path of a directory",
    "legacy-script": "the absolute path of a script",
}


def load(kind: str, path: str = FILE) -> Settings:
    """The settings of a kind; the defaults where there is no file. ConfigError says what is wrong with one."""
    settings = Settings(kind)
    text = _read(path)
    if text is None:
        return settings
    from brokerctl.perilog import toml  # only where there is something to read

    try:
        tables = toml.parse(text)
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from None
    for name, table in tables.items():
        if name not in KINDS:
            raise ConfigError(f"{path}: [{name}]: unknown; expected one of {', '.join(KINDS)}")
        target = settings if name == kind else Settings(name)  # a mistake in another table is one now, not at that time
        for key, value in table.items():
            try:
                target.set(key, value)
            except ValueError as error:
                raise ConfigError(f"{path}: {name}.{key}: {error}") from None
    return settings


def _read(path: str) -> str | None:
    """The text of a file that only root can write."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    try:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            raise ConfigError(f"{path}: is no regular file")
        if why := untrusted(info):
            raise ConfigError(f"{path}: {why}; expected a file that only root can write")
        if info.st_size > _SIZE_MAX:
            raise ConfigError(f"{path}: is longer than {_SIZE_MAX} bytes")
        return os.read(fd, _SIZE_MAX).decode()
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not UTF-8") from None
    finally:
        os.close(fd)


def _name(item: Value) -> str:
    if not isinstance(item, str):
        raise ValueError("expected an array of names of variables")  # noqa: TRY004 - a mistake in a file
    if why := environment.refusal(item):
        raise ValueError(f"{item!r} {why}; it is never handed over")
    return item


def _command(item: Value) -> tuple[str, ...]:
    words = tuple(word for word in item if isinstance(word, str)) if isinstance(item, list) else ()
    if not isinstance(item, list) or not words or len(words) != len(item) or not words[0] or "\0" in "".join(words):
        raise ValueError('expected commands like ["flux", "resource", "drain", "{host}"]')
    return words


def _absolute(value: str) -> str:
    if not value.startswith("/") or "\0" in value:
        raise ValueError(f"{value!r} is no absolute path")
    return value
