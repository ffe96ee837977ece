"""Flux's own story: its prolog, epilog and housekeeping run in our units, on every rank.

Both ranks of the instance are on one node, so they share a run; without an IMP Flux itself is root.
"""

import pytest

from tests.stop.real_flux import Instance, wait_for

pytestmark = [pytest.mark.needs_flux, pytest.mark.slow]

LIBEXEC = "/usr/local/libexec/brokerctl"
CONFIG = f"""
[job-manager]
plugins = [{{ load = "perilog.so" }}]
[job-manager.prolog]
per-rank = true
command = ["{LIBEXEC}/flux-run-prolog"]
[job-manager.epilog]
per-rank = true
command = ["{LIBEXEC}/flux-run-epilog"]
timeout = "@TIMEOUT@"
[job-manager.housekeeping]
command = ["{LIBEXEC}/flux-run-housekeeping"]
"""


class Flux(Instance):
    """An instance of root's."""

    def __init__(self, site, timeout="0"):
        config = CONFIG.replace("@TIMEOUT@", timeout)
        # A broker's shell would take root's own start-up files for its.
        super().__init__(site.systemd, 2, config=config, keep=["User=root", "Group=root", "Environment=HOME=/"])
        site.systemd.run(["chown", "-R", "root", self.folder])
        self.start()

    def flux(self, *words, rank=0, check=True):
        env = {"FLUX_URI": f"local:///run/{self.name}-{rank}/local", "PATH": "/usr/bin:/bin", "HOME": "/"}
        return self.systemd.run([self.flux_path, *words], env=env, check=check).stdout

    def submit(self, *words):
        return self.flux("submit", "-N2", *words).strip()

    def ended(self, job):
        """The job's events, when it has none to come."""
        wait_for(lambda: "clean" in self.flux("job", "eventlog", job), "end of the job")
        return self.flux("job", "eventlog", job)

    def drained(self):
        return self.flux("resource", "drain", "-no", "{reason} {ranks}").strip()


@pytest.fixture
def flux(site):
    """Starts an instance with a limit for the epilog."""
    started = []

    def start(timeout="0"):
        started.append(Flux(site, timeout))
        return started[-1]

    yield start
    for instance in started:
        instance.end()


def left(site, kind="epilog"):
    """Units and files of a kind; a housekeeping may still be at work."""
    units = site.systemd.systemctl("list-units", "--all", "--plain", "--no-legend", f"flux-{kind}@*").stdout
    return [*units.splitlines(), *(name for name in site.files() if kind in name)]


def test_an_epilogs_own_code_reaches_flux_from_every_rank_and_the_nodes_are_drained(site, flux, tmp_path):
    site.script("epilog", f"sleep 1; echo run >>{tmp_path}/runs; exit 3")
    instance = flux()
    job = instance.submit("true")
    events = instance.ended(job)
    assert "epilog exited with code=3 on picl[0-1] (rank 0-1)" in events
    assert instance.drained().startswith("epilog failed for job")
    assert (tmp_path / "runs").read_text() == "run\n"
    log = instance.flux("dmesg")
    plain = instance.flux("job", "id", "--to=f58plain", job).strip()
    assert f"flux-epilog@{plain}.service: exited with 3; see: journalctl -u flux-epilog@{plain}.service" in log
    assert left(site) == []


def test_a_stuck_epilog_that_flux_times_out_is_stopped_and_the_nodes_are_drained(site, flux):
    site.script("epilog", "exec sleep 100")
    instance = flux("1s")
    events = instance.ended(instance.submit("true"))
    assert "epilog timed out on picl[0-1] (rank 0-1)" in events
    assert instance.drained().startswith("epilog timed out for job")
    assert "canceled by SIGTERM" in instance.flux("dmesg")
    assert left(site) == []


def test_a_stuck_epilog_that_the_helper_times_out_is_124_for_flux(site, flux):
    site.settings('[epilog]\ntimeout = "1s"\n')
    site.script("epilog", "exec sleep 100")
    instance = flux()
    events = instance.ended(instance.submit("true"))
    assert "epilog exited with code=124 on" in events
    assert "timed out after 1s; see: journalctl -u flux-epilog@" in instance.flux("dmesg")
    assert left(site) == []


def test_a_canceled_prolog_stops_and_drains_nothing(site, flux, tmp_path):
    site.script("prolog", f"touch {tmp_path}/began; exec sleep 100")
    instance = flux()
    job = instance.submit("true")
    wait_for((tmp_path / "began").exists, "prolog")
    instance.flux("cancel", job)
    assert "prolog-finish" in instance.ended(job)
    assert instance.drained() == ""
    assert left(site, "prolog") == []


def test_a_failed_housekeeping_drains_by_the_commands_of_the_settings(site, flux):
    instance = flux()
    uri = f"FLUX_URI=local:///run/{instance.name}-0/local"
    drain = f'["env", "{uri}", "{instance.flux_path}", "resource", "drain", "--update", "0", "{{unit}}: {{how}}"]'
    site.settings(f"[housekeeping]\non-failure = [{drain}]\n")
    site.script("housekeeping", "exit 5")
    job = instance.submit("true")
    instance.ended(job)
    reason = wait_for(instance.drained, "drained node")
    plain = instance.flux("job", "id", "--to=f58plain", job).strip()
    assert reason == f"flux-housekeeping@{plain}.service: exited with 5 0"
    assert wait_for(lambda: not instance.flux("housekeeping", "list", "-n"), "end of housekeeping")
