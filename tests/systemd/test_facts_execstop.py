"""What a process of ExecStop= finds: main's remains, its own place, user, directories, output (SYSTEMD.md 19–25)."""

import json
import os
import signal
import stat
import sys

import pytest

from tests.kernel.conftest import wait_for

PYTHON = f"{sys.executable} -I"
# What a process is, as JSON, into the file that is its first argument.
TELL = """\
import json, os, stat, sys
told = {
    "argv": sys.argv[2:], "env": dict(os.environ), "cwd": os.getcwd(), "stdin": os.readlink("/proc/self/fd/0"),
    "leads": os.getsid(0) == os.getpid(), "parent": os.getppid(), "stdout": os.fstat(1).st_mode,
    "cgroup": open("/proc/self/cgroup").read().splitlines()[-1].partition("::")[2],
}
json.dump(told, open(sys.argv[1], "w"))
"""
# Whether a process that is a zombie, as its reaper does nothing, still takes signals, and its pidfd knows better.
ZOMBIE = """\
import os, select, signal, sys
pid = int(sys.argv[1])
pidfd = os.pidfd_open(pid)
poll = select.poll()
poll.register(pidfd, select.POLLIN)
assert not poll.poll(0)
signal.pidfd_send_signal(pidfd, signal.SIGKILL)
assert poll.poll(20_000)
os.kill(pid, 0)
print(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0])
"""


class Unit:
    """A unit of one test: `lines` of its [Service] section; what its TELL processes tell is in `told`."""

    def __init__(self, manager, place):
        self.manager, self.place = manager, place
        (place / "tell.py").write_text(TELL)

    def tell(self, name, *words):
        """The words of a command that tells what it is."""
        return " ".join((PYTHON, str(self.place / "tell.py"), str(self.place / name), *words))

    def told(self, name):
        return json.loads((self.place / name).read_text())

    def start(self, *lines, main="/bin/sleep 1000"):
        text = "\n".join(("[Service]", f"ExecStart={main}", "Type=exec", "TimeoutStopSec=20", *lines, ""))
        self.manager.unit("x.service", text)
        self.manager.systemctl("daemon-reload")
        self.manager.systemctl("start", "x.service")

    def stop(self, **env):
        self.manager.run(["systemctl", "stop", "x.service"], env={"PATH": "/usr/bin:/bin", **env})


@pytest.fixture
def unit(private_systemd, tmp_path):
    return Unit(private_systemd, tmp_path)


@pytest.mark.fact(19)
def test_a_main_that_has_died_takes_signals_till_it_is_reaped_but_its_pidfd_tells(unit):
    unit.start()
    pid = unit.manager.show("x.service", "MainPID")["MainPID"]
    os.kill(unit.manager.pid, signal.SIGSTOP)
    try:
        assert unit.manager.run([sys.executable, "-I", "-c", ZOMBIE, pid]).stdout == "Z\n"
    finally:
        os.kill(unit.manager.pid, signal.SIGCONT)
    wait_for(lambda: unit.manager.show("x.service", "Result")["Result"] == "signal", "the end of the unit")


@pytest.mark.fact(20)
def test_without_a_main_the_bare_word_vanishes_and_the_braced_one_is_an_empty_argument(unit):
    bare, braced = unit.tell("bare", "a", "$MAINPID", "b"), unit.tell("braced", "a", "${MAINPID}", "b")
    unit.start(f"ExecStop={bare}", f"ExecStop={braced}", main="/bin/sleep 0.1")
    wait_for(lambda: unit.manager.show("x.service", "ActiveState")["ActiveState"] == "inactive", "the end of the unit")
    assert (unit.told("bare")["argv"], unit.told("braced")["argv"]) == (["a", "b"], ["a", "", "b"])


@pytest.mark.fact(21, 22)
@pytest.mark.parametrize(("delegate", "cgroup"), [("no", "/x.service"), ("yes", "/x.service/.control")])
def test_execstop_has_a_session_of_its_own_nothing_of_the_client_and_a_cgroup_of_the_unit(unit, delegate, cgroup):
    unit.start(f"ExecStop={unit.tell('stop')}", f"Delegate={delegate}")
    unit.stop(CLIENTS_OWN="1")
    told = unit.told("stop")
    assert (told["stdin"], told["cwd"], told["leads"], told["parent"]) == ("/dev/null", "/", True, 1)
    assert stat.S_ISSOCK(told["stdout"])
    assert "CLIENTS_OWN" not in told["env"]
    assert told["cgroup"].endswith(cgroup)


def ids(words):
    """A command that prints who runs it."""
    return f"/bin/sh -c 'echo {words} $$(id -u)'"


@pytest.mark.fact(23)
def test_execstop_is_the_units_user_unless_its_line_or_the_unit_says_otherwise(unit):
    main = "/bin/sh -c 'echo main $$(id -u); exec sleep 1000'"
    hooks = [f"{name}={prefix}{ids(prefix + name)}" for name in ("ExecStop", "ExecStopPost") for prefix in ("", "+")]
    start_pre = f"ExecStartPre={ids('ExecStartPre')}"
    for nth, more in enumerate(([], ["PermissionsStartOnly=true"]), 1):
        unit.start("User=65534", start_pre, *hooks, *more, main=main)
        wait_for(lambda nth=nth: unit.manager.journal("x.service").count("main 65534") == nth, "main")
        unit.stop()
    said = [line for line in unit.manager.journal("x.service") if line.endswith((" 0", " 65534"))]
    as_user, as_root = said[: len(said) // 2], said[len(said) // 2 :]
    assert as_user == [
        "ExecStartPre 65534", "main 65534", "ExecStop 65534", "+ExecStop 0", "ExecStopPost 65534", "+ExecStopPost 0",
    ]  # fmt: skip
    assert as_root == [
        "ExecStartPre 0", "main 65534", "ExecStop 0", "+ExecStop 0", "ExecStopPost 0", "+ExecStopPost 0",
    ]  # fmt: skip


@pytest.mark.fact(24)
def test_the_runtime_directory_is_there_till_the_last_hook_and_goes_the_state_directory_stays(unit):
    seen = "/bin/sh -c 'echo {}: $$(ls -d /run/kept /var/lib/kept)'"
    unit.start(
        "RuntimeDirectory=kept", "StateDirectory=kept", f"ExecStop={seen.format('stop')}",
        f"ExecStopPost={seen.format('post')}",
    )  # fmt: skip
    unit.stop()
    said = unit.manager.journal("x.service")
    assert {"stop: /run/kept /var/lib/kept", "post: /run/kept /var/lib/kept"} <= set(said)
    left = unit.manager.run(["sh", "-c", "ls -d /run/kept /var/lib/kept; rm -r /var/lib/kept"]).stdout
    assert left == "/var/lib/kept\n"


@pytest.mark.fact(24)
def test_a_restart_begins_with_an_empty_runtime_directory(unit):
    script = unit.place / "main.sh"
    script.write_text("echo found: $(ls /run/kept); touch /run/kept/file; test -e $1 && exec sleep 1000; touch $1\n")
    unit.start(
        "RuntimeDirectory=kept", "Restart=always", "RestartSec=50ms", main=f"/bin/sh {script} {unit.place}/second",
    )  # fmt: skip
    wait_for(lambda: unit.manager.show("x.service", "NRestarts")["NRestarts"] == "1", "restart")
    wait_for(lambda: unit.manager.journal("x.service").count("found:") == 2, "second empty directory")
    unit.stop()


@pytest.mark.fact(25)
def test_all_of_the_output_arrives_long_lines_in_pieces_and_with_the_priority_they_name(unit):
    script = unit.place / "prints.sh"
    script.write_text("printf '<3>an error\\n'; head -c 100000 /dev/zero | tr '\\0' x; printf '\\nthe last, unended'\n")
    unit.start(f"ExecStop=/bin/sh {script}")
    unit.stop()
    entries = unit.manager.entries("x.service")
    assert [entry["PRIORITY"] for entry in entries if entry["MESSAGE"] == "an error"] == ["3"]
    pieces = [len(entry["MESSAGE"]) for entry in entries if set(entry["MESSAGE"]) == {"x"}]
    assert sum(pieces) == 100_000
    assert max(pieces) <= 48 * 1024
    assert [entry["PRIORITY"] for entry in entries if entry["MESSAGE"] == "the last, unended"] == ["6"]
