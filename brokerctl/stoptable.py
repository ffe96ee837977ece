"""What `stop.toml` and the `[stop]` table of a scenario say alike: the limits of a stop's wrapper (`StopSettings`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from brokerctl import config
from brokerctl.durations import S, parse
from brokerctl.errors import ConfigError
from brokerctl.settings import ACTIONS_MAX, Action, StopSettings

_FINITE = ("actions_timeout", "holders_after", "finalize_patience", "stall_warn")
_LIMITS = ("cleanup_timeout", "shed_after", "shed_in_cleanup_after", "timeout_stop")


class StopKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    """Durations as RFC 23 has them; what is not said keeps its default."""

    actions_timeout: str | None = None
    cleanup_timeout: str | None = None
    holders_after: str | None = None
    shed_after: str | None = None
    shed_in_cleanup_after: str | None = None
    finalize_patience: str | None = None
    stall_warn: str | None = None
    timeout_stop: str | None = None
    kill_ladder: str | None = None


def settings(keys: StopKeys, actions: tuple[Action, ...], where: str) -> StopSettings:
    """The settings of a table with these site actions; ConfigError that begins with `where` and the key."""
    if len(actions) > ACTIONS_MAX:
        raise ConfigError(f"{where}actions: {len(actions)} actions; expected at most {ACTIONS_MAX}")
    fields: dict[str, Any] = {"actions": actions}
    for name in (*_FINITE, *_LIMITS):
        text: str | None = getattr(keys, name)
        if text is not None:
            fields[f"{name}_ns"] = _limit(text, f"{where}{name.replace('_', '-')}", none=name in _LIMITS)
    if keys.kill_ladder is not None:
        try:
            fields["ladder"] = config.parse_ladder(keys.kill_ladder)
        except ValueError as error:
            raise ConfigError(f"{where}kill-ladder: {error}") from None
    return msgspec.structs.replace(StopSettings(), **fields)


def text(stop: StopSettings, commands: Sequence[Sequence[str]]) -> str:
    """The `stop.toml` of such settings; each action runs one of these argument lists."""
    lines = [f'{name.replace("_", "-")} = "{_told(getattr(stop, f"{name}_ns"))}"' for name in (*_FINITE, *_LIMITS)]
    lines.append(f'kill-ladder = "{",".join(f"{rung.signum}:{_told(rung.wait_ns)}" for rung in stop.ladder)}"')
    for action, argv in zip(stop.actions, commands, strict=True):
        lines += ["[[actions]]", f"command = {_quoted(argv)}", f"text = {_quoted(action.command.text)}"]
        lines.append(f"essential = {'true' if action.essential else 'false'}")
        if action.timeout_ns is not None:
            lines.append(f'timeout = "{_told(action.timeout_ns)}"')
    return "".join(f"{line}\n" for line in lines)


def _quoted(value: str | Sequence[str]) -> str:
    return msgspec.json.encode(value).decode()  # such JSON is TOML, too


def _told(value_ns: int | None) -> str:
    return "none" if value_ns is None else f"{value_ns / S:.9f}s"


def _limit(text: str, where: str, *, none: bool) -> int | None:
    try:
        value_ns = parse(text)
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from None
    if value_ns is None and not none:
        raise ConfigError(f"{where}: 'none' is not possible here; expected a duration")
    if value_ns == 0:
        raise ConfigError(f"{where}: 0 is no time; expected more")
    return value_ns
