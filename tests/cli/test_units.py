import os
import re
import stat
import sys
from pathlib import Path

import msgspec
import pytest

from brokerctl import cli, config
from brokerctl.cli import units, units_installed
from brokerctl.durations import S
from brokerctl.errors import UsageError
from brokerctl.model import bounds
from brokerctl.model.tree import Tree
from brokerctl.records import Command
from brokerctl.settings import Action, StopSettings
from brokerctl.stop.settings import load as load_stop
from brokerctl.trace import Topology

DROP_IN = "flux.service.d/brokerctl.conf"
UNITS = [name for name in units.files() if units.is_unit(name)]
# As Flux ships it, as far as the drop-in builds on it.
FLUX = "[Service]\nType=notify\nNotifyAccess=main\nTimeoutStopSec=90\nKillMode=mixed\nExecStart=/bin/sleep 1000\n"


def run(capsys, *words):
    """Exit code, stdout, stderr of `brokerctl units WORDS…`."""
    code = cli.main(["units", *words])
    out, err = capsys.readouterr()
    # A checkout may belong to somebody else than who tests it.
    return code, out, "".join(line for line in err.splitlines(True) if ": warning: " not in line)


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "units"
    path.mkdir(mode=0o755)
    return path


def contents(folder):
    """All files below it."""
    return {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()}


# ---- the files


@pytest.mark.parametrize("name", units.files())
def test_every_file_says_what_it_is_and_calls_an_absolute_isolated_interpreter(name):
    text = units.files()[name]
    assert units.about(text)
    rendered = units.render(text, "/opt/brokerctl/bin/python3")
    assert not re.search(r"@[A-Z]+@", rendered)
    for line in rendered.splitlines():
        if line.startswith("Exec") and "brokerctl" in line:
            assert re.match(r"Exec\w+=[+:@!-]*/opt/brokerctl/bin/python3 -I ", line), line


def test_systemd_has_nothing_to_say_against_any_unit(private_systemd, folder, capsys):
    assert run(capsys, "--install", str(folder))[0] == 0
    (folder / "flux.service").write_text(FLUX)
    files = [str(path) for path in folder.iterdir() if path.suffix == ".service"]
    done = private_systemd.run(["env", "-u", "SYSTEMD_UNIT_PATH", "systemd-analyze", "--man=no", "verify", *files])
    assert (done.stdout, done.stderr) == ("", "")


def test_systemd_reads_of_the_drop_in_what_it_says(private_systemd, capsys):
    private_systemd.unit("flux.service", FLUX)
    place = private_systemd.path("/etc/systemd/system")
    assert run(capsys, "--install", str(place), DROP_IN)[0] == 0
    private_systemd.systemctl("daemon-reload")
    shown = private_systemd.show(
        "flux.service", "TimeoutStopUSec", "NotifyAccess", "KillMode", "ExecStop", "ExecStopPost"
    )
    assert (shown["TimeoutStopUSec"], shown["NotifyAccess"], shown["KillMode"]) == ("20min", "exec", "mixed")
    assert f"{sys.executable} -I -m brokerctl stop ;" in shown["ExecStop"]
    assert f"{sys.executable} -I -m brokerctl stop --post ;" in shown["ExecStopPost"]


def test_the_drop_in_adds_up_what_the_wrapper_and_flux_may_take():
    text = units.files()[DROP_IN]
    rows = [int(number) for number in re.findall(r"^#\s+(\d+) s   (?!in all)", text, re.MULTILINE)]
    total = int(re.search(r"^#\s+(\d+) s   in all", text, re.MULTILINE)[1])
    timeout_s = int(re.search(r"^TimeoutStopSec=(\d+)min$", text, re.MULTILINE)[1]) * 60
    assert sum(rows) == total < timeout_s < 30 * 60
    stop = StopSettings(actions=(Action(Command("x")),))
    # flux.service as it ships (FLUX.md 25, 36).
    limits = {"cleanup_timeout_ns": 45 * S, "shutdown_timeout_ns": 300 * S}
    flux = config.resolve("flux")
    parts = (
        bounds.stop_asking_ns(stop),
        bounds.stop_actions_ns(stop),
        bounds.stop_cleanup_ns(stop, limits["cleanup_timeout_ns"]),
        bounds.stop_shutdown_ns(limits["shutdown_timeout_ns"]),
        bounds.stop_rest_ns(flux),
    )
    *before, finalize, last = rows
    assert [*before, last] == [part // S for part in parts]
    assert total - finalize == bounds.stop_worst_case(stop, flux, **limits) // S
    assert stop.finalize_patience_ns < finalize * S  # a daemon-reload takes back what is extended


def test_the_example_for_the_wrapper_says_its_defaults(tmp_path):
    path = tmp_path / "stop.toml"
    path.write_text(units.files()["examples/stop.toml"])
    path.chmod(0o600)
    found = load_stop(str(path)).settings
    assert found.actions
    assert msgspec.structs.replace(found, actions=()) == StopSettings()


def test_the_limit_of_a_supervised_service_covers_the_worst_stop_of_the_default_limits():
    text = units.files()["brokerctl@.service"]
    action = (Action(Command("x")),)
    settings = config.with_fields("hardened", {"cleanup": action, "rc3": action})
    worst_s = bounds.worst_case(settings, Tree(Topology())) // S
    total = int(re.search(r"^#\s+(\d+) s   in all", text, re.MULTILINE)[1])
    timeout_s = int(re.search(r"^TimeoutStopSec=(\d+)min$", text, re.MULTILINE)[1]) * 60
    assert total == worst_s < timeout_s


def test_a_supervised_service_starts_reloads_its_manager_and_stops(private_systemd, capsys):
    place = private_systemd.path("/etc/systemd/system")
    assert run(capsys, "--install", str(place), "brokerctl@.service")[0] == 0
    etc = private_systemd.path("/etc/brokerctl")
    etc.mkdir()
    (etc / "app.toml").write_text(units.files()["examples/run.toml"])
    private_systemd.systemctl("start", "brokerctl@app.service")
    shown = private_systemd.show(
        "brokerctl@app.service", "ActiveState", "TimeoutStopUSec", "WatchdogUSec", "Description"
    )
    assert shown == {
        "ActiveState": "active", "TimeoutStopUSec": "10min", "WatchdogUSec": "1min",
        "Description": "app, supervised by brokerctl",
    }  # fmt: skip
    status = private_systemd.run([sys.executable, "-I", "-m", "brokerctl", "status", "--rundir", "/run/brokerctl/app"])
    assert "run" in status.stdout
    private_systemd.systemctl("stop", "brokerctl@app.service")
    assert private_systemd.show("brokerctl@app.service", "Result") == {"Result": "success"}
    assert any("draining" in line for line in private_systemd.journal("brokerctl@app.service"))


# ---- the verb


def test_all_unit_files_are_shown_rendered(capsys):
    code, out, err = run(capsys)
    assert (code, err) == (0, "")
    assert [name for name in units.files() if f"# {name}\n" in out] == UNITS
    assert units.PLACEHOLDER not in out
    assert sys.executable in out


def test_one_is_shown_by_its_name_and_all_are_listed(capsys):
    assert run(capsys, "examples/run.toml")[1].startswith("# examples/run.toml\n")
    listed = [line.split()[0] for line in run(capsys, "--list")[1].splitlines()]
    assert listed == list(units.files())


def test_what_is_installed_is_removed_again_and_nothing_is_left(folder, capsys):
    folder.rmdir()  # it is made
    code, out, err = run(capsys, "--install", str(folder))
    assert (code, err) == (0, "")
    assert sorted(contents(folder)) == sorted(UNITS)
    assert all(f"{folder / name}\n" in out for name in UNITS)
    assert "daemon-reload" in out
    assert {stat.S_IMODE((folder / name).stat().st_mode) for name in UNITS} == {0o644}
    assert run(capsys, "--install", str(folder))[0] == 0, "again is no change"
    assert run(capsys, "--uninstall", str(folder))[0] == 0
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("found", ["[Service]\n", "link", "changed"])
def test_what_is_not_ours_is_kept_unless_forced_and_comes_back(folder, capsys, found):
    path = folder / DROP_IN
    path.parent.mkdir()
    if found == "link":
        path.symlink_to("/dev/null")
    elif found == "changed":
        assert run(capsys, "--install", str(folder), DROP_IN)[0] == 0
        path.write_text(path.read_text() + "TimeoutStopSec=1min\n")
    else:
        path.write_text(found)
    before = str(path.readlink()) if found == "link" else path.read_text()
    code, _, err = run(capsys, "--install", str(folder))
    assert code == 2
    assert re.fullmatch(
        rf"brokerctl units: {re.escape(str(path))}: (is not from brokerctl|was changed .*); expected .*\n", err
    )
    assert list(folder.iterdir()) == [path.parent], "nothing was written"
    assert run(capsys, "--install", str(folder), "--force")[0] == 0
    assert "brokerctl stop" in path.read_text()
    assert run(capsys, "--uninstall", str(folder))[0] == 0
    assert (str(path.readlink()) if found == "link" else path.read_text()) == before
    assert list(folder.rglob("*")) == [path.parent, path]


def test_a_file_that_was_changed_is_removed_only_by_force(folder, capsys):
    assert run(capsys, "--install", str(folder), DROP_IN)[0] == 0
    path = folder / DROP_IN
    path.write_text(path.read_text().replace("20min", "30min"))
    code, _, err = run(capsys, "--uninstall", str(folder))
    assert (code, "was changed since brokerctl wrote it" in err) == (2, True)
    assert path.exists()
    assert run(capsys, "--uninstall", str(folder), "--force")[0] == 0
    assert not path.exists()


@pytest.mark.parametrize("before", ["", "[Service]\n"])
@pytest.mark.parametrize("aside", [".disabled", ".disabled.1"])
def test_what_was_disabled_is_removed_as_well(folder, capsys, before, aside):
    path = folder / DROP_IN
    if before:
        path.parent.mkdir()
        path.write_text(before)
    assert run(capsys, "--install", str(folder), DROP_IN, "--force")[0] == 0
    path.rename(path.with_name(path.name + aside))
    assert run(capsys, "--uninstall", str(folder))[0] == 0
    assert contents(folder) == ({DROP_IN: before} if before else {})


def test_a_unit_of_somebody_else_is_never_removed(folder, capsys):
    (folder / "brokerctl@.service").write_text("[Service]\n")
    code, _, err = run(capsys, "--uninstall", str(folder), "--force")
    assert (code, "nothing there was written by brokerctl" in err) == (2, True)
    assert contents(folder) == {"brokerctl@.service": "[Service]\n"}


def test_what_systemd_has_to_say_refuses_the_installation(folder, capsys, monkeypatch):
    if not Path("/usr/bin/systemd-analyze").exists():
        pytest.skip("needs systemd-analyze")
    monkeypatch.setattr(units, "files", lambda: {"x.service": "# X\n[Service]\nExecStart=/bin/true\nTimoutStopSec=1\n"})
    code, _, err = run(capsys, "--install", str(folder))
    assert code == 2
    assert re.fullmatch(r"brokerctl units: systemd-analyze verify: x\.service:4: Unknown key .*\n", err)
    assert list(folder.iterdir()) == []


def test_executables_and_examples_are_installed_where_they_are_named(folder, capsys, monkeypatch):
    sources = {"flux-x": "#!@PYTHON@ -I\n# X\n", "examples/x.toml": "# X\n"}
    monkeypatch.setattr(units, "files", lambda: sources)
    assert run(capsys, "--install", str(folder), *sources)[0] == 0
    assert stat.S_IMODE((folder / "flux-x").stat().st_mode) == 0o755
    assert (folder / "flux-x").read_text().startswith(f"#!{sys.executable} -I\n")
    assert stat.S_IMODE((folder / "x.toml").stat().st_mode) == 0o644
    code, out, _ = run(capsys, "--uninstall", str(folder), *sources)
    assert (code, "daemon-reload" in out) == (0, False)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere.service"], "there is no 'nowhere.service'; expected one of"),
        (["--install", "/nonexistent/x"], "/nonexistent: No such file or directory; expected a directory"),
        (["--uninstall", "/nonexistent"], "/nonexistent: No such file or directory; expected a directory"),
        (["--install", "/dev/null"], "/dev/null: is no directory"),
        (["--install", "/etc", "--uninstall", "/etc"], "--install and --uninstall; expected one of them"),
        (["--force"], "--force: belongs to --install or --uninstall"),
        (["--uninstall", "/etc"], "nothing there was written by brokerctl"),
    ],
)
def test_a_mistake_is_told_in_one_line(capsys, words, said):
    code, out, err = run(capsys, *words)
    assert (code, out) == (2, "")
    assert err.startswith("brokerctl units: ")
    assert said in err
    assert err.count("\n") == 1


def test_a_directory_that_others_can_write_to_is_refused(folder, capsys):
    folder.chmod(0o777)
    code, _, err = run(capsys, "--install", str(folder))
    assert (code, "has mode 0777" in err) == (2, True)


def test_a_directory_of_drop_ins_that_others_can_write_to_is_refused(folder, capsys):
    (folder / "flux.service.d").mkdir()
    (folder / "flux.service.d").chmod(0o777)
    code, _, err = run(capsys, "--install", str(folder))
    assert (code, "flux.service.d: has mode 0777" in err) == (2, True)
    assert list((folder / "flux.service.d").iterdir()) == []


def test_a_link_in_place_of_a_directory_of_drop_ins_is_not_followed(folder, tmp_path, capsys):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (folder / "flux.service.d").symlink_to(elsewhere)
    code, _, err = run(capsys, "--install", str(folder))
    assert (code, "links are not followed" in err) == (2, True)
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize(
    "python", ["python3", "/opt/my python/bin/python", "/opt/%i/python", "/opt/$HOME/python", "/a;b"]
)
def test_an_interpreter_whose_path_a_unit_could_misread_is_refused(python):
    with pytest.raises(UsageError, match="expected an absolute path"):
        units.render("@PYTHON@", python)


def test_an_interpreter_that_does_not_have_the_package_is_refused(tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'ModuleNotFoundError: no brokerctl' >&2\nexit 1\n")
    python.chmod(0o755)
    with pytest.raises(UsageError, match=r"cannot import brokerctl .ModuleNotFoundError: no brokerctl.; expected it"):
        units_installed._check_interpreter(str(python))


def test_who_else_can_change_what_root_runs_is_named(tmp_path):
    tmp_path.chmod(0o700)
    tool = tmp_path / "bin" / "python"
    tool.parent.mkdir()
    tool.touch()
    assert [line for line in units_installed.exposed(tool) if str(tmp_path) in line] == []
    tool.parent.chmod(0o777)
    link = tmp_path / "python"
    link.symlink_to(tool)
    (line,) = [line for line in units_installed.exposed(link) if str(tmp_path) in line]
    assert line == f"{tool.parent}: has mode 0777: who can write there decides what root runs"
    if os.geteuid() == 0:
        tool.parent.chmod(0o755)
        os.chown(tool, 65534, 65534)
        assert f"{tool}: belongs to uid 65534: who can write there decides what root runs" in units_installed.exposed(
            tool
        )


def test_the_files_are_found_without_a_checkout(tmp_path, monkeypatch):
    package = tmp_path / "site-packages" / "brokerctl"
    (package / "unitfiles").mkdir(parents=True)
    monkeypatch.setattr(units.brokerctl, "__file__", str(package / "__init__.py"))
    assert units.folder() == package / "unitfiles"
    (package / "unitfiles").rmdir()
    with pytest.raises(UsageError, match="has no unit files"):
        units.folder()
