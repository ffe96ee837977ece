"""A oneshot unit of a template, and who starts it: what a helper has to count with (SYSTEMD.md 90–101)."""

import os
import signal
import time

import pytest

from tests.kernel.conftest import wait_for

TEMPLATE = "[Service]\nType=oneshot\nExecStart=/bin/sh {}/script %i\n"


class Template:
    """`job@.service` with its script; `runs` are the words that its runs have written."""

    def __init__(self, manager, place):
        self.manager, self.place = manager, place
        self.log = place / "log"

    def write(self, script, lines="", head=""):
        (self.place / "script").write_text(f"log={self.log}\n{script}\n")
        self.manager.unit("job@.service", f"{head}\n{TEMPLATE.format(self.place)}{lines}\n")

    def go(self):
        """Let the script go on that waits for it."""
        (self.place / "log.go").touch()

    def runs(self):
        return self.log.read_text().split() if self.log.exists() else []

    def call(self, verb, instance="1"):
        return self.manager.systemctl(verb, f"job@{instance}.service", check=False)

    def begin(self, verb="start"):
        """A client in the background; `ended` is its code."""
        done = self.place / f"rc{time.monotonic_ns()}"
        client = f"systemctl {verb} job@1.service 2>{done}.words; echo $? >{done}.new; mv {done}.new {done}"
        self.manager.run(["sh", "-c", f"({client}) >/dev/null 2>&1 </dev/null &"])
        return done

    def await_runs(self, *words):
        wait_for(lambda: self.runs() == list(words), f"{words}")

    def show(self, name, instance="1"):
        return self.manager.show(f"job@{instance}.service", name)[name]


def ended(done):
    wait_for(done.exists, "end of a client")
    return int(done.read_text())


def words(done):
    return done.with_name(f"{done.name}.words").read_text()


@pytest.fixture
def template(private_systemd, tmp_path):
    return Template(private_systemd, tmp_path)


@pytest.mark.fact(90)
def test_a_start_ends_after_the_last_hook_and_is_1_whatever_went_wrong(template):
    slow = f'ExecStopPost=/bin/sh -c "sleep 0.3; echo post >>{template.log}"'
    template.write("case $1 in [0-9]*) exit $1;; slow) sleep 60;; *) kill -$1 $$;; esac", f"{slow}\nTimeoutStartSec=1")
    for instance, code in (("0", 0), ("1", 1), ("7", 1), ("KILL", 1), ("TERM", 1), ("slow", 1)):
        assert template.call("start", instance).returncode == code, instance
        assert template.runs() == ["post"]
        template.log.unlink()
    assert (template.show("Result", "TERM"), template.show("Result", "slow")) == ("signal", "timeout")


@pytest.mark.fact(90)
def test_without_settings_a_oneshot_may_run_for_ever_and_its_stop_takes_the_whole_cgroup_and_90_s(template):
    template.write("exit 1")
    wanted = {"TimeoutStartUSec": "infinity", "KillMode": "control-group", "TimeoutStopUSec": "1min 30s"}
    assert template.manager.show("job@1.service", *wanted) == wanted


@pytest.mark.fact(91)
@pytest.mark.parametrize(
    ("mode", "failed"),
    [("inactive", ("failed", "exit-code", "7")), ("inactive-or-failed", ("inactive", "success", "0"))],
)
def test_a_failed_unit_that_is_collected_has_forgotten_its_code_and_its_result(template, mode, failed):
    hook = f'ExecStopPost=/bin/sh -c "echo $SERVICE_RESULT $EXIT_STATUS >>{template.log}"'
    template.write("exit 7", hook, head=f"[Unit]\nCollectMode={mode}")
    assert template.call("start").returncode == 1
    names = ("ActiveState", "Result", "ExecMainStatus")
    wait_for(lambda: tuple(template.show(name) for name in names) == failed, mode)
    assert template.call("is-failed").stdout.strip() == failed[0]
    assert template.runs() == ["exit-code", "7"], "its last hook knew"


@pytest.mark.fact(92)
def test_a_start_during_the_run_joins_it_and_one_after_it_runs_again(template):
    script = "echo run >>$log; while ! test -e $log.go; do sleep 0.02; done; exit 3"
    template.write(script, f"ExecStopPost=/bin/sh -c 'while ! test -e {template.log}.end; do sleep 0.02; done'")
    first = template.begin()
    template.await_runs("run")
    second = template.begin()
    time.sleep(1)  # its client needs some hundredths to reach systemd
    template.go()
    wait_for(lambda: template.show("SubState") == "stop-post", "last hook")
    template.manager.systemctl("start", "--no-block", "job@1.service")
    assert not first.exists()
    (template.place / "log.end").touch()
    assert (ended(first), ended(second)) == (1, 1)
    wait_for(lambda: template.show("ActiveState") == "failed", "end of the run")
    assert template.runs() == ["run"]
    assert template.call("start").returncode == 1
    assert template.runs() == ["run", "run"]


# On SIGTERM it goes on for as long as the test wants it.
STUBBORN = """
trap 'echo term >>$log; while ! test -e $log.go; do sleep 0.02; done; echo end >>$log; exit 0' TERM
echo run >>$log
while :; do sleep 0.02; done
"""


@pytest.mark.fact(93)
def test_a_stop_cancels_the_start_at_once_and_ends_when_all_of_the_cgroup_has(template):
    child = "(trap 'echo child >>$log; exit' TERM; while :; do sleep 0.02; done) &"
    template.write(child + STUBBORN)
    start = template.begin()
    template.await_runs("run")
    stop = template.begin("stop")
    assert ended(start) == 1
    assert "canceled" in words(start)
    wait_for(lambda: sorted(template.runs()) == ["child", "run", "term"], "SIGTERM to both")
    assert not stop.exists()
    template.go()
    assert ended(stop) == 0
    assert template.runs()[-1] == "end"


@pytest.mark.fact(94)
def test_a_start_during_that_stop_cancels_it_and_runs_the_script_again(template):
    template.write("test -e $log && echo again >>$log && exit 0" + STUBBORN)
    first = template.begin()
    template.await_runs("run")
    stop = template.begin("stop")
    template.await_runs("run", "term")
    second = template.begin()
    assert ended(stop) == 1
    assert "canceled" in words(stop)
    template.go()
    assert (ended(first), ended(second)) == (1, 0)
    template.await_runs("run", "term", "end", "again")


@pytest.mark.fact(95)
def test_the_stop_of_a_script_that_ignores_sigterm_takes_all_of_its_time(template):
    template.write("trap '' TERM; echo run >>$log; while :; do sleep 0.02; done", "TimeoutStopSec=1")
    start = template.begin()
    template.await_runs("run")
    began = time.monotonic()
    assert template.call("stop").returncode == 0
    assert time.monotonic() - began > 0.9
    assert ended(start) == 1
    assert any("Killing" in line for line in template.manager.journal("job@1.service"))


@pytest.mark.fact(96)
def test_a_stop_that_comes_before_the_start_stops_nothing(template):
    """Why a helper must be rid of its client first: `systemctl start` has not reached systemd yet."""
    template.write("echo run >>$log")
    held = f"touch {template.log}.held; while ! test -e {template.log}.go; do sleep 0.02; done"
    client = template.manager.popen(["sh", "-c", f"{held}; exec systemctl start job@1.service"])
    wait_for((template.place / "log.held").exists, "client")
    assert template.call("stop").returncode == 0
    template.go()
    assert client.wait(20) == 0
    assert template.runs() == ["run"]


@pytest.mark.fact(97)
def test_a_run_goes_on_to_its_end_when_its_client_is_killed(template):
    script = "echo run >>$log; while ! test -e $log.go; do sleep 0.02; done; echo end >>$log"
    template.write(script, f"ExecStopPost=/bin/rm {template.place}/environment")
    (template.place / "environment").touch()
    client = template.manager.popen(["systemctl", "start", "job@1.service"])
    template.await_runs("run")
    os.killpg(client.pid, signal.SIGKILL)
    client.wait()
    template.go()
    template.await_runs("run", "end")
    wait_for(lambda: not (template.place / "environment").exists(), "last hook")


@pytest.mark.fact(98)
@pytest.mark.parametrize(("trap", "code", "result"), [("-", 0, "success"), ("''", 1, "timeout")])
def test_a_child_that_a_script_leaves_is_ended_and_one_that_ignores_sigterm_makes_it_a_failure(
    template, trap, code, result
):
    child = f"(trap {trap} TERM; echo child >>$log; exec sleep 1000) &"
    template.write(f"{child} while ! test -e $log; do sleep 0.01; done", "TimeoutStopSec=0.5")
    assert template.call("start").returncode == code
    assert template.show("Result") == result


@pytest.mark.fact(99)
def test_a_reload_disturbs_no_run_and_a_reexec_only_its_client(template):
    template.write("echo run >>$log; while ! test -e $log.go; do sleep 0.02; done; exit 0")
    client = template.begin()
    template.await_runs("run")
    template.manager.systemctl("daemon-reload")
    assert not client.exists()
    template.manager.systemctl("daemon-reexec")
    assert ended(client) == 1
    assert template.show("ActiveState") == "activating"
    template.go()
    wait_for(lambda: template.show("ActiveState") == "inactive", "end of the run")
    assert template.runs() == ["run"]


@pytest.mark.fact(100)
def test_a_restart_gives_the_first_client_the_code_of_the_second_run(template):
    script = "echo run >>$log; test -e $log.2 && exit 0; touch $log.2; while :; do sleep 0.02; done"
    template.write(script)
    first = template.begin()
    wait_for((template.place / "log.2").exists, "first run")
    assert template.call("restart").returncode == 0
    assert ended(first) == 0
    assert template.runs() == ["run", "run"]


@pytest.mark.fact(100)
def test_a_limit_of_the_job_ends_the_waiting_and_not_the_run(template):
    template.write("echo run >>$log; while ! test -e $log.go; do sleep 0.02; done; echo end >>$log",
                   head="[Unit]\nJobRunningTimeoutSec=0.3\nJobTimeoutSec=0.3")  # fmt: skip
    done = template.call("start")
    assert done.returncode == 1
    assert "timed out" in done.stderr
    template.go()
    template.await_runs("run", "end")


@pytest.mark.fact(100)
def test_what_remains_after_its_exit_is_not_run_again(template):
    template.write("echo run >>$log", "RemainAfterExit=yes")
    assert [template.call("start").returncode for _ in range(2)] == [0, 0]
    assert template.runs() == ["run"]
    template.call("stop")


@pytest.mark.fact(101)
@pytest.mark.parametrize(
    ("lines", "code"),
    [
        ("[Unit]\nConditionPathExists=/nowhere", 0),
        ("[Unit]\nAssertPathExists=/nowhere", 1),
        ("[Unit]\nRequires=nowhere.service\nAfter=nowhere.service", 5),
        ("[Unit]\nRefuseManualStart=yes", 4),
        ("[Service]\nExecCondition=/bin/false", 0),
        ("[Service]\nRestart=always", 1),
    ],
)
def test_the_code_of_a_start_that_never_ran_its_script(template, lines, code):
    template.write("echo run >>$log")
    template.manager.unit("job@.service.d/more.conf", lines)
    assert template.call("start").returncode == code
    assert template.runs() == []


@pytest.mark.fact(101)
def test_the_codes_for_what_is_not_there(template):
    template.write("echo run >>$log")
    assert template.call("stop", "other").returncode == 0
    assert template.call("kill", "other").returncode == 1
    assert template.manager.systemctl("start", "nowhere.service", check=False).returncode == 5
    template.manager.systemctl("mask", "masked.service")
    assert template.manager.systemctl("start", "masked.service", check=False).returncode == 1
