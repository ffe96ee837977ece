"""What Flux's own TOML says of prolog, epilog and housekeeping: commands and limits (FLUX.md 67, 79)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from brokerctl import config, durations
from brokerctl.errors import ConfigError

KILL_TIMEOUT_NS = 60 * durations.S


class Script(msgspec.Struct, frozen=True):
    """`[job-manager.prolog]` or `.epilog`; `timeout_ns` None is no limit."""

    timeout_ns: int | None
    kill_timeout_ns: int = KILL_TIMEOUT_NS


class FluxConfig(msgspec.Struct, frozen=True):
    """The tables that bear on units, and the path that they came from."""

    path: str
    prolog: Script | None = None
    epilog: Script | None = None

    def script(self, role: str) -> Script | None:
        """The table of a role; housekeeping has no limits in Flux."""
        return {"prolog": self.prolog, "epilog": self.epilog}.get(role)


# A prolog has a limit by default, an epilog none.
_DEFAULT_TIMEOUT_NS = {"prolog": 30 * durations.MINUTE, "epilog": None}


def load(path: Path) -> FluxConfig:
    """A TOML file, or a directory of them, later keys over earlier ones; ConfigError in one line where it is wrong."""
    files = sorted(path.glob("*.toml")) if path.is_dir() else [path]
    manager: dict[str, Any] = {}
    for file in files:
        tables = config.read_toml(file).get("job-manager", {})
        if not isinstance(tables, dict):
            raise ConfigError(f"{file}: job-manager: expected a table")
        _update(manager, tables)
    return FluxConfig(
        str(path), **{name: _script(manager, name, path) for name in ("prolog", "epilog") if name in manager}
    )


def _update(tables: dict[str, Any], later: dict[str, Any]) -> None:
    """As Flux joins its files: key by key, at every depth."""
    for key, value in later.items():
        old = tables.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            _update(old, value)
        else:
            tables[key] = value


def _script(manager: dict[str, Any], name: str, path: Path) -> Script:
    where = f"{path}: job-manager.{name}"
    table = manager[name]
    if not isinstance(table, dict):
        raise ConfigError(f"{where}: expected a table")
    limit_ns = _DEFAULT_TIMEOUT_NS[name]
    if "timeout" in table:
        try:
            limit_ns = durations.parse(str(table["timeout"]))
        except ValueError as error:
            raise ConfigError(f"{where}.timeout: {error}") from None
    seconds = table.get("kill-timeout", KILL_TIMEOUT_NS / durations.S)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < 1e9:
        raise ConfigError(f"{where}.kill-timeout: {seconds!r} is no number of seconds")
    return Script(limit_ns, int(seconds * durations.S))
