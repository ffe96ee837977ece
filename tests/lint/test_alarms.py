"""No false alarm for what an administrator may rightly write; one fault is told once; what mends it, mends it."""

import re
import shutil
import subprocess
import time

import pytest

from brokerctl.lint import engine
from brokerctl.lint.subject import Subject
from brokerctl.unit import load

PROGRAM = "[Service]\nExecStart=/usr/bin/program\n"
BROKER = """\
[Unit]
After=network-online.target
[Service]
Type=notify
KillMode=mixed
TimeoutStopSec=8min
ExecStart=/usr/bin/flux broker -Sbroker.cleanup-timeout=45 -Sbroker.shutdown-timeout=5m \\
    -Sbroker.sd-notify=1 -Sbroker.sd-stop-timeout=90 -Sbroker.exit-norestart=42
"""
LOOP = "while kill -0 $MAINPID 2>/dev/null; do sleep 1; done"


@pytest.mark.parametrize(
    "lines",
    [
        "ExecStop=-/bin/kill -TERM $MAINPID\nExecStop=/usr/bin/ctl wait\n",  # a later line waits
        f"ExecStop=-/bin/sh -c 'kill $MAINPID; {LOOP}'\n",
        "ExecStop=/bin/sh -c 'a-stop & b-stop & wait'\n",
        f"ExecStop=/bin/sh -c '{LOOP}'\n",
        "ExecStop=/bin/sh -c 'kill -TERM $MAINPID || exit 0; tail --pid=\"$MAINPID\" -f /dev/null'\n",
    ],
)
def test_a_stop_that_waits_is_neither_asynchronous_nor_in_need_of_a_process_id(judge, lines):
    assert judge(PROGRAM + lines) == []


@pytest.mark.parametrize(
    ("lines", "rule"),
    [
        ("ExecStop=/bin/kill $MAINPID\n", "execstop-asynchronous"),
        ("ExecStop=/bin/sh -c 'kill $MAINPID; logger stopped; exit 0'\n", "execstop-asynchronous"),
        ("ExecStop=/bin/sh -c 'helper & exit 0'\n", "execstop-asynchronous"),
        ("ExecStop=/usr/bin/ctl wait\nExecStop=/usr/bin/systemctl --no-block start x\n", "execstop-asynchronous"),
        ("PAMName=login\nKillMode=none\n", "unit-refused"),
    ],
)
def test_one_fault_is_told_once(judge, lines, rule):
    assert judge(PROGRAM + lines) == [rule]


@pytest.mark.parametrize(
    "lines",
    [
        f"ExecStop=-/bin/sh -c 'kill $MAINPID; {LOOP}'\n",
        "ExecStop=-/bin/sh -c 'kill -TERM $MAINPID; while [ -d /proc/$MAINPID ]; do sleep 1; done'\n",
        "ExecStop=-/bin/kill $MAINPID\nExecStop=/usr/bin/tail --pid=$MAINPID -f /dev/null\n",
        "ExecStop=-/bin/sh -c 'kill $MAINPID; while pgrep -x flux-broker-0; do sleep 1; done'\n",
        "ExecStop=-/bin/kill -USR1 $MAINPID\n",
        "ExecStop=-/usr/bin/pkill node_exporter\n",
    ],
)
def test_a_broker_that_is_waited_for_or_not_told_to_stop_gets_no_second_sigterm(judge, lines):
    assert judge(BROKER + lines, "flux.service") == []


@pytest.mark.parametrize(
    "lines",
    [
        "ExecStop=/bin/kill -TERM $MAINPID\n",
        "ExecStop=-/bin/sh -c 'kill -TERM $MAINPID &'\n",
        "ExecStop=-/bin/sh -c 'kill -TERM $MAINPID; sleep 5'\n",
        "ExecStop=-/usr/bin/pkill -x flux-broker-0\n",
        f"ExecStop=-/bin/sh -c '{LOOP}; kill $MAINPID'\n",
    ],
)
def test_a_broker_that_is_signalled_and_left_gets_a_second_sigterm(judge, lines):
    assert judge(BROKER + lines, "flux.service") == ["second-sigterm"]


def test_a_requested_stop_is_told_and_not_that_its_cleanup_has_no_limit(judge):
    assert judge(BROKER + "ExecStop=/usr/bin/flux shutdown\n", "flux.service") == ["flux-shutdown-in-execstop"]


def test_a_phase_is_not_blamed_for_one_before_it_that_has_no_limit(judge):
    text = BROKER.replace("-Sbroker.cleanup-timeout=45 ", "").replace("-Sbroker.sd-stop-timeout=90", "")
    assert "chain-shutdown" not in judge(text, "flux.service")
    assert "chain-cleanup" in judge(text, "flux.service")


@pytest.mark.parametrize(
    "unit",
    [
        "[Service]\nDynamicUser=yes\nExecStart=/home/a/program\n",
        "[Unit]\nDefaultDependencies=no\nConflicts=umount.target\n[Service]\nExecStart=/bin/x\nExecStop=/bin/y\n",
        "[Unit]\nBindsTo=flux.service\nAfter=flux.service\n" + PROGRAM + "Restart=always\n",
        "[Service]\nEnvironmentFile=/etc/50%%If\nExecStart=/usr/bin/program\n",
        "[Service]\nRemainAfterExit=yes\nExecStop=/usr/bin/program\n",
        "[Service]\nTimeoutStopSec=9min\nKillMode=mixed\nRestart=always\nExecStart=brokerctl run --config /no/x.toml\n",
    ],
)
def test_what_is_right_is_not_complained_about(judge, unit):
    assert judge(unit) == []


def test_in_a_users_own_manager_nothing_runs_as_root(tmp_path):
    path = tmp_path / "systemd" / "user" / "x.service"
    path.parent.mkdir(parents=True)
    path.write_text("[Service]\nExecStart=/home/a/program\n")
    assert engine.judge(Subject(load(path))) == []


def test_a_code_that_the_brokers_own_configuration_sets_counts(judge, tmp_path):
    config = tmp_path / "run.toml"
    config.write_text('[attrs]\n"broker.exit-norestart" = "42"\n')
    text = f"[Service]\nKillMode=mixed\nRestart=always\nExecStart=/usr/bin/brokerctl run --config {config}\n"
    assert judge(text) == ["norestart-not-prevented"]
    assert judge(text + "RestartPreventExitStatus=42\n") == []
    config.write_text("")
    assert judge(text) == ["norestart-not-set"]


@pytest.mark.parametrize("key", ["Requires", "Wants"])
def test_whatever_pulls_the_broker_up_again_is_told(judge, key):
    assert judge(f"[Unit]\n{key}=flux.service\n{PROGRAM}Restart=on-failure\n") == ["requires-broker"]


@pytest.mark.parametrize(
    ("order", "line", "rules"),
    [
        ("Before", "ExecStop=/bin/systemctl start b", ["systemctl-ordered"]),
        ("After", "ExecStop=/bin/systemctl start b", ["systemctl-ordered"]),
        ("After", "ExecStop=/bin/systemctl restart b", ["systemctl-ordered"]),
        ("After", "ExecStop=/bin/systemctl stop b", ["systemctl-ordered"]),
        ("Before", "ExecStop=/bin/systemctl stop b", []),
        ("Before", "ExecStartPost=/bin/systemctl restart b", ["systemctl-ordered"]),
        ("After", "ExecStartPost=/bin/systemctl restart b", []),
        ("Before", "ExecReload=/bin/systemctl --no-block start b", []),
    ],
)
def test_a_hook_waits_for_a_unit_that_waits_for_its_own(judge, order, line, rules):
    assert judge(f"[Unit]\n{order}=b.service\n{PROGRAM}{line}\n") == rules


def started_again(systemd, key):
    """Whether a unit that has ended by itself is up again after the restart of one that names it so."""
    systemd.unit("flux.service", "[Service]\nExecStart=/bin/sleep 60\n")
    text = f"[Unit]\n{key}=flux.service\nAfter=flux.service\n[Service]\nExecStart=/bin/sleep 60\nRestart=always\n"
    systemd.unit(f"{key}.service", text)
    systemd.systemctl("start", f"{key}.service")
    systemd.systemctl("kill", "--signal=TERM", "flux.service")
    until(lambda: state(systemd, "flux.service") == "inactive")
    if key == "BindsTo":
        until(lambda: state(systemd, f"{key}.service") == "inactive")  # it stops as well, and has nothing to restart
    else:
        systemd.systemctl("kill", "--signal=KILL", f"{key}.service")
        until(lambda: systemd.show(f"{key}.service", "NRestarts")["NRestarts"] == "1")
        until(lambda: state(systemd, f"{key}.service") == "active")
    return state(systemd, "flux.service") == "active"


def state(systemd, unit):
    return systemd.show(unit, "ActiveState")["ActiveState"]


def until(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_systemd_pulls_up_again_what_is_required_or_wanted_and_not_what_is_bound_or_only_ordered(private_systemd):
    keys = ("Requires", "Wants", "BindsTo", "After")
    assert [key for key in keys if started_again(private_systemd, key)] == ["Requires", "Wants"]


@pytest.mark.parametrize("order", ["Before", "After"])
def test_systemd_starts_nothing_that_is_ordered_beside_a_unit_that_stops(private_systemd, order):
    private_systemd.unit("b.service", "[Service]\nType=oneshot\nExecStart=/bin/true\n")
    hook = "TimeoutStopSec=500ms\nExecStop=/bin/systemctl start b\n"
    private_systemd.unit("site.service", f"[Unit]\n{order}=b.service\n[Service]\nExecStart=/bin/sleep 60\n{hook}")
    private_systemd.systemctl("start", "site.service")
    private_systemd.systemctl("stop", "site.service")
    assert private_systemd.show("site.service", "Result") == {"Result": "timeout"}


LIMITS = (
    "-Sbroker.cleanup-timeout=45 -Sbroker.shutdown-timeout=20",
    "-Sbroker.cleanup-timeout=45 -Sbroker.shutdown-timeout=9m",
)


@pytest.mark.parametrize("wrapper", ["", "NotifyAccess=exec\nExecStop=/usr/bin/brokerctl stop\n"])
@pytest.mark.parametrize("attributes", LIMITS)
def test_the_limit_that_a_finding_of_the_chain_names_is_enough_and_a_minute_less_is_not(tmp_path, wrapper, attributes):
    path = tmp_path / "flux.service"

    def chain(limit):
        path.write_text(f"[Service]\nTimeoutStopSec={limit}\nExecStart=/usr/bin/flux broker {attributes}\n{wrapper}")
        return [finding for finding in engine.judge(Subject(load(path))) if finding.rule.startswith("chain-")]

    minutes = {int(re.match(r"set TimeoutStopSec=(\d+)min or more, or lower ", each.mend)[1]) for each in chain("20s")}
    [enough] = minutes
    assert chain(f"{enough}min") == []
    assert chain(f"{enough - 1}min")


REFUSED = {
    "neither": "[Unit]\nDescription=X\n[Service]\nType=simple\n",
    "no action": "[Unit]\nSuccessAction=none\n[Service]\nType=simple\n",
    "an action alone": "[Unit]\nSuccessAction=reboot\n[Service]\nType=simple\n",
    "a stop alone": "[Service]\nExecStop=/bin/true\n",
    "a stop alone, oneshot": "[Service]\nType=oneshot\nExecStop=/bin/true\n",
    "two starts": "[Service]\nExecStart=/bin/true\nExecStart=/bin/false\n",
    "no bus name": "[Service]\nType=dbus\nExecStart=/bin/true\n",
    "oneshot, always": "[Service]\nType=oneshot\nRestart=always\nExecStart=/bin/true\n",
    "oneshot, cgroup": "[Service]\nType=oneshot\nExitType=cgroup\nExecStart=/bin/true\n",
    "a session": "[Service]\nPAMName=login\nKillMode=process\nExecStart=/bin/true\n",
}
TAKEN = {
    "a bus name": "[Service]\nBusName=org.x.y\nExecStart=/bin/true\n",
    "a stop alone that stays": "[Service]\nRemainAfterExit=yes\nExecStop=/bin/true\n",
    "a stop and an action": "[Unit]\nSuccessAction=reboot\n[Service]\nExecStop=/bin/true\n",
    "an action alone": "[Unit]\nSuccessAction=reboot\n[Service]\nRemainAfterExit=no\n",
    "two starts": "[Service]\nType=oneshot\nExecStart=/bin/true\nExecStart=/bin/false\n",
    "on failure": "[Service]\nType=oneshot\nRestart=on-failure\nExecStart=/bin/true\n",
}
UNITS = [
    *((name, text, True) for name, text in REFUSED.items()),
    *((name, text, False) for name, text in TAKEN.items()),
]


@pytest.mark.parametrize(("name", "text", "refused"), UNITS)
def test_what_systemd_refuses_is_told_and_nothing_else(judge, tmp_path, name, text, refused):
    assert ("unit-refused" in judge(text)) == refused, name
    if shutil.which("systemd-analyze"):
        command = ["systemd-analyze", "--man=no", "verify", str(tmp_path / "site.service")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert ("Refusing" in done.stderr) == refused, done.stderr
