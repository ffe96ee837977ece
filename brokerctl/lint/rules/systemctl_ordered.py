"""A hook that waits for a unit which waits for this one."""

from __future__ import annotations

from collections.abc import Iterator

from brokerctl.lint.rule import Hit, rule
from brokerctl.lint.subject import Subject
from brokerctl.unit.invocations import Invocation, invocations

# Whether the unit is being stopped, and what is asked of the other one: the orderings that make the other one wait.
# Where one of two starts and the other stops, the stop comes first, whichever way they are ordered.
_ORDERS = {
    (False, "start"): ("Before",),
    (False, "restart"): ("Before",),
    (True, "stop"): ("After",),
    (True, "start"): ("Before", "After"),
    (True, "restart"): ("Before", "After"),
}


@rule(
    "error",
    why=(
        "systemd runs the other unit's job only when this one's is done, and the hook waits for it: a "
        "deadlock until the timeout"
    ),
    source="systemd.unit(5) Before=, systemd#7324",
    mend="use --no-block, or drop the ordering",
)
def check(unit: Subject) -> Iterator[Hit]:
    for key, command in unit.all_commands():
        for each in invocations(command):
            for order, name in waiting(unit, each, stopping=key.startswith("ExecStop")):
                yield Hit(command, f"waits for {name}, which {order}={name} makes wait for this unit")


def waiting(unit: Subject, each: Invocation, *, stopping: bool) -> Iterator[tuple[str, str]]:
    """The units that a `systemctl` waits for, which wait for this one, each with the ordering that makes them."""
    verb, *names = each.systemctl()
    asked = {name if "." in name else f"{name}.service" for name in names}
    for order in _ORDERS.get((stopping, verb), ()):
        for name in sorted(asked.intersection(unit.words(order))):
            yield order, name
