"""The helper against a real systemd: codes, environments, joins, and what happens when somebody interferes."""

import os
import signal
import sys
import time

import pytest

from tests.perilog.conftest import JOB

UNIT = f"flux-epilog@{JOB}.service"
SEE = f"; see: journalctl -u {UNIT}"
SOAK = bool(os.environ.get("BROKERCTL_SOAK_ROUNDS"))
CODES = range(256) if SOAK else (0, 1, 2, 42, 77, 124, 125, 126, 127, 128, 143, 203, 255)
SIGNALS = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGKILL,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGSEGV,
    signal.SIGRTMIN,
)
# Job ids that a script makes its ending of.
BASE = 1000


def test_a_script_that_succeeds_is_silent_and_leaves_nothing(site):
    site.script("epilog", "exit 0")
    answer = site.call("epilog")
    assert (answer.code, answer.lines) == (0, [])
    assert site.files() == []


def test_every_exit_code_comes_back_as_the_scripts_own(site):
    site.script("epilog", f"exit $((FLUX_JOB_ID - {BASE}))")
    answers = site.inside("in_turn", jobs=[str(BASE + code) for code in CODES], width=4)
    assert [answer["code"] for answer in answers] == list(CODES)
    for code, answer in zip(CODES, answers, strict=True):
        assert (f": exited with {code}; see: journalctl -u flux-epilog@" in answer["words"]) == (code != 0)
    assert site.files() == []


def test_a_death_by_signal_comes_back_as_128_and_its_number(site):
    site.script("epilog", f"kill -$((FLUX_JOB_ID - {BASE})) $$")
    answers = site.inside("in_turn", jobs=[str(BASE + signum) for signum in SIGNALS], width=4)
    assert [answer["code"] for answer in answers] == [128 + signum for signum in SIGNALS]


@pytest.mark.fact(90)
def test_the_death_of_a_units_own_main_process_is_told_apart(site):
    site.systemd.unit(
        "flux-epilog@.service.d/site.conf", "[Service]\nExecStart=\nExecStart=/bin/sh -c 'kill -TERM $$$$'\n"
    )
    answer = site.call("epilog")
    assert (answer.code, answer.lines) == (143, [f"{UNIT}: was killed by SIGTERM{SEE}"])


@pytest.mark.fact(101)
def test_a_success_that_the_unit_cannot_prove_is_none(site):
    site.systemd.unit("flux-epilog@.service.d/site.conf", "[Unit]\nConditionPathExists=/nowhere\n")
    answer = site.call("epilog")
    assert answer.code == 125
    assert "was not started" in answer.lines[0]
    assert site.files() == []


@pytest.mark.fact(59, 101)
def test_an_exec_condition_that_says_no_is_no_success(site):
    site.systemd.unit("flux-epilog@.service.d/site.conf", "[Service]\nExecCondition=/bin/false\n")
    answer = site.call("epilog")
    assert answer.code == 125
    assert answer.lines == [f"{UNIT}: was not started: an ExecCondition said no{SEE}"]


def test_a_limit_of_the_unit_is_124(site):
    site.systemd.unit("flux-epilog@.service.d/site.conf", "[Service]\nTimeoutStartSec=300ms\n")
    site.script("epilog", "exec sleep 60")
    answer = site.call("epilog")
    assert answer.code == 124
    assert answer.lines[0].startswith(f"{UNIT}: timed out: a limit of the unit itself")


def test_the_helpers_own_limit_is_124_and_the_unit_is_stopped(site):
    site.settings('[epilog]\ntimeout = "300ms"\n')
    site.script("epilog", "exec sleep 60")
    answer = site.call("epilog")
    assert (answer.code, answer.lines) == (124, [f"{UNIT}: timed out after 300ms{SEE}"])
    assert site.state() == "inactive"
    assert site.files() == []


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        ("[Service]\nExecStart=\n", "could not start: Failed to start"),  # bad unit file setting
        ("[Unit]\nRequires=nowhere.service\nAfter=nowhere.service\n", "could not start: Failed to start"),
        ("[Service]\nExecStartPre=/bin/false\n", "could not start: exit-code"),
        ("[Unit]\nRefuseManualStart=yes\n", "could not start: Failed to start"),
    ],
)
def test_a_unit_that_cannot_start_is_125_with_the_reason_and_nothing_is_left(site, broken, why):
    site.systemd.unit("flux-epilog@.service.d/site.conf", broken)
    answer = site.call("epilog")
    assert answer.code == 125
    assert answer.lines[0].startswith(f"{UNIT}: {why}")
    assert site.files() == []


def test_a_missing_interpreter_is_a_failure(site):
    site.systemd.unit("flux-epilog@.service.d/site.conf", "[Service]\nExecStart=\nExecStart=/nowhere/python\n")
    assert site.call("epilog").code == 203


# ---- what is done about a failure


REACTS = """
[epilog]
on-failure = [["sh", "-c", 'echo "$@" >>/run/drained', "sh", "{kind}", "{job}", "{code}", "{how}"]]
"""


def drained(site):
    path = site.systemd.path("/run/drained")
    text = path.read_text() if path.exists() else ""
    path.unlink(missing_ok=True)
    return text.splitlines()


def test_the_commands_for_a_failure_run_once_whichever_way_it_fails(site):
    site.settings(REACTS)
    site.script("epilog", "exit 3")
    assert site.call("epilog").code == 3
    assert drained(site) == [f"epilog {JOB} 3 exited with 3"]
    site.systemd.unit("flux-epilog@.service.d/site.conf", "[Unit]\nRefuseManualStart=yes\n")
    site.systemd.systemctl("daemon-reload")
    assert site.call("epilog").code == 125
    assert drained(site)[0].startswith(f"epilog {JOB} 125 could not start: ")


def test_a_success_reacts_to_nothing(site):
    site.settings(REACTS)
    assert site.call("epilog").code == 0
    assert drained(site) == []


def test_a_run_that_no_helper_waits_for_is_reacted_to_by_the_unit(site):
    """Flux's own helper, or an administrator: they write the file and start the unit."""
    site.settings(REACTS)
    site.script("epilog", 'test "$FLUX_JOB_USERID" = 7 && exit 4')
    site.write(f"/run/flux-epilog@{JOB}.env", f"FLUX_JOB_ID={JOB}\nFLUX_JOB_USERID=7\n")
    assert site.systemd.systemctl("start", UNIT, check=False).returncode == 1
    assert drained(site) == [f"epilog {JOB} 4 exited with 4"]
    assert site.files() == []


@pytest.mark.parametrize("by", ["the helper", "the unit"])
def test_where_the_settings_cannot_be_used_the_default_commands_run(site, tmp_path, by):
    """A node whose housekeeping does not run at all is the last that should stay in use."""
    site.settings("[housekeeping]\nnonsense = true\n")
    path = site.write("/usr/sbin/flux", f'#!/bin/sh\necho "$@" >>{tmp_path}/drained\n', 0o755)
    try:
        if by == "the helper":
            assert site.call("housekeeping").code == 125
        else:
            site.write(f"/run/flux-housekeeping@{JOB}.env", f"FLUX_JOB_ID={JOB}\n")
            site.systemd.systemctl("start", f"flux-housekeeping@{JOB}.service", check=False)
    finally:
        path.unlink()
    [line] = (tmp_path / "drained").read_text().splitlines()
    assert line.startswith("resource drain --update ")
    assert site.files() == []


def test_a_command_that_fails_or_hangs_is_told_and_the_code_stays(site):
    commands = '["/nowhere/flux"], ["sh", "-c", "echo no; exit 5"], ["sh", "-c", "kill -9 $$"]'
    site.settings(f"[epilog]\non-failure = [{commands}]\n")
    site.script("epilog", "exit 3")
    answer = site.call("epilog")
    assert answer.code == 3
    assert answer.lines[1:] == [
        f"{UNIT}: on-failure: /nowhere/flux: exits with 127: No such file or directory",
        f"{UNIT}: on-failure: sh: exits with 5: no",
        f"{UNIT}: on-failure: sh: was killed by SIGKILL",
    ]


def test_commands_for_a_failure_see_nothing_of_the_jobs_environment(site, tmp_path):
    site.settings(f'[epilog]\non-failure = [["sh", "-c", "env >{tmp_path}/env"]]\n')
    site.script("epilog", "exit 3")
    site.call("epilog", FLUX_URI="local:///evil", FLUX_EXEC_PATH_PREPEND="/evil", PYTHONPATH="/evil")
    lines = (tmp_path / "env").read_text().splitlines()
    assert {line.partition("=")[0] for line in lines} <= {"PATH", "LANG", "PWD", "_", "SHLVL", "OLDPWD"}


# ---- many at once


def test_many_jobs_at_once_each_get_their_own_code_and_environment(site):
    count = 64 if SOAK else 24
    site.script("epilog", 'test "$USER" = "" || exit 99; exit $((FLUX_JOB_ID % 200))')
    answers = site.inside("at_once", jobs=[str(nth) for nth in range(count)])
    assert [answer["code"] for answer in answers] == [nth % 200 for nth in range(count)]
    assert site.files() == []


def test_the_same_job_several_times_at_once_is_one_run_with_one_code(site, tmp_path):
    site.script("epilog", f"echo run >>{tmp_path}/runs; sleep 2; exit 7")
    answers = site.inside("at_once", jobs=["f7", "7", "ƒ8", "f8", "0x7", "f8", "7", "f8"])
    assert {answer["code"] for answer in answers} == {7}
    assert (tmp_path / "runs").read_text() == "run\nrun\n"  # f7 is job 6, f8 job 7
    waited = [answer for answer in answers if "waits for a run that is under way" in answer["words"]]
    assert len(waited) == 6
    assert site.files() == []


# ---- killed, stopped, executed anew


@pytest.mark.fact(92, 97)
def test_the_next_helper_joins_the_unit_that_a_killed_one_left(site, tmp_path):
    site.script("epilog", f"echo run >>{tmp_path}/runs; sleep 1; exit 6")
    report = site.inside("killed_then", kind="epilog", job=JOB, wait_for=f"{tmp_path}/runs")
    assert report["state"] == {UNIT: "activating"}
    assert report["next"]["code"] == 6
    assert "joins a run that is under way" in report["next"]["words"]
    assert (tmp_path / "runs").read_text() == "run\n"
    assert site.files() == []


def test_what_a_killed_helper_left_in_the_way_is_taken_away_by_the_next(site):
    for name in (f"flux-epilog@{JOB}.env", f".flux-epilog@{JOB}.env.new", f"flux-perilog/epilog@{JOB}.status"):
        site.write(f"/run/{name}", "success exited 0\n")
    site.write(f"/run/flux-perilog/epilog@{JOB}.run", "")
    site.systemd.path("/run/flux-perilog").chmod(0o700)
    site.script("epilog", "exit 5")
    assert site.call("epilog").code == 5
    assert site.files() == []


@pytest.fixture
def slow_end(site, tmp_path):
    """A unit whose last line, which takes the environment away, comes a while after all else; what tells of it."""
    text = site.rendered("flux-epilog@.service")
    mark = tmp_path / "ending"
    site.systemd.unit("flux-epilog@.service", text.replace("exec rm -f", f"touch {mark}; sleep 0.7; exec rm -f"))
    return str(mark)


def test_a_helper_that_comes_while_an_earlier_run_is_on_its_way_down_runs_after_it(site, tmp_path, slow_end):
    """The end of that run would take away a new environment as well."""
    site.script("epilog", f"echo run >>{tmp_path}/runs; sleep 0.3; exit 6")
    report = site.inside("killed_then", kind="epilog", job=JOB, wait_for=f"{tmp_path}/runs", then=slow_end)
    assert report["state"] == {UNIT: "deactivating"}
    assert report["next"]["code"] == 6
    assert (tmp_path / "runs").read_text() == "run\nrun\n"
    assert site.files() == []


def test_a_run_is_let_go_only_when_a_stop_of_it_is_over(site, slow_end):
    """The next helper would lose its environment to it."""
    site.script("epilog", "exit 6")
    command = ["systemctl", "stop", "--no-block", UNIT]
    report = site.inside("after_start", kind="epilog", job=JOB, wait_for=slow_end, command=command)
    assert site.state() == "inactive"
    assert report["code"] == 143
    assert site.files() == []


@pytest.mark.fact(93)
def test_a_unit_that_somebody_stops_is_canceled(site, tmp_path):
    site.script("epilog", f"touch {tmp_path}/began; exec sleep 60")
    command = ["systemctl", "stop", UNIT]
    report = site.inside("after_start", kind="epilog", job=JOB, wait_for=f"{tmp_path}/began", command=command)
    assert report["code"] == 143
    assert report["words"].endswith(f"{UNIT}: canceled: somebody stopped the unit{SEE}")
    assert report["command"] == 0
    assert site.files() == []


@pytest.mark.fact(99)
def test_a_daemon_reexec_in_the_middle_is_survived(site, tmp_path):
    site.script("epilog", f"echo run >>{tmp_path}/runs; sleep 1; exit 9")
    command = ["systemctl", "daemon-reexec"]
    report = site.inside("after_start", kind="epilog", job=JOB, wait_for=f"{tmp_path}/runs", command=command)
    assert report["code"] == 9
    assert (tmp_path / "runs").read_text() == "run\n"
    assert site.files() == []


def test_a_client_that_somebody_kills_is_started_again(site, tmp_path):
    fake = '#!/bin/sh\n[ $1 = start ] && mkdir /run/killed 2>/dev/null && kill -KILL $$\nexec /usr/bin/systemctl "$@"\n'
    path = site.write("/usr/sbin/systemctl", fake, 0o755)
    try:
        site.script("epilog", f"echo run >>{tmp_path}/runs; exit 4")
        assert site.call("epilog").code == 4
    finally:
        path.unlink()
    assert (tmp_path / "runs").read_text() == "run\n"
    assert site.systemd.path("/run/killed").exists()


@pytest.mark.fact(71, 101)
def test_during_the_nodes_shutdown_nothing_starts_and_the_line_says_so(site, tmp_path):
    # A shutdown that hangs: its target waits for a service that takes its time to stop.
    site.systemd.unit("slow.service", "[Service]\nExecStart=/bin/sleep infinity\nExecStop=/bin/sleep 20\n")
    site.systemd.systemctl("start", "slow.service")
    site.systemd.systemctl("start", "--no-block", "--job-mode=replace-irreversibly", "shutdown.target")
    site.script("epilog", f"touch {tmp_path}/ran")
    answer = site.call("epilog")
    assert (answer.code, answer.lines) == (125, [f"{UNIT}: could not start: the node is shutting down{SEE}"])
    assert not (tmp_path / "ran").exists()
    assert site.files() == []


def test_a_run_that_the_nodes_shutdown_ends_is_canceled_and_the_line_says_so(site, tmp_path):
    site.systemd.unit("slow.service", "[Service]\nExecStart=/bin/sleep infinity\nExecStop=/bin/sleep 20\n")
    site.systemd.systemctl("start", "slow.service")
    site.script("epilog", f"touch {tmp_path}/began; exec sleep 60")
    command = ["systemctl", "start", "--no-block", "--job-mode=replace-irreversibly", "shutdown.target"]
    report = site.inside("after_start", kind="epilog", job=JOB, wait_for=f"{tmp_path}/began", command=command)
    assert report["code"] == 143
    assert report["words"].endswith(f"{UNIT}: canceled: the node is shutting down{SEE}")
    assert site.files() == []


@pytest.mark.parametrize(
    ("hidden", "why"),
    [
        ("mount -t tmpfs none /run/systemd", "systemd does not run this node"),
        ("mount --bind /var/empty /usr/bin", "systemctl: No such file or directory"),
    ],
)
def test_without_systemd_nothing_is_waited_for(site, hidden, why):
    site.systemd.path("/var/empty").mkdir(exist_ok=True)
    began = time.monotonic()
    command = f"{hidden} && exec {sys.executable} -I /usr/local/libexec/brokerctl/flux-run-epilog"
    done = site.systemd.run(["unshare", "-m", "/bin/sh", "-c", command], env=site.environment(), check=False)
    assert done.returncode == 125
    assert f"{UNIT}: could not start: {why}{SEE}" in done.stderr
    assert time.monotonic() - began < 30, "it would wait for a systemd that executes itself anew"
    assert site.files() == []


def test_whoever_is_not_root_can_run_nothing(site):
    # Imported before: the interpreter's own files may be root's alone.
    code = "import os; from brokerctl.perilog import failure, helper; os.setuid(65534); os._exit(helper.main('epilog'))"
    done = site.systemd.run([sys.executable, "-I", "-c", code], env=site.environment(), check=False)
    assert done.returncode == 125
    assert "could not start: cannot make /run/flux-perilog: Permission denied" in done.stderr


def test_a_helper_without_standard_streams_has_the_run_all_the_same(site, tmp_path):
    """The lowest free number would be that of the lock, and what the helper says would be written into it."""
    site.script("epilog", f"echo run >>{tmp_path}/runs; sleep 1; exit 3")
    script = """
    /usr/local/libexec/brokerctl/flux-run-epilog <&- >&- 2>&- &
    until [ -e "$1/runs" ]; do sleep 0.01; done
    cat /run/flux-perilog/*.run
    HOME= /usr/local/libexec/brokerctl/flux-run-epilog 2>/dev/null; echo $?
    wait $!; echo $?
    """
    env = site.environment(HOME="\udcff")  # something to say
    done = site.systemd.run(["sh", "-c", script, "sh", str(tmp_path)], env=env)
    assert done.stdout == "3\n3\n"
    assert (tmp_path / "runs").read_text() == "run\n"


ENDLESS = """
import os
from brokerctl.perilog import helper, manager
manager.STOP_PATIENCE_NS = manager.KILL_PATIENCE_NS = 300_000_000
os.environb[b"FLUX_JOB_ID"] = b"f1"
print(helper.main("epilog"))
"""


def test_what_even_sigkill_does_not_end_is_stopped_once_and_left(site, tmp_path):
    """All of it must fit before the 60 s after which Flux gives the helper up."""
    site.settings('[epilog]\ntimeout = "200ms"\n')
    fake = f"""#!/bin/sh
    echo "$1" >>{tmp_path}/asked
    case $1 in
        show) echo ActiveState=deactivating; echo Job= ;;
        start) exec sleep 60 ;;
    esac
    """
    path = site.write("/usr/sbin/systemctl", fake, 0o755)
    try:
        done = site.systemd.run([sys.executable, "-I", "-c", ENDLESS])
    finally:
        path.unlink()
    assert done.stdout == "124\n"
    assert "timed out after 200ms; it may still run, SIGKILL has not ended it" in done.stderr
    assert (tmp_path / "asked").read_text().split().count("kill") == 1


@pytest.mark.fact(97)
def test_the_environment_file_is_gone_also_when_the_helper_was_killed(site, tmp_path):
    site.script("epilog", f"touch {tmp_path}/began; sleep 0.5")
    site.inside("killed_then", kind="epilog", job=JOB, wait_for=f"{tmp_path}/began")
    assert not [name for name in site.files() if name.endswith(".env")]
