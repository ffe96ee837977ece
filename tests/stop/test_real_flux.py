import sys
import time
from pathlib import Path

import pytest

from tests.stop.real_flux import WRAPPER, Instance, wait_for

pytestmark = [pytest.mark.needs_flux, pytest.mark.slow]

LOST = "Data may have been lost"


@pytest.fixture
def instance(private_systemd):
    """Makes instances, which are ended however the test ends."""
    made = []

    def make(*args, **options):
        made.append(Instance(private_systemd, *args, **options))
        return made[-1]

    yield make
    for one in made:
        one.end()


def lines(journal, text):
    return [line for line in journal if text in line]


def test_a_healthy_stop_is_told_from_its_jobs_to_its_dump(instance):
    flux = instance(2)
    flux.wrap()
    flux.start()
    job = flux.flux("submit", "-N2", "sleep", "300").strip()
    wait_for(lambda: "sleep" in flux.flux("jobs", "-f", "run"), "running job")
    flux.stop()
    journal = flux.journal()
    assert flux.result() == "success"
    assert lines(journal, "running: 1 job on 2 nodes: daemon 1")
    assert lines(journal, f"{job} of daemon, 2 nodes, sleep")
    assert lines(journal, "canceled by this stop: 1 job")
    assert lines(journal, f"dump written: /var/lib/{flux.name}-0/dump/{flux.dump()}")
    assert lines(journal, "stopped as asked (SIGTERM): exit 0; state saved")
    # What is there before the SIGTERM is told before it.
    before, signaled = (
        next(at for at, line in enumerate(journal) if text in line) for text in ("1 job on", "signal 15")
    )
    assert before < signaled


def test_a_frozen_follower_is_shed_and_the_stop_ends_with_a_dump(instance):
    flux = instance(3, parents={2: 1})
    flux.wrap(config='shed-after = "1s"\n')
    flux.start()
    flux.signal("STOP", flux.main(2))
    took = flux.stop()
    journal = flux.journal()
    assert took < 20, journal
    assert lines(journal, "shed picl2 (rank 2)")
    assert flux.dump()
    assert flux.systemd.show(flux.unit(), "ExecMainStatus", "Result") == {"ExecMainStatus": "0", "Result": "exit-code"}
    assert lines(journal, "status=3")  # of the ExecStop: a rank was shed


def test_in_cleanup_only_where_an_epilog_is_stuck_is_shed(instance):
    flux = instance(3)
    flux.write("config/perilog.toml", PERILOG.replace("@KIND@", "epilog").replace("@FOLDER@", flux.folder))
    stuck = "[ $(cat /proc/$PPID/comm) != flux-broker-2 ] || exec sleep 1000"
    flux.write("script", f"#!/bin/sh\n{stuck}\n", 0o755)
    flux.wrap(config='shed-in-cleanup-after = "1s"\n')
    flux.start()
    job = flux.flux("submit", "-N3", "true").strip()
    wait_for(lambda: "epilog-start" in flux.flux("job", "eventlog", job), "epilog-start")
    flux.stop()
    journal = flux.journal()
    assert lines(journal, f"shed picl2 (rank 2); jobs cut off: {job}"), journal
    assert not lines(journal, "picl1")
    assert flux.dump()


def test_a_cleanup_action_that_ignores_sighup_is_ended_and_the_dump_written(instance):
    flux = instance(attrs={"broker.cleanup-timeout": 1})
    flux.wrap(config='kill-ladder = "TERM:1s,KILL:1s"\n')
    flux.start()
    flux.write("stubborn", "#!/bin/sh\ntrap '' HUP TERM\nsleep 200 & sleep 201\nwhile :; do sleep 202; done\n", 0o755)
    flux.flux("admin", "cleanup-push", f"{flux.folder}/stubborn")
    took = flux.stop()
    journal = flux.journal()
    assert took < 25, journal
    assert lines(journal, "held the cleanup")
    assert flux.dump()
    assert not flux.systemd.run(["pgrep", "-f", "sleep 20[012]"], check=False).stdout


def test_a_flux_shutdown_that_is_under_way_is_joined_without_a_signal(instance):
    """FLUX.md 101: systemd's own stop aborts the cleanup then, or rc3."""
    flux = instance()
    flux.wrap()
    flux.start()
    flux.flux("admin", "cleanup-push", "sleep 3")
    flux.flux("shutdown", "--background")
    flux.in_state("cleanup")
    flux.stop()
    journal = flux.journal()
    assert lines(journal, "a stop is under way (request); joined, no signal is sent")
    assert not lines(journal, "signal 15")
    assert lines(journal, "stopped as asked by `flux shutdown`, it stays down: exit 42; state saved")
    assert flux.result() == "success"
    assert flux.dump()


def test_a_failed_cleanup_behind_exit_42_makes_the_unit_failed(instance):
    flux = instance()
    flux.wrap()
    flux.start()
    flux.flux("admin", "cleanup-push", "exit 5")
    flux.flux("shutdown", "--quiet", check=False)
    wait_for(lambda: flux.systemd.show(flux.unit(), "ActiveState")["ActiveState"] == "failed", "failed unit")
    assert flux.systemd.show(flux.unit(), "ExecMainStatus", "NRestarts") == {"ExecMainStatus": "42", "NRestarts": "0"}
    assert lines(flux.journal(), "cleanup.0 (exit 5: Exited, rc=5")


PERILOG = """
[kvs]
checkpoint-period = "0.5s"
[job-manager]
plugins = [{ load = "perilog.so" }]
[job-manager.@KIND@]
per-rank = true
command = ["@FOLDER@/script"]
"""


@pytest.mark.parametrize("kind", ["prolog", "epilog"])
def test_what_check_finds_after_a_crash_is_repaired_by_what_it_prints(instance, kind):
    flux = instance()
    flux.write("config/perilog.toml", PERILOG.replace("@KIND@", kind).replace("@FOLDER@", flux.folder))
    flux.write("script", f"#!/bin/sh\n[ -e {flux.folder}/stuck ] && exec sleep 1000\nexit 0\n", 0o755)
    flux.write("stuck", "")
    flux.start()
    assert check(flux) == (0, ["0 findings"])
    job = flux.flux("submit", "true").strip()
    wait_for(lambda: f"{kind}-start" in flux.flux("job", "eventlog", job), f"{kind}-start")
    assert check(flux) == (0, ["0 findings"])  # it may still end
    time.sleep(2)  # until the checkpoint has it
    flux.signal("KILL", flux.main())
    flux.systemd.path(f"{flux.folder}/stuck").unlink()
    flux.systemd.systemctl("stop", flux.unit())  # takes back the automatic restart, which waits half a minute
    flux.start()
    code, found = check(flux)
    assert (code, found[-1]) == (1, "1 finding")
    assert found[0].startswith(f"{job} (daemon, ranks 0): {kind} 'job-manager.{kind}' began ")
    typed = found[1].strip().replace("sudo -u daemon", "setpriv --reuid=daemon --clear-groups")
    flux.systemd.run(["sh", "-c", typed.replace(" flux ", f" {flux.flux_path} ")], env={"PATH": "/usr/bin:/bin"})
    wait_for(lambda: "clean" in flux.flux("job", "eventlog", job), "clean job")
    assert check(flux) == (0, ["0 findings"])


def check(flux):
    """`brokerctl check` as root; its exit code and lines."""
    where = ["--uri", f"local:///run/{flux.name}-0/local", "--flux", flux.flux_path]
    done = flux.systemd.run([sys.executable, "-I", "-m", "brokerctl", "check", *where], check=False)
    assert not done.stderr
    return done.returncode, done.stdout.splitlines()


# ---- whatever becomes of the wrapper while rc3 saves the state

HANGING = """\
#!/bin/sh
[ -e @FOLDER@/hang ] && exec sleep 1000
exec @FLUX@ "$@"
"""


def kill_the_helper(flux):
    for line in flux.systemd.run(["pgrep", "-P", str(flux.control())], check=False).stdout.split():
        flux.signal("KILL", line)


def hang_every_answer(flux):
    flux.write("hang", "")


def freeze_the_journal(flux):
    flux.signal("STOP", journald(flux))


def journald(flux):
    return flux.systemd.show("systemd-journald.service", "MainPID")["MainPID"]


STOP = f"ExecStop=+{sys.executable} -I -m brokerctl stop"
BROKEN = Path(__file__).with_name("broken_stop.py")


def nothing(_flux):
    """The harm is in the unit already."""


@pytest.mark.parametrize(
    ("harm", "exec_stop"),
    [
        pytest.param(kill_the_helper, f"{STOP}@OPTIONS@", id="helper killed"),
        pytest.param(hang_every_answer, f"{STOP}@OPTIONS@", id="every answer hangs"),
        pytest.param(freeze_the_journal, f"{STOP}@OPTIONS@", id="journald frozen"),
        pytest.param(nothing, f"ExecStop=+{sys.executable} -I {BROKEN} finalize@OPTIONS@", id="exception in the core"),
        pytest.param(
            nothing, f"ExecStop=+/bin/sh -c 'exec {STOP.partition('+')[2]}@OPTIONS@ >&- 2>&-'", id="streams closed"
        ),
    ],
)
def test_rc3_is_never_cut_whatever_becomes_of_the_wrapper_beside_its_core(instance, harm, exec_stop):
    flux = instance(rc3="sleep 3")
    hanging = flux.write("flux", HANGING.replace("@FOLDER@", flux.folder).replace("@FLUX@", flux.flux_path), 0o755)
    drop_in = WRAPPER.replace(f"{STOP}@OPTIONS@", exec_stop)
    flux.wrap(config=f'flux = "{hanging}"\n', drop_in=drop_in)
    flux.start()
    with flux.stopping() as client:
        flux.in_state("finalize")
        harm(flux)
        try:
            assert client.wait(30) == 0
        finally:
            flux.signal("CONT", journald(flux))
    assert flux.dump(), flux.journal()
    flux.systemd.path(f"{flux.folder}/hang").unlink(missing_ok=True)
    restarted_without_loss(flux)


def restarted_without_loss(flux):
    before = len(flux.journal())
    flux.systemd.systemctl("reset-failed", flux.unit(), check=False)
    flux.start()
    life = flux.journal()[before:]
    assert lines(life, "rc1-success")
    assert not lines(life, LOST)


def test_the_time_of_systemd_is_extended_while_rc3_works(instance):
    flux = instance(rc3="sleep 6", timeout_stop=3, attrs={"broker.sd-stop-timeout": 1})
    flux.wrap()
    flux.start()
    assert flux.stop() > 6
    assert flux.result() == "success", flux.journal()
    assert flux.dump()
    restarted_without_loss(flux)


@pytest.mark.parametrize("signum", ["KILL", "TERM"])
def test_where_systemd_itself_cuts_rc3_the_verdict_says_so(instance, signum):
    """The core has gone: systemd signals main at once, and rc3 with it (FLUX.md 100). Nobody could prevent that."""
    flux = instance(rc3="sleep 3")
    flux.wrap()
    flux.start()
    with flux.stopping() as client:
        flux.in_state("finalize")
        flux.signal(signum, flux.control())
        assert client.wait(30) == 0
    assert not flux.dump()
    assert flux.result() in {"signal", "exit-code"}
    assert lines(flux.journal(), "NO DUMP"), flux.journal()


# ---- what it costs


def test_a_healthy_stop_is_not_held_up(instance):
    """What it costs is measured by `make bench`, beside the same stop without the wrapper: a fifth of a second."""
    bare, wrapped = instance(), instance()
    wrapped.wrap()
    for flux in (bare, wrapped):
        flux.start()
    assert wrapped.stop() < bare.stop() + 2
