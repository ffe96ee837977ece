import pytest

from brokerctl.errors import KernelError
from brokerctl.monitors.contract import EXTERNAL
from brokerctl.monitors.systemd import SystemdMonitor, health


def unit(**properties):
    return health("w.service", {"InvocationID": "one", "Result": "success", **properties})


@pytest.mark.parametrize(
    ("properties", "condition", "ready"),
    [
        ({"ActiveState": "active", "SubState": "running"}, "alive", True),
        ({"ActiveState": "activating", "SubState": "start"}, "starting", False),
        ({"ActiveState": "activating", "SubState": "auto-restart"}, "starting", False),
        ({"ActiveState": "deactivating", "SubState": "stop-sigterm"}, "stopping", False),
        ({"ActiveState": "deactivating", "SubState": "stop-watchdog", "Result": "watchdog"}, "late", False),
        ({"ActiveState": "failed", "SubState": "failed", "Result": "watchdog"}, "gone", False),
        ({"ActiveState": "inactive", "SubState": "dead"}, "gone", False),
        ({}, "gone", False),
    ],
)
def test_a_unit_s_state_is_told_in_a_monitor_s_words(properties, condition, ready):
    found = unit(**properties)
    assert (found.condition, found.ready, found.life) == (condition, ready, "one")


def test_memory_and_status_are_told_where_they_are_known():
    found = unit(ActiveState="active", MemoryCurrent="1048576", StatusText="3 jobs done")
    assert (found.memory, found.text) == (1 << 20, "3 jobs done")
    assert unit(ActiveState="active", MemoryCurrent="[not set]").memory is None
    assert unit(ActiveState="failed", Result="oom-kill").text == "it took too much memory, and was killed"


def test_it_leaves_everything_to_systemd():
    assert SystemdMonitor([]).capabilities == EXTERNAL
    assert SystemdMonitor([]).look() == []


def test_a_name_that_would_be_an_option_is_refused():
    with pytest.raises(ValueError, match="no unit has such a name"):
        SystemdMonitor(["--help"])


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("/nonexistent/systemctl",), "cannot ask systemd: No such file or directory"),
        (("sh", "-c", "echo no bus >&2; exit 1"), "systemctl show: no bus"),
        (("true",), "cannot read systemctl show: 1 answers for 2 units"),
    ],
)
def test_a_systemd_that_does_not_answer_is_told_in_one_line(command, message):
    with pytest.raises(KernelError, match=message):
        SystemdMonitor(["a.service", "b.service"], systemctl=command).look()


def test_several_units_are_asked_for_at_once_and_one_is_stopped(private_systemd):
    for name in ("a", "b"):
        private_systemd.unit(f"{name}.service", "[Service]\nExecStart=/bin/sleep 60\n")
        private_systemd.systemctl("start", f"{name}.service")
    command = ("nsenter", "-t", str(private_systemd.pid), "-a", "systemctl")
    monitor = SystemdMonitor(["a.service", "b.service", "nobody.service"], systemctl=command)
    assert [(found.worker, found.condition) for found in monitor.look()] == [
        ("a.service", "alive"),
        ("b.service", "alive"),
        ("nobody.service", "gone"),
    ]
    assert monitor.stop("a.service")
    private_systemd.systemctl("stop", "a.service")  # joins the stop that is under way
    assert [found.condition for found in monitor.look()] == ["gone", "alive", "gone"]
