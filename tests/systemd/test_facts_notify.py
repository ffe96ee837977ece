"""Messages to the service manager: whose count, and which are lost (SYSTEMD.md 49–54)."""

import os
import re
import signal
import sys

import pytest

from tests.kernel.conftest import wait_for

PYTHON = f"{sys.executable} -I"
# A number that is none is told in the journal of the unit that said so: this is how a message shows that it came.
MARK = "EXTEND_TIMEOUT_USEC="
HEARD = re.compile(r"EXTEND_TIMEOUT_USEC=(\w+)")
SAY = """\
import array, os, socket, sys
def say(text, *fds):
    to = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    to.connect("/run/systemd/notify")
    more = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    to.sendmsg([text.encode()], more)
"""


class Unit:
    """A unit whose main process is a Python program; what systemd heard of it."""

    def __init__(self, manager, place):
        self.manager, self.place = manager, place

    def program(self, text, name="program.py"):
        path = self.place / name
        path.write_text(SAY + text)
        return f"{PYTHON} {path} {self.place}"

    def start(self, *lines, main="/bin/sleep 1000", access="all"):
        service = [f"ExecStart={main}", "Type=exec", f"NotifyAccess={access}", "TimeoutStopSec=20", *lines]
        self.manager.unit("n.service", "\n".join(["[Service]", *service, ""]))
        self.manager.systemctl("start", "n.service")

    def stop(self):
        self.manager.systemctl("stop", "n.service")

    def heard(self):
        return [found[1] for line in self.manager.journal("n.service") if (found := HEARD.search(line))]

    def refused(self):
        return [line for line in self.manager.journal("n.service") if "reception only permitted" in line]


@pytest.fixture
def unit(private_systemd, tmp_path):
    return Unit(private_systemd, tmp_path)


@pytest.mark.fact(49)
def test_a_barrier_ends_when_what_was_said_before_has_been_taken_in(unit):
    text = """
for number in range(20):
    reader, writer = os.pipe()
    say(f"STATUS=number {number}")
    say("BARRIER=1", writer)
    os.close(writer)
    os.read(reader, 1)
    shown = os.popen("systemctl show -P StatusText n.service").read()
    assert shown == f"number {number}\\n", (number, shown)
    os.close(reader)
"""
    unit.start(f"ExecStop={unit.program(text)}")
    unit.stop()
    assert unit.manager.show("n.service", "Result")["Result"] == "success"


@pytest.mark.fact(50)
def test_the_last_words_of_a_process_that_ends_at_once_are_heard_where_systemd_reaps_it(unit):
    lines = [f"ExecStop={unit.program(f'say({MARK + name!r})', name)}" for name in ("one", "two", "three", "four")]
    unit.start(*lines)
    unit.stop()
    assert unit.heard() == ["one", "two", "three", "four"]


@pytest.mark.fact(50)
def test_those_of_a_child_that_its_parent_reaps_at_once_are_lost_and_those_of_an_orphan_are_not(unit):
    """While systemd is held: so it is certain who has gone when it reads."""
    text = f"""
import time
while not os.path.exists(sys.argv[1] + "/go"):
    time.sleep(0.01)
child = os.fork()
if not child:
    say("{MARK}reaped")
    os._exit(0)
os.waitpid(child, 0)
child = os.fork()
if not child:
    if not os.fork():
        while os.getppid() != 1:
            time.sleep(0.001)
        say("{MARK}orphan")
    os._exit(0)
os.waitpid(child, 0)
time.sleep(0.2)
open(sys.argv[1] + "/said", "w")
time.sleep(1000)
"""
    unit.start(main=unit.program(text))
    os.kill(unit.manager.pid, signal.SIGSTOP)
    try:
        (unit.place / "go").touch()
        wait_for((unit.place / "said").exists, "end of what is said")
    finally:
        os.kill(unit.manager.pid, signal.SIGCONT)
    wait_for(unit.heard, "anything that is heard")
    unit.stop()
    assert unit.heard() == ["orphan"]


@pytest.mark.fact(51)
def test_systemd_notify_speaks_for_its_parent_if_it_is_root(unit):
    said = "/bin/sh -c 'systemd-notify EXTEND_TIMEOUT_USEC={}; true'"
    unit.start(f"ExecStop=+{said.format('root')}", f"ExecStop={said.format('nobody')}", "User=65534", access="exec")
    unit.stop()
    assert unit.heard() == ["root"]
    assert len(unit.refused()) == 1


@pytest.mark.fact(52)
def test_root_may_speak_for_main_where_only_main_is_heard_and_others_may_not(unit):
    notify = "/usr/bin/env NOTIFY_SOCKET=/run/systemd/notify systemd-notify --pid=${{MAINPID}} EXTEND_TIMEOUT_USEC={}"
    unit.start(
        f"ExecStop=-{notify.format('nobody')}", f"ExecStop=+{notify.format('root')}", "User=65534", access="main"
    )
    unit.stop()
    assert unit.heard() == ["root"]
    assert len(unit.refused()) == 1


@pytest.mark.fact(53)
def test_a_sender_outside_of_the_unit_is_not_heard(unit):
    unit.start()
    pid = unit.manager.show("n.service", "MainPID")["MainPID"]
    say = ["env", "NOTIFY_SOCKET=/run/systemd/notify", "systemd-notify", "EXTEND_TIMEOUT_USEC=outside"]
    unit.manager.run(say)
    unit.manager.run([*say[:-1], f"--pid={pid}", "EXTEND_TIMEOUT_USEC=as_main"])
    wait_for(unit.heard, "anything that is heard")
    unit.stop()
    assert unit.heard() == ["as_main"]


@pytest.mark.fact(54)
def test_a_main_that_is_no_child_of_systemds_is_killed_right_after_its_sigterm(unit):
    text = """
import signal, time
child = os.fork()
if not child:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    say(f"MAINPID={os.getpid()}")
while True:
    time.sleep(1)
"""
    unit.start("KillMode=mixed", "TimeoutStopSec=30", main=unit.program(text))
    before = unit.manager.show("n.service", "ExecMainPID")["ExecMainPID"]
    wait_for(lambda: unit.manager.show("n.service", "MainPID")["MainPID"] != before, "the other main process")
    began = unit.manager.run(["cat", "/proc/uptime"]).stdout
    unit.stop()
    ended = unit.manager.run(["cat", "/proc/uptime"]).stdout
    assert float(ended.split()[0]) - float(began.split()[0]) < 20
    assert any("which is not our child" in line for line in unit.manager.journal("n.service"))
