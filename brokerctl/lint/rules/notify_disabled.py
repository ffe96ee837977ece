"""A broker that speaks to systemd, which does not listen."""

from __future__ import annotations

from collections.abc import Iterator

from brokerctl.lint import chain
from brokerctl.lint.rule import Hit, rule
from brokerctl.lint.subject import Subject


@rule(
    "error",
    why="systemd drops the broker's messages, so its deadline is never moved and its status never shown",
    source="SYSTEMD.md 36",
    mend="set Type=notify, or NotifyAccess=main",
)
def check(unit: Subject) -> Iterator[Hit]:
    broker = unit.broker
    speaks = broker is not None and broker.settings.sd_notify and broker.attribute("broker.sd-notify") is not None
    if speaks and not chain.accepts_messages(unit):
        yield Hit(unit.last("Type"), "broker.sd-notify=1, but Type= and NotifyAccess= refuse its messages")
