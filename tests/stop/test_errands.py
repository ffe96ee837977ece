import os
import signal
import time

import pytest

from brokerctl.durations import MS, S
from brokerctl.errors import ControlError
from brokerctl.kernel.proc import User
from brokerctl.stop import errands
from brokerctl.stop.errands import OUTPUT_MAX, Command, Runner, Said, attempt, carry_out

LONG_NS = 20 * S
WIDE_S = 10  # far above all that should happen at once, far below what must not be waited for


def ask(*commands):
    return (yield list(commands))


def sh(text, **options):
    return Command(["sh", "-c", text], **options)


def said(*commands):
    return carry_out(ask(*commands), LONG_NS)


def descriptors():
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208


def test_what_a_command_prints_is_its_answer_and_why_it_failed_its_last_line():
    assert said(sh("echo a; echo b")) == [Said("a\nb\n")]
    assert said(sh("echo a; echo 'flux: no such job' >&2; exit 1")) == [
        Said("a\n", "sh -c echo a; echo 'flux: no such job' >&2; exit 1: flux: no such job")
    ]
    assert said(sh("exit 3"))[0].why.endswith("exited with 3")
    assert said(sh("kill -9 $$"))[0].why.endswith("exited with -9")
    assert said(Command(["no-such-command"])) == [Said("", "no-such-command: No such file or directory")]


def test_why_a_command_failed_is_one_short_line_that_can_be_logged():
    (one,) = said(sh("printf 'a\\n\\033[2Jb%0999d' 1 >&2; exit 1"))
    assert one.why.isprintable()
    assert ": ?[2Jb000" in one.why
    assert len(one.why) < 400


def test_commands_are_answered_together_and_each_at_its_place():
    barrier = "i=0; touch %s; while [ ! -e %s ]; do sleep 0.01; i=$((i+1)); [ $i -lt 500 ] || exit 1; done; echo %s"
    here, there = (f"{os.environ['TMPDIR']}/{name}" for name in "ab")
    try:
        assert [one.text for one in said(sh(barrier % (here, there, 1)), sh(barrier % (there, here, 2)))] == [
            "1\n",
            "2\n",
        ]
    finally:
        os.unlink(here)  # noqa: PTH108
        os.unlink(there)  # noqa: PTH108


def test_a_command_that_hangs_is_ended_with_its_children_and_what_it_said_is_kept():
    before, began = descriptors(), time.monotonic()
    (one,) = said(sh("echo partial; sleep 1000 & wait", within_ns=300 * MS))
    assert one.text == "partial\n"
    assert "no answer within" in one.why
    assert time.monotonic() - began < WIDE_S
    assert descriptors() == before


def test_one_that_ignores_every_signal_is_ended_as_well():
    (one,) = said(sh("trap '' HUP INT TERM; while :; do sleep 1; done", within_ns=200 * MS))
    assert "no answer within" in one.why


def test_who_holds_the_output_of_a_command_that_has_ended_is_not_waited_for():
    began = time.monotonic()
    (one,) = said(sh("sleep 1000 & echo $!"))
    os.kill(int(one.text), signal.SIGKILL)
    assert not one.why
    assert time.monotonic() - began < WIDE_S


def test_the_time_of_the_errand_bounds_each_of_its_commands():
    began = time.monotonic()
    assert attempt(ask(sh("sleep 1000", within_ns=500 * S)), 200 * MS)[0][0].why
    assert time.monotonic() - began < WIDE_S


def test_more_output_than_can_be_of_use_is_cut_and_the_command_still_ends():
    (one,) = said(sh(f"head -c {OUTPUT_MAX + 5_000_000} /dev/zero"))
    assert len(one.text) == OUTPUT_MAX
    assert not one.why


def test_a_command_gets_nothing_of_our_environment_and_no_descriptor(monkeypatch):
    monkeypatch.setenv("PATH", "/no/such/folder")
    monkeypatch.setenv("FLUX_URI", "local:///elsewhere")
    text = said(sh("env; ls /proc/self/fd; pwd"))[0].text
    assert "FLUX_URI" not in text
    assert "PATH=/usr/sbin:/usr/bin:/sbin:/bin\n" in text
    assert text.endswith("/\n")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_command_runs_as_whom_it_is_meant_to():
    assert said(Command(["id", "-u"], user=User(65534, 65534)))[0].text == "65534\n"
    assert said(Command(["id", "-G"], user=User(65534, 65533, (65533, 12))))[0].text == "65533 12\n"


def test_an_errand_goes_on_with_what_it_has_learned():
    def errand():
        first = (yield [sh("echo 1")])[0].text
        second = yield [sh(f"echo {first.strip()}2"), sh("echo 3")]
        yield []
        return [one.text for one in second]

    assert carry_out(errand(), LONG_NS) == ["12\n", "3\n"]


def test_what_goes_wrong_in_one_errand_is_told_and_costs_the_others_nothing():
    def broken():
        yield [sh("true")]
        return 1 / 0

    def refused():
        yield []
        raise ControlError("the broker refused")

    answers = {}
    runner = Runner()
    runner.start(broken(), LONG_NS, lambda value, why: answers.update(broken=(value, why)))
    runner.start(refused(), LONG_NS, lambda value, why: answers.update(refused=(value, why)))
    runner.start(ask(sh("echo fine")), LONG_NS, lambda value, why: answers.update(fine=(value, why)))
    while len(answers) < 3:
        runner.turn()
    assert answers["broken"] == (None, "ZeroDivisionError: division by zero")
    assert answers["refused"] == (None, "the broker refused")
    assert answers["fine"] == ([Said("fine\n")], "")


def test_closing_ends_what_is_under_way_and_tells_nobody():
    before = descriptors()
    runner = Runner()
    runner.start(ask(sh("sleep 1000"), sh("sleep 1001")), LONG_NS, lambda *_: pytest.fail("told"))
    runner.close()
    assert not runner.busy
    assert descriptors() == before


def test_who_is_left_behind_by_a_command_and_writes_faster_than_it_is_read_is_not_read_for_ever(monkeypatch):
    looks, more = [], errands._Process._more
    monkeypatch.setattr(errands._Process, "_more", lambda _self, fd: looks.append(fd) or more(fd))
    monkeypatch.setattr(errands, "_CHUNK", 16)
    monkeypatch.setattr(errands, "OUTPUT_MAX", 1 << 16)
    (one,) = said(sh("yes & sleep 0.2"))
    assert (len(one.text) <= 1 << 16, one.why) == (True, "")
    assert len(looks) <= (1 << 16) / 16
