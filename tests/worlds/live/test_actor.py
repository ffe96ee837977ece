"""Actors: real processes that do what the machine of `model.puppet` says."""

import os
import select
import signal
import subprocess
import time

import msgspec
import pytest

from brokerctl.durations import S
from brokerctl.kernel import proc
from brokerctl.model.puppet import Part, Reaction
from brokerctl.worlds.live.ways import ACTOR

FOREVER = None
IGNORES_HUP = {signal.SIGHUP: Reaction(ignore=True)}


class Actor:
    """An actor in a session of its own; signals are blocked from before its start, as the broker does it."""

    def __init__(self, *parts, counter=()):
        self.started = time.monotonic()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self.process = subprocess.Popen(
                [*ACTOR, msgspec.json.encode({-1: parts}).decode(), *counter],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def ready(self):
        """Wait until it has said its first word."""
        assert self.process.stdout.readline() == b"ready\n"
        return self

    def signal(self, signum):
        os.killpg(self.process.pid, signum)
        return self

    def end(self):
        """Its code and all of its output: both, the process's end and the end of its output, are waited for."""
        output = self.process.stdout.read()
        self.process.stdout.close()
        return self.process.wait(10), output.decode()

    def is_held(self):
        """Somebody still holds its output, who has written nothing."""
        return not select.select([self.process.stdout], [], [], 0)[0]

    @property
    def age(self):
        return time.monotonic() - self.started


READY = (("out", "ready"),)


def test_it_prints_runs_and_exits_as_declared():
    actor = Actor(Part(runs_ns=S // 2, status=7 << 8, prints=(("out", "ƒ"), ("err", "b"))))
    assert actor.end() == (7, "ƒ\nb\n")
    assert actor.age >= 0.5


@pytest.mark.parametrize("signum", [signal.SIGHUP, signal.SIGTERM, signal.SIGKILL, signal.SIGQUIT, signal.SIGSEGV])
def test_its_declared_end_may_be_a_signal_without_a_core_dump(signum):
    actor = Actor(Part(status=signum))
    pid, status = os.waitpid(actor.process.pid, 0)
    actor.process.returncode = 0  # reaped by hand: Popen shows no core bit
    actor.process.stdout.close()
    assert (pid, status) == (actor.process.pid, signum)


@pytest.mark.parametrize("signum", [signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGUSR1])
def test_by_default_it_dies_of_a_signal(signum):
    assert Actor(Part(runs_ns=FOREVER, prints=READY)).ready().signal(signum).end() == (-signum, "")


def test_a_signal_before_it_is_ready_is_neither_lost_nor_deadly():
    after = Reaction(code=4)
    assert Actor(Part(runs_ns=FOREVER, on={signal.SIGTERM: after})).signal(signal.SIGTERM).end() == (4, "")
    assert Actor(Part(runs_ns=S // 2, on=IGNORES_HUP)).signal(signal.SIGHUP).end() == (0, "")


def test_it_ignores_or_exits_after_a_while_as_declared():
    part = Part(runs_ns=FOREVER, on={**IGNORES_HUP, signal.SIGTERM: Reaction(after_ns=S // 2, code=3)}, prints=READY)
    actor = Actor(part).ready().signal(signal.SIGHUP).signal(signal.SIGTERM)
    asked = time.monotonic()
    assert actor.end() == (3, "")
    assert time.monotonic() - asked >= 0.4


def test_its_time_runs_from_its_start_however_late_it_is_ready():
    actor = Actor(Part(runs_ns=S, leaves=1, leaves_ns=2 * S)).signal(signal.SIGSTOP)
    time.sleep(0.9)
    other = Actor(Part(runs_ns=2 * S))  # as long as the leaf, from the moment at which that can be born at last
    actor.signal(signal.SIGCONT)
    assert actor.process.wait(10) == 0
    assert actor.age >= 1
    assert actor.end() == (0, "")
    assert actor.age >= 2
    assert other.process.poll() is None
    assert other.end() == (0, "")


def test_leaves_hold_its_output_for_their_time():
    actor = Actor(Part(leaves=2, leaves_ns=3 * S // 2))
    assert actor.process.wait(10) == 0
    assert actor.is_held()
    assert actor.end() == (0, "")
    assert actor.age >= 1.5


def test_a_signal_to_the_group_reaches_leaves_unless_they_are_detached():
    part = Part(runs_ns=FOREVER, on=IGNORES_HUP, leaves=1, prints=READY)
    actor = Actor(part).ready()
    assert len(_mates(actor)) == 2
    actor.signal(signal.SIGHUP)
    _until(lambda: len(_mates(actor)) == 1)
    actor.signal(signal.SIGKILL)
    assert actor.end() == (-9, "")

    actor = Actor(msgspec.structs.replace(part, detached=True, leaves_ns=3 * S // 2)).ready().signal(signal.SIGKILL)
    assert actor.process.wait(10) == -9
    assert actor.is_held()
    assert actor.end() == (-9, "")
    assert actor.age >= 1.5


def test_leaves_get_what_the_group_got_before_they_were_born():
    actor = Actor(Part(runs_ns=S // 2, on=IGNORES_HUP, leaves=1)).signal(signal.SIGHUP)
    assert actor.end() == (0, "")  # its output ended, so the leaf is gone, which would live for ever


def test_each_process_of_a_puppet_takes_its_own_part(tmp_path):
    parts = [Part(status=code << 8) for code in (1, 2, 3)]
    counter = [str(tmp_path / "puppet")]
    assert [Actor(*parts, counter=counter).end()[0] for _ in range(4)] == [1, 2, 3, 3]


def _mates(actor):
    """The living members of its process group."""
    found = ((pid, proc.stat(pid)) for pid in proc.pids())
    return [pid for pid, stat in found if stat and stat.pgrp == actor.process.pid and stat.state not in "ZX"]


def _until(condition):
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)
