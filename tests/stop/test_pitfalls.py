"""The pitfalls of a wrapper in ExecStop= (SYSTEMD.md P1–P14), with the real systemd, or where they are decided."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path

import pytest

from brokerctl.errors import UsageError
from brokerctl.records import Notify
from brokerctl.stop import target
from tests.stop.service import PYTHON, STOP
from tests.stopping import Main, Stop

MAIN = Path(__file__).with_name("main.py")


class Unit:
    """A service of any kind of main, with the wrapper; `lines` are more of its [Service] section."""

    def __init__(self, manager, place: Path, *, after="0", code=0, main="", lines="", stop=STOP, name="pit.service"):
        self.manager, self.name = manager, name
        self.heard = place / "heard"
        main = main or f"{PYTHON} {MAIN} {self.heard} {after} {code}"
        manager.unit(
            name,
            f"[Service]\nType=exec\nExecStart={main}\nExecStop={stop}\nKillMode=mixed\nTimeoutStopSec=20\n{lines}\n",
        )

    def start(self) -> Unit:
        self.manager.systemctl("start", self.name)
        deadline = time.monotonic() + 10
        while not self.heard.with_name("heard.pid").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        return self

    def stop(self) -> float:
        began = time.monotonic()
        self.manager.systemctl("stop", self.name)
        return time.monotonic() - began

    def ends(self) -> tuple[str, str, str]:
        shown = self.manager.show(self.name, "ActiveState", "Result", "ExecMainStatus")
        return shown["ActiveState"], shown["Result"], shown["ExecMainStatus"]

    def signals(self) -> list[str]:
        return [word for word in self.heard.read_text().split() if word != "CONT"] if self.heard.exists() else []


@pytest.fixture
def unit(private_systemd, tmp_path):
    def make(**how) -> Unit:
        return Unit(private_systemd, tmp_path, **how)

    return make


def wait_for(there, within_s: float = 10) -> None:
    deadline = time.monotonic() + within_s
    while not there():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.fact(56)
def test_p1_run_by_systemd_after_main_has_ended_it_exits_with_0_at_once(unit):
    made = unit(main="/bin/sleep 0.3")
    made.manager.systemctl("start", made.name)
    began = time.monotonic()
    wait_for(lambda: made.ends()[0] == "inactive")
    assert time.monotonic() - began < 3
    assert made.ends()[1] == "success"


@pytest.mark.fact(61)
def test_p1_stopped_while_it_starts_there_is_no_execstop_and_the_line_after_it_says_so(unit):
    made = unit(lines=f"Type=notify\nTimeoutStartSec=60\nExecStopPost={PYTHON} -m brokerctl stop --post")
    made.manager.systemctl("start", "--no-block", made.name)
    wait_for(made.heard.with_name("heard.pid").exists)
    assert made.ends()[0] == "activating"
    made.stop()
    assert made.signals() == ["TERM"]
    journal = "\n".join(made.manager.journal(made.name))
    assert "SIGTERM to " not in journal  # of the wrapper
    assert "before it was ready" in journal


def test_p2_without_mainpid_nothing_is_looked_for_and_nothing_signalled():
    assert target.main_pid("", {}) is None
    assert target.main_pid(None, {}) is None
    assert target.main_pid(None, {"MAINPID": "4711"}) == 4711
    for nonsense in ("0", "1", "-4", "self", "99999999", "4711 4712"):
        with pytest.raises(UsageError):
            target.main_pid(nonsense, {})


def test_p2_main_is_waited_for_by_its_pidfd_and_its_end_noticed_at_once(unit):
    made = unit(after="1").start()
    took_s = made.stop()
    assert made.signals() == ["TERM"]
    assert 1 <= took_s < 2.5
    assert made.ends()[:2] == ("inactive", "success")


@pytest.mark.fact(12, 14)
@pytest.mark.parametrize(
    ("code", "result"), [(0, "success"), (42, "success"), (1, "exit-code"), (129, "exit-code"), (143, "exit-code")]
)
def test_p3_mains_own_code_decides_and_is_not_forwarded(unit, code, result):
    made = unit(code=code, lines="SuccessExitStatus=42").start()
    made.stop()
    assert made.ends()[1] == result
    if result != "success":  # else it is unloaded, and has forgotten the code
        assert made.ends()[2] == str(code)
    journal = made.manager.journal(made.name)
    assert not [line for line in journal if "Control process exited" in line]


@pytest.mark.fact(26, 30)
def test_p4_told_to_end_at_the_end_of_the_time_it_exits_with_75_and_the_next_line_is_not_run(unit, tmp_path):
    marker = tmp_path / "second-line"
    made = unit(after="2.5", lines=f"ExecStop=/bin/touch {marker}\nTimeoutStopSec=2").start()
    took_s = made.stop()
    assert took_s < 4
    assert not marker.exists()
    assert made.ends()[1] == "timeout"
    assert any("status=75" in line for line in made.manager.journal(made.name))
    assert made.signals() == ["TERM", "TERM"]  # ours, and systemd's own


def test_p5_main_gets_one_sigterm_however_long_it_takes(unit):
    made = unit(after="4").start()
    assert made.stop() >= 4
    assert made.signals() == ["TERM"]
    assert made.ends()[1] == "success"


def test_p8_without_a_notify_socket_a_stop_is_as_any_other(unit):
    made = unit(lines="NotifyAccess=main").start()
    made.stop()
    assert made.ends()[:2] == ("inactive", "success")


FLUX = """\
#!/bin/sh
case "$1" in
uptime) echo ' 21:20:58 run 1.7s,  owner root,  depth 0,  size 1' ;;
lsattr) echo 'rank 0'; echo 'size 1' ;;
*) exit 1 ;;
esac
"""
SYSTEMCTL = """\
#!/bin/sh
echo "$*" >> {told}
exec {real} "$@"
"""


def test_p9_a_stop_asks_systemd_and_has_it_do_nothing(unit, tmp_path):
    real, told = tmp_path / "systemctl", tmp_path / "told"
    shutil.copy("/usr/bin/systemctl", real)
    scripts = {"flux": FLUX, "recorder": SYSTEMCTL.format(told=told, real=real)}
    for name, text in scripts.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "stop.toml").write_text(f'kind = "flux"\nflux = "{tmp_path}/flux"\n')
    (tmp_path / "stop.toml").chmod(0o644)
    made = unit(
        after="3",
        stop=f"{STOP} --config {tmp_path}/stop.toml",
        lines=f"BindReadOnlyPaths={tmp_path}/recorder:/usr/bin/systemctl\nNotifyAccess=exec\n"
        f"ExecStopPost={PYTHON} -m brokerctl stop --post",
    )
    made.start()
    made.stop()
    assert made.ends()[:2] == ("inactive", "success"), made.manager.journal(made.name)
    assert made.signals() == ["TERM"]
    verbs = [line.split()[0] for line in told.read_text().splitlines()]
    assert verbs.count("show") >= 3
    assert set(verbs) <= {"show", "list-units"}


def test_p9_nothing_of_the_wrapper_calls_systemctl_to_stop_or_start_anything():
    folder = Path(target.__file__).parent
    for path in folder.glob("*.py"):
        if path.name not in {"disable.py", "check.py"}:  # those are no part of a stop
            text = path.read_text()
            assert not any(f'"systemctl", "{verb}"' in text for verb in ("stop", "start", "restart", "kill")), path


@pytest.mark.fact(23)
@pytest.mark.parametrize("delegate", ["", "Delegate=yes"])
def test_p10_site_actions_run_as_mains_user_though_the_wrapper_is_root(unit, tmp_path, delegate):
    # The interpreter need not be nobody's to run: main and the action are the system's own programs.
    made = unit(
        main="/bin/sleep 60",
        lines=f"User=nobody\nPermissionsStartOnly=true\n{delegate}",
        stop=f"{PYTHON} -m brokerctl stop --pid $MAINPID --config {tmp_path}/stop.toml",
    )
    out = Path(tempfile.mkdtemp(prefix="nobodys-", dir="/tmp"))
    try:
        out.chmod(0o777)
        (tmp_path / "stop.toml").write_text(f'[[actions]]\ncommand = "id -un > {out}/who; env > {out}/env"\n')
        (tmp_path / "stop.toml").chmod(0o644)
        made.manager.systemctl("start", made.name)
        made.stop()
        assert made.ends()[:2] == ("inactive", "success"), made.manager.journal(made.name)
        assert (out / "who").read_text() == "nobody\n"
        names = {line.partition("=")[0] for line in (out / "env").read_text().splitlines()}
        assert not names.intersection({"NOTIFY_SOCKET", "INVOCATION_ID", "MAINPID", "SERVICE_RESULT"})
    finally:
        shutil.rmtree(out)


def test_p11_the_wrapper_leaves_no_process_behind(unit):
    made = unit(lines="KillMode=process").start()
    made.stop()
    assert made.ends()[0] == "inactive"
    assert not [line for line in made.manager.journal(made.name) if "remains running" in line]


@pytest.mark.fact(66)
def test_p12_a_start_during_the_stop_lets_it_come_to_its_end(unit):
    made = unit(after="2").start()
    made.manager.systemctl("stop", "--no-block", made.name)
    time.sleep(0.7)
    made.manager.systemctl("start", made.name)
    assert made.signals() == ["TERM"]
    assert made.ends()[0] == "active"
    made.manager.systemctl("kill", "--signal=KILL", made.name)


def test_p13_by_hand_it_says_that_systemd_may_start_the_service_again(unit):
    made = unit(lines="Restart=always\nRestartSec=60").start()
    pid = made.manager.show(made.name, "MainPID")["MainPID"]
    done = made.manager.run([*PYTHON.split(), "-m", "brokerctl", "stop", "--pid", pid], check=False)
    assert done.returncode == 0
    assert f"systemctl stop {made.name}" in done.stderr


def test_p14_stopping_is_never_told():
    stop = Stop(Main()).run()
    assert not [message for message in stop.sent(Notify) if message.text.startswith("STOPPING")]
