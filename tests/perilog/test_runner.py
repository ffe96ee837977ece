"""The main process of the units, run by itself: which scripts, in which order, with which code."""

import os
import sys

import pytest

from tests.perilog.conftest import JOB

PACKAGE, SITE = "/usr/libexec/flux/epilog.d", "/etc/flux/system/epilog.d"
LEGACY = "/etc/flux/system/epilog"


class Ran:
    def __init__(self, done):
        self.code = done.returncode
        self.words = done.stderr.splitlines()
        self.out = done.stdout.split()


def ran(site, kind="epilog", **env):
    argv = [sys.executable, "-I", "-m", "brokerctl.perilog.runner", kind]
    return Ran(site.systemd.run(argv, env=env or {"FLUX_JOB_ID": JOB}, check=False))


def test_package_scripts_come_before_the_sites_each_directory_in_the_order_of_names(site):
    for name in ("20-b", "10-a", "B", "a"):
        site.script("epilog", f"echo site/{name}", name)
    for name in ("90-z", "01-y"):
        site.script("epilog", f"echo package/{name}", name, package=True)
    result = ran(site)
    assert result.code == 0
    assert result.out == ["package/01-y", "package/90-z", "site/10-a", "site/20-b", "site/B", "site/a"]


def test_each_script_has_a_line_with_its_ending_and_duration(site):
    site.script("epilog", "exit 3", "10-a")
    site.script("epilog", "kill -9 $$", "20-b")
    words = ran(site).words
    assert words[0].startswith(f"{SITE}/10-a: exited with 3 after 0.")
    assert words[1].startswith(f"{SITE}/20-b: was killed by SIGKILL after 0.")
    assert all(word.endswith("s") for word in words)


def test_all_run_and_the_largest_code_wins(site):
    for name, code in (("10", 3), ("20", 9), ("30", 0), ("40", 5)):
        site.script("epilog", f"echo {name}; exit {code}", name)
    result = ran(site)
    assert (result.code, result.out) == (9, ["10", "20", "30", "40"])


def test_exit_on_first_error_ends_with_that_code_and_says_how_many_were_left(site):
    site.settings("[epilog]\nexit-on-first-error = true\n")
    for name, code in (("10", 0), ("20", 3), ("30", 9), ("40", 5)):
        site.script("epilog", f"echo {name}; exit {code}", name)
    result = ran(site)
    assert (result.code, result.out) == (3, ["10", "20"])
    assert result.words[-1] == "2 more not run: exit-on-first-error"


def test_a_legacy_script_stands_for_the_sites_directory_and_hides_no_failure_of_the_packages(site):
    site.script("epilog", "exit 4", package=True)
    site.script("epilog", "echo site; exit 9")
    site.write(LEGACY, "#!/bin/sh\necho legacy\nexit 0\n", 0o755)
    result = ran(site)
    assert (result.code, result.out) == (4, ["legacy"])
    assert f"{LEGACY} stands for all of {SITE}" in result.words


@pytest.mark.parametrize(
    ("name", "mode", "uid", "why"),
    [
        ("10", 0o644, 0, "is not executable"),
        ("10", 0o755, 65534, "belongs to uid 65534"),
        ("10", 0o775, 0, "has mode 0775"),
        ("10", 0o757, 0, "has mode 0757"),
    ],
)
def test_what_root_must_not_run_is_said_and_counted(site, name, mode, uid, why):
    site.script("epilog", "echo bad", name, mode=mode)
    os.chown(site.systemd.path(f"{SITE}/{name}"), uid, 0)
    site.script("epilog", "echo good", "20")
    result = ran(site)
    assert (result.code, result.out) == (126, ["good"])
    assert result.words[0].startswith(f"{SITE}/{name}: not run: {why}")


def test_a_directory_that_others_can_write_has_nothing_for_root_to_run(site):
    site.script("epilog", "echo bad")
    site.systemd.path(SITE).chmod(0o777)
    result = ran(site)
    assert (result.code, result.out) == (126, [])
    assert f"is below {SITE}, which has mode 0777" in result.words[0]


def test_a_link_to_where_others_can_write_is_refused_and_one_to_where_they_cannot_is_followed(site):
    site.write("/srv/open/script", "#!/bin/sh\necho bad\n", 0o755)
    site.systemd.path("/srv/open").chmod(0o1777)
    site.write("/srv/closed/script", "#!/bin/sh\necho good\n", 0o755)
    site.systemd.path(f"{SITE}/10").symlink_to("/srv/open/script")
    site.systemd.path(f"{SITE}/20").symlink_to("/srv/closed/script")
    result = ran(site)
    assert (result.code, result.out) == (126, ["good"])
    assert "is below /srv/open, which has mode 1777" in result.words[0]


def test_a_link_on_the_way_that_others_can_change_is_refused_wherever_it_leads(site):
    """Whoever can write /srv/open can have the link there lead to a program of theirs, after it was looked at."""
    site.write("/srv/closed/script", "#!/bin/sh\necho bad\n", 0o755)
    site.write("/srv/open/x", "").unlink()
    site.systemd.path("/srv/open/to-file").symlink_to("/srv/closed/script")
    site.systemd.path("/srv/open/to-folder").symlink_to("../closed")
    site.systemd.path("/srv/open").chmod(0o1777)
    site.systemd.path(f"{SITE}/10").symlink_to("/srv/open/to-file")
    site.systemd.path(f"{SITE}/20").symlink_to("/srv/open/to-folder/script")
    result = ran(site)
    assert (result.code, result.out) == (126, [])
    assert all("is below /srv/open, which has mode 1777" in word for word in result.words)


def test_a_dangling_link_a_fifo_and_a_directory_are_said_and_counted(site):
    site.systemd.path(f"{SITE}/10").symlink_to("/nowhere")
    os.mkfifo(site.systemd.path(f"{SITE}/20"), 0o755)
    site.systemd.path(f"{SITE}/30").mkdir()
    result = ran(site)
    assert result.code == 126
    assert [word.partition(": ")[2] for word in result.words] == [
        "not run: cannot be looked at: No such file or directory",
        "not run: is no regular file",
        "not run: is no regular file",
    ]


def test_a_script_without_its_interpreter_is_not_found(site):
    site.write(f"{SITE}/10", "#!/nowhere/sh\n", 0o755)
    result = ran(site)
    assert result.code == 127
    assert result.words == [f"{SITE}/10: cannot be started: No such file or directory (127)"]


def test_what_editors_and_package_managers_leave_is_no_script(site):
    for name in (".hidden", "10~", "10.rpmsave", "10.dpkg-old"):
        site.script("epilog", "echo bad", name)
    assert ran(site).out == []


def test_without_scripts_there_is_nothing_to_fail(site):
    result = ran(site)
    assert (result.code, result.words) == (0, [f"no scripts in {PACKAGE} or {SITE}"])


def test_without_a_job_nothing_is_run(site):
    site.script("epilog", "echo bad")
    result = ran(site, PATH="/usr/bin:/bin")
    assert (result.code, result.out) == (125, [])
    assert result.words == ["nothing is run: the unit's environment has no FLUX_JOB_ID"]


@pytest.mark.parametrize("argv", [[], ["epilogue"], ["epilog", "x"]])
def test_a_wrong_call_is_one_line_and_2(site, argv):
    done = site.systemd.run([sys.executable, "-I", "-m", "brokerctl.perilog.runner", *argv], check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: ")


def test_check_shows_what_would_be_run_and_exits_1_for_what_would_be_refused(site):
    site.script("epilog", "exit 0", "10")
    site.script("epilog", "exit 0", "20", mode=0o644)
    site.settings('[prolog]\nenvironment = ["SITE"]\nexit-on-first-error = true\n')
    done = site.systemd.run([sys.executable, "-m", "brokerctl", "perilog", "--check"], check=False)
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "prolog: limit 25m",
        "  hands over SITE",
        "  up to the first that fails",
        "epilog: limit none",
        f"  runs {SITE}/10",
        f"  refuses {SITE}/20: is not executable",
        "housekeeping: limit none",
        "  on failure flux resource drain --update '{host}' '{unit}: {how}'",
    ]


def test_check_does_not_command_the_terminal(site):
    site.script("epilog", "exit 0", "10\x1b[2J\nx")
    done = site.systemd.run([sys.executable, "-m", "brokerctl", "perilog", "--check", "epilog"], check=False)
    assert "\x1b" not in done.stdout
    assert len(done.stdout.splitlines()) == 2


def test_a_unit_that_is_stopped_runs_no_further_script(site, tmp_path):
    site.script("epilog", f"touch {tmp_path}/first; exec sleep 60", "10")
    site.script("epilog", f"touch {tmp_path}/second", "20")
    command = ["systemctl", "stop", f"flux-epilog@{JOB}.service"]
    report = site.inside("after_start", kind="epilog", job=JOB, wait_for=f"{tmp_path}/first", command=command)
    assert report["code"] == 143
    assert not (tmp_path / "second").exists()
    assert "stopped: what is left is not run" in site.systemd.journal(f"flux-epilog@{JOB}.service")


PENDING = """
import os, signal, sys, time
from brokerctl.perilog import processes, runner
from brokerctl.perilog.settings import Settings
processes.hold_signals()
start = processes.start
def told_then_started(argv, env):
    os.kill(os.getpid(), signal.SIGTERM)
    return start(argv, env)
if sys.argv[1] == "before":
    os.kill(os.getpid(), signal.SIGTERM)
    processes.start = None
else:
    processes.start = told_then_started
try:
    runner.run(Settings("epilog"))
except processes.Told as told:
    print("told", told.signum)
"""


@pytest.mark.parametrize("when", ["before", "between"])
def test_a_runner_that_was_told_when_there_was_no_script_yet_waits_for_none(site, when):
    """Else the script would run on until it is killed: systemd tells whoever is there, once."""
    site.script("epilog", "exec sleep 60")
    done = site.systemd.run([sys.executable, "-I", "-c", PENDING, when], env={"FLUX_JOB_ID": JOB}, limit_s=30)
    assert done.stdout == "told 15\n"
