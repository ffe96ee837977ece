"""What a step may do to a unit: `systemctl VERB`, and signals from outside.

Errors are ScenarioError, `FILE: step[N].do: what; expected …`.
"""

from __future__ import annotations

from brokerctl import config
from brokerctl.errors import ScenarioError
from brokerctl.records import UNIT, Systemctl
from brokerctl.worlds.contract import Deed, Deliver, SignalProcess

VERBS = ("start", "stop", "restart", "reload", "cancel", "daemon-reload", "reset-failed", "freeze", "thaw")
# How a machine goes down, as far as one of its units sees it (SYSTEMD.md 71).
SHUTDOWN = "start shutdown.target --job-mode=replace-irreversibly"
_WHOM = ("all", "main", "control")
_DEEDS = f"systemctl {', '.join(VERBS)}, kill --kill-whom=WHOM --signal=NAME, or {SHUTDOWN}"


def is_about_unit(words: list[str]) -> bool:
    """These words of a step are of the unit."""
    return words[:1] == ["systemctl"] or words[:2] in (["kill", "main"], ["kill", "control"])


def deed(words: list[str], client: int, where: str) -> Deed:
    """What such a step does; the `client` is who hears what systemctl returns."""
    if words[0] == "kill":
        if len(words) != 3:
            raise ScenarioError(f"{where}: {' '.join(words)!r} can't be done; expected such as kill main KILL")
        return SignalProcess("main" if words[1] == "main" else "control", _signal(words[2], where))
    if words[1:] == SHUTDOWN.split():
        return Deliver(UNIT, Systemctl("shutdown", client))
    if words[1:2] == ["kill"]:
        return Deliver(UNIT, _kill(words[2:], client, where))
    if len(words) == 2 and words[1] in VERBS:
        return Deliver(UNIT, Systemctl(words[1], client))
    raise ScenarioError(f"{where}: {' '.join(words)!r} can't be done; expected {_DEEDS}")


def _kill(options: list[str], client: int, where: str) -> Systemctl:
    whom, signum = "all", config.signal_number("TERM")
    for option in options:
        name, equals, value = option.partition("=")
        if name == "--kill-whom" and value in _WHOM:
            whom = value
        elif name == "--signal" and equals:
            signum = _signal(value, where)
        else:
            raise ScenarioError(f"{where}: {option!r} is not known; expected --kill-whom=main or --signal=NAME")
    return Systemctl("kill", client, "main" if whom == "main" else "control" if whom == "control" else "all", signum)


def _signal(name: str, where: str) -> int:
    try:
        return config.signal_number(name)
    except ValueError as error:
        raise ScenarioError(f"{where}: {error}") from None
