import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from brokerctl.cli import check as verb
from brokerctl.durations import HOUR
from brokerctl.errors import ControlError, UsageError
from brokerctl.kernel.proc import User
from brokerctl.logs import eventlog
from brokerctl.stop import check, disable
from brokerctl.stop.broker import FluxCommand
from brokerctl.stop.errands import Said
from tests.stop.recordings import drive, text

COMMAND = FluxCommand("/usr/bin/flux", None, verb.URI)
STUCK = text("eventlog-open-epilog")  # an epilog that has not ended
JOB = {"id": 24998051840, "userid": 0, "state": 32, "nnodes": 1, "ranks": "3", "name": "sleep", "t_run": 1795986529.4}
EPILOG_AT_S = 1795986531.7629271


def events(*names):
    """An eventlog; `epilog-start:x` has the description x."""
    lines = []
    for at, word in enumerate(names):
        name, _, description = word.partition(":")
        lines.append(json.dumps({"timestamp": 1.0 + at, "name": name, "context": {"description": description}}) + "\n")
    return eventlog.parse("".join(lines))


@pytest.mark.parametrize(
    ("names", "left"),
    [
        (["epilog-start:a"], ["a"]),
        (["epilog-start:a", "epilog-finish:a"], []),
        (["epilog-start:a", "epilog-start:b", "epilog-finish:a"], ["b"]),
        (["epilog-start:a", "epilog-start:a", "epilog-finish:a"], ["a"]),
        (["prolog-start:a", "epilog-start:a", "epilog-finish:a"], ["a"]),
        (["epilog-finish:a", "epilog-start:a"], ["a"]),
        (["epilog-start:a", "free", "clean"], []),
        ([], []),
    ],
)
def test_what_began_without_an_end_is_found_by_its_description(names, left):
    assert [one.description for one in check.open_actions(events(*names))] == left


def answers(**more):
    """Answers of a Flux with one job, whose epilog has no end."""
    told = {
        "lsattr": text("lsattr"), "job list": json.dumps(JOB) + "\n", "module": text("stats-job-manager"),
        "job eventlog": STUCK, "systemctl list-units": "", "getent": "alice:x:0:0::/:/bin/sh\n", **more,
    }  # fmt: skip

    def answer(argv):
        words = " ".join(argv[1:] if argv[0].endswith("flux") else argv)
        return next((said for head, said in told.items() if words.startswith(head)), "")

    return answer


def found(limit_ns=None, started_s=None, **more):
    if started_s is not None:
        lines = [line for line in text("lsattr").splitlines() if not line.startswith("broker.starttime")]
        more["lsattr"] = "\n".join([*lines, f"broker.starttime {started_s}"])
    return drive(check.running(check.Asked(COMMAND, limit_ns)), answers(**more))[0]


def test_an_epilog_of_an_earlier_life_is_found_with_its_repair():
    (one,) = found(started_s=EPILOG_AT_S + 60)
    assert one.text.startswith("ƒf5zYto (alice, ranks 3): epilog 'job-manager.epilog' began ")
    assert one.text.endswith(
        " ago and has no end, and Flux was restarted since: it waits for ever, and holds its nodes"
    )
    assert one.typed() == (
        "flux post-job-event 'ƒf5zYto' epilog-finish description=job-manager.epilog status=0"
    )  # fmt: skip


def test_one_of_this_life_is_none():
    assert found(started_s=EPILOG_AT_S - 60) == []


def test_a_job_must_not_start_after_half_a_prolog():
    one = check.Open("prolog", "job-manager.prolog", 0.0)
    finding = check.Finding("", check.repair("ƒ2", one))
    assert finding.typed("sudo -u flux ") == (
        "sudo -u flux flux cancel 'ƒ2' && "
        "sudo -u flux flux post-job-event 'ƒ2' prolog-finish description=job-manager.prolog status=0"
    )


def test_what_a_job_says_can_not_become_a_command():
    one = check.Open("epilog", "x; rm -rf /", 0.0)
    assert "'description=x; rm -rf /'" in check.Finding("", check.repair("ƒ2;id", one)).typed()
    assert "post-job-event 'ƒ2;id' " in check.Finding("", check.repair("ƒ2;id", one)).typed()


def test_housekeeping_that_takes_too_long_is_found():
    (one,) = found(
        limit_ns=HOUR, started_s=EPILOG_AT_S - 60, module=text("stats-job-manager").replace("1795988843", "1795900000")
    )
    assert one.text.startswith("housekeeping of ƒ2Nn2MXD runs for ")
    assert one.text.endswith(" on ranks 2, and holds ranks 2")
    assert one.typed() == "flux housekeeping kill '--jobid=ƒ2Nn2MXD'"
    assert found(limit_ns=None, started_s=EPILOG_AT_S - 60) == []


def test_units_of_no_job_or_of_an_earlier_life_are_found():
    now_us = time.monotonic_ns() // 1000
    started_s = time.time() - 60
    show = "".join(
        f"Id=flux-epilog@{name}.service\nInactiveExitTimestampMonotonic={now_us - age_s * 1_000_000}\n\n"
        for name, age_s in (("f2Nn2MXD", 1), ("ff5zYto", 90), ("fGone", 30), ("fNew", 1))
    )
    names = "".join(f"flux-epilog@{name}.service loaded active\n" for name in ("f2Nn2MXD", "ff5zYto", "fGone", "fNew"))
    lines = found(started_s=started_s, **{"systemctl list-units": names, "systemctl show": show, "job eventlog": ""})
    assert [(one.text.partition(" ")[0], one.text.rpartition("and ")[2]) for one in lines] == [
        ("flux-epilog@ff5zYto.service", "Flux was restarted since"),
        ("flux-epilog@fGone.service", "Flux has no such job any more"),
    ]
    assert lines[0].typed("sudo -u flux ") == "systemctl stop flux-epilog@ff5zYto.service"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"lsattr": OSError("flux: Connection refused")}, "cannot ask Flux: flux: Connection refused"),
        ({"lsattr": "rank 3\n"}, "this is rank 3; expected to be run where the leader, rank 0, is"),
        ({"job list": OSError("late")}, "cannot ask Flux: late"),
        ({"job eventlog": OSError("not permitted")}, "cannot read the eventlog of ƒf5zYto: not permitted"),
        ({"lsattr": "rank 0\nbroker.starttime soon\n"}, "'soon' is no number"),
    ],
)
def test_a_flux_that_can_not_be_asked_is_no_flux_without_findings(more, words):
    with pytest.raises(ControlError, match=words.replace("(", r"\(")):
        drive(check.running(check.Asked(COMMAND, None)), answers(**more))


@pytest.mark.parametrize(("said", "why"), [(OSError("purged"), "purged"), ("{}\n", "no event of an eventlog: ")])
def test_one_eventlog_that_can_not_be_read_costs_no_other(said, why):
    second = {**JOB, "id": 1}
    told = answers(**{"job list": f"{json.dumps(JOB)}\n{json.dumps(second)}\n"})
    lines, _ = drive(check.running(check.Asked(COMMAND, None)), lambda argv: said if argv[-1] == "ƒ2" else told(argv))
    assert [one.text.partition(" ")[0] for one in lines] == ["ƒf5zYto", "cannot"]
    assert lines[1].text.startswith(f"cannot read the eventlog of ƒ2: {why}")
    assert lines[1].repair == ()


def test_the_repair_reaches_the_same_flux_as_the_same_user():
    assert check.prefix(COMMAND, verb.URI) == ""
    assert check.prefix(COMMAND._replace(uri="local:///x y"), verb.URI) == "env 'FLUX_URI=local:///x y' "
    assert check.prefix(COMMAND._replace(user=User(0, 0)), verb.URI) == "sudo -u root "


# ---- the verb


def run(*words, **environment):
    argv = [sys.executable, "-I", "-m", "brokerctl", "check", *words]
    done = subprocess.run(
        argv, env={"PATH": "/usr/bin:/bin", **environment}, capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stdout, done.stderr


def test_saved_eventlogs_are_looked_at_without_a_flux(tmp_path):
    (tmp_path / "f29.eventlog").write_text(STUCK)
    (tmp_path / "f30.eventlog").write_text(STUCK + '{"timestamp": 1795986600.1, "name": "clean"}\n')
    code, out, err = run("--eventlogs", str(tmp_path))
    assert (code, err) == (1, "")
    first, second, last = out.splitlines()
    assert first.startswith("f29: epilog 'job-manager.epilog' began ")
    assert second == "    flux post-job-event f29 epilog-finish description=job-manager.epilog status=0"
    assert last == "1 finding"
    (tmp_path / "f29.eventlog").unlink()
    assert run("--eventlogs", str(tmp_path))[:2] == (0, "0 findings\n")


@pytest.mark.parametrize(
    "words",
    [
        ["--eventlogs", "/no/such/folder"], ["--housekeeping", "soon"], ["--flux", "/no/such/flux"],
        ["--uri", "local:///no/such/socket", "--flux", "/bin/true"], ["--flux", "/bin/false", "--uri", "ssh://x"],
    ],
)  # fmt: skip
def test_what_can_not_be_asked_is_one_line_and_2(words):
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert err.startswith("brokerctl check: ")


def test_a_file_that_is_no_eventlog_is_named(tmp_path):
    (tmp_path / "f1").write_text("garbage\n")
    code, _, err = run("--eventlogs", str(tmp_path))
    assert code == 2
    assert str(tmp_path / "f1") in err


def test_a_saved_eventlog_that_is_too_large_is_told_and_counts(tmp_path):
    with (tmp_path / "f1").open("wb") as file:
        file.truncate(verb.EVENTLOG_SIZE_MAX + 1)
    told = f"{tmp_path}/f1: larger than 16 MiB, not looked at\n1 finding\n"
    assert run("--eventlogs", str(tmp_path)) == (1, told, "")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root asks as somebody else")
def test_root_asks_as_the_owner_of_the_socket(tmp_path):
    path = tmp_path / "local"
    path.touch()
    assert check.owner(f"local://{path}") is None
    os.chown(path, 12, 34)
    assert check.owner(f"local://{path}") == User(12, 34)
    assert check.owner("ssh://elsewhere") is None
    with pytest.raises(ControlError, match="No such file"):
        check.owner("local:///no/such/socket")


# ---- `brokerctl stop --disable`


def stop(systemd, *words):
    return systemd.run([sys.executable, "-I", "-m", "brokerctl", "stop", *words], check=False)


DROP_IN = f"[Service]\nExecStop=+{sys.executable} -I -m brokerctl stop\n"


def test_disable_gives_the_stock_stop_back_and_says_how_to_undo_it(private_systemd):
    private_systemd.unit("x.service", "[Service]\nExecStart=sleep 1000\n")
    path = private_systemd.unit("x.service.d/brokerctl.conf", DROP_IN)
    private_systemd.systemctl("start", "x.service")
    assert "brokerctl" in private_systemd.show("x.service", "ExecStop")["ExecStop"]
    done = stop(private_systemd, "--disable", "--unit", "x.service")
    assert (done.returncode, done.stderr) == (0, "")
    assert private_systemd.show("x.service", "ExecStop", "DropInPaths") == {"DropInPaths": ""}
    again = stop(private_systemd, "--disable", "--unit", "x.service")
    assert (again.returncode, again.stdout) == (0, "x.service: has no drop-in brokerctl.conf; nothing to do\n")
    undo = done.stdout.splitlines()[-1].removeprefix("to undo: ")
    assert undo.startswith(f"mv {path}.disabled {path} && ")
    private_systemd.run(["sh", "-c", undo])
    assert private_systemd.show("x.service", "DropInPaths") == {"DropInPaths": str(path)}


def test_an_older_drop_in_that_was_disabled_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(disable, "ADMINISTRATOR", tmp_path)
    path = tmp_path / disable.DROP_IN
    for words in ("first", "second", "third"):
        path.write_text(words)
        undo = disable.away(path, "x.service")
    assert [(tmp_path / f"{disable.DROP_IN}.disabled{more}").read_text() for more in ("", ".1", ".2")] == [
        "first", "second", "third",
    ]  # fmt: skip
    assert undo == f"mv {path}.disabled.2 {path}"


def test_where_the_reload_fails_it_is_told_what_was_done_and_what_is_left_to_do(tmp_path, monkeypatch, capsys):
    path = tmp_path / "x.service.d" / disable.DROP_IN
    path.parent.mkdir()
    path.touch()

    def ask(argv, _within_ns):
        if "daemon-reload" in argv:
            return Said("", "systemctl daemon-reload: no answer within 30s")
        return Said(f"{path}\n" if "--property=DropInPaths" in argv else "")

    monkeypatch.setattr(disable, "ADMINISTRATOR", tmp_path)
    monkeypatch.setattr(disable, "_ask", ask)
    assert disable.main("x.service") == 1
    told, undo = capsys.readouterr().out.splitlines()
    assert "is away, but systemd has not taken that in: systemctl daemon-reload: no answer within 30s" in told
    assert undo == f"to undo: mv {path}.disabled {path} && systemctl daemon-reload"


def test_a_drop_in_of_a_package_is_masked(tmp_path, monkeypatch):
    monkeypatch.setattr(disable, "ADMINISTRATOR", tmp_path)
    undo = disable.away(Path("/usr/lib/systemd/system/y.service.d/brokerctl.conf"), "y.service")
    mask = tmp_path / "y.service.d" / "brokerctl.conf"
    assert mask.readlink() == Path("/dev/null")
    assert undo == f"rm {mask}"


@pytest.mark.parametrize("unit", ["z.service", "other.service"])
def test_disable_is_refused_while_anything_is_being_stopped(private_systemd, unit):
    """SYSTEMD.md 42: the reload would take back what the deadline was extended by."""
    stubborn = "[Service]\nExecStart=sleep 1000\nExecStop=sleep 1000\nTimeoutStopSec=30\n"
    for name in ("z.service", "other.service"):
        private_systemd.unit(name, stubborn)
    path = private_systemd.unit("z.service.d/brokerctl.conf", "[Service]\nTimeoutStopSec=31\n")
    private_systemd.systemctl("start", "z.service", "other.service")
    private_systemd.systemctl("stop", "--no-block", unit)
    done = stop(private_systemd, "--disable", "--unit", "z.service")
    private_systemd.systemctl("kill", "-s", "KILL", unit, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert unit in done.stderr
    assert private_systemd.show("z.service", "DropInPaths")["DropInPaths"] == str(path)


@pytest.mark.parametrize("unit", ["x", "../x.service", "x.socket", ""])
def test_disable_of_what_is_no_service_is_refused(unit):
    with pytest.raises(UsageError, match="is no service unit"):
        disable.main(unit or "/")
