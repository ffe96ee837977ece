import signal

import pytest

from brokerctl.perilog import endings


@pytest.mark.parametrize("code", range(1, 256))
def test_an_exit_code_is_the_scripts_own(code):
    ending = endings.of_unit("exit-code", "exited", str(code))
    assert (ending.code, ending.how) == (code, f"exited with {code}")


@pytest.mark.parametrize("signum", [signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGTERM, signal.SIGUSR1])
def test_a_death_by_signal_is_128_and_its_number(signum):
    ending = endings.of_unit("signal", "killed", signum.name.removeprefix("SIG"))
    assert (ending.code, ending.how) == (128 + signum, f"was killed by {signum.name}")


@pytest.mark.parametrize(
    ("words", "code", "how"),
    [
        (("success", "exited", "0"), 0, "succeeded"),
        (("success", "exited", "3"), 0, "succeeded"),  # SuccessExitStatus=3: the site says so
        (("core-dump", "dumped", "SEGV"), 139, "was killed by SIGSEGV, core dumped"),
        (("signal", "killed", "RTMIN+2"), 128 + signal.SIGRTMIN + 2, "was killed by SIGRTMIN+2"),
        (("oom-kill", "killed", "KILL"), 137, "was killed by SIGKILL: out of memory"),
        (("timeout", "killed", "TERM"), 124, "timed out: a limit of the unit itself"),
        (("timeout",), 124, "timed out: a limit of the unit itself"),
        (("exec-condition",), 125, "was not started: an ExecCondition said no"),
        (("resources",), 125, "could not start: resources"),
        (("exit-code",), 125, "could not start: exit-code"),  # an ExecStartPre
        (("exit-code", "exited", "0"), 1, "failed (exit-code), though its main process exited with 0"),
        (("signal", "killed", "NONSENSE"), 128, "was killed by SIGNONSENSE"),
    ],
)
def test_the_other_endings(words, code, how):
    ending = endings.of_unit(*words)
    assert ending.code == code
    assert ending.how.startswith(how)


def test_a_script_that_exits_with_our_codes_is_told_apart():
    ours = [endings.of_unit("timeout"), endings.of_unit("resources"), endings.of_unit("exec-condition")]
    scripts = [endings.of_unit("exit-code", "exited", str(code)) for code in (124, 125, 143)]
    assert not {ending.how for ending in ours} & {ending.how for ending in scripts}
