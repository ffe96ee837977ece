"""`brokerctl stop --dry-run`: the plan, its bounds, and whether the unit's time covers them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from brokerctl.durations import MINUTE, S, as_short
from brokerctl.errors import UsageError
from brokerctl.model import bounds
from brokerctl.records.stops import Limits, Look
from brokerctl.settings import Settings, StopSettings
from brokerctl.stop import plan
from brokerctl.stop.settings import Configuration
from tests.driver import action

FLUX = Limits(cleanup_timeout_ns=45 * S, shutdown_timeout_ns=5 * MINUTE)
UNIT = {"MainPID": "0", "TimeoutStopUSec": "10min", "NotifyAccess": "exec", "SuccessExitStatus": "42"}


@pytest.fixture
def describe(monkeypatch):
    """The plan for a broker that answers so, in a unit that is shown so."""

    def make(look=None, stop=None, timeout=None, **shown):
        aim = plan.target.Aim("flux", 4711, "flux-broker-0", "flux.service", plan.target.User(0, 0))
        monkeypatch.setattr(plan, "_shown", lambda _unit: {**UNIT, "MainPID": "4711", **shown})
        monkeypatch.setattr(plan.target, "take", lambda *_: (plan.os.dup(2), aim))
        monkeypatch.setattr(plan, "_looked", lambda _aim: look or Look("run", limits=FLUX))
        return "\n".join(plan.describe(Configuration(stop or StopSettings()), "flux.service", timeout))

    return make


def test_the_plan_names_each_step_with_its_bound(describe):
    text = describe(stop=StopSettings(actions=(action("drain all"),)))
    assert "main is flux-broker-0 (pid 4711), a Flux broker, in run" in text
    assert "site action 1/1: drain all" in text
    assert "SIGTERM and SIGCONT to main, once" in text
    assert "main's timeout 45s; who holds it after 50s: SIGHUP, SIGTERM, SIGKILL" in text
    assert "who holds it is shed after 60s" in text


def test_p6_the_time_of_the_unit_must_cover_all_but_finalize(describe):
    worst_ns = bounds.stop_worst_case(
        StopSettings(), Settings(), cleanup_timeout_ns=45 * S, shutdown_timeout_ns=5 * MINUTE
    )
    assert f"takes at most {as_short(worst_ns)}" in describe()
    assert "TimeoutStopSec=10m: covers it" in describe()
    assert "TOO SHORT" in describe(TimeoutStopUSec="1min 30s")
    assert "TOO SHORT" in describe(timeout="90")
    assert "nothing is ever cut off" in describe(TimeoutStopUSec="infinity")


def test_a_stop_that_is_under_way_is_joined_in_the_plan_too(describe):
    text = describe(look=Look("cleanup", limits=FLUX))
    assert "join: main is in cleanup" in text
    assert "SIGTERM and SIGCONT to main" not in text


def test_a_follower_and_a_broker_that_starts_have_no_site_actions_in_the_plan(describe):
    stop = StopSettings(actions=(action("drain all"),))
    for look in (Look("run", rank=3, size=8, limits=FLUX), Look("init", limits=FLUX)):
        assert "site action" not in describe(look=look, stop=stop)


def test_what_would_make_the_wrapper_worthless_is_told(describe):
    assert "NotifyAccess=main: finalize can't be extended" in describe(NotifyAccess="main")
    assert "would count as success" in describe(SuccessExitStatus="3 42")


def test_without_a_limit_of_main_there_is_no_bound(describe):
    text = describe(look=Look("run", limits=Limits()))
    assert "has no bound" in text


BROKER = """[Service]
ExecStart=/bin/bash -c '\\
  XDG_RUNTIME_DIR=/run/user/$UID exec /usr/bin/flux broker --config-path=/etc/flux/system/conf.d \\
  -Sbroker.cleanup-timeout=45 -Sbroker.shutdown-timeout=5m'
"""


@pytest.fixture
def at_rest(monkeypatch, tmp_path):
    """The plan for a unit that does not run: these are its file, and a drop-in."""

    def make(text, drop_in="", timeout=None, **shown):
        files = {"FragmentPath": text, "DropInPaths": drop_in}
        for name, body in files.items():
            (tmp_path / name).write_text(body)
        paths = {name: str(tmp_path / name) for name, body in files.items() if body}
        monkeypatch.setattr(plan, "_shown", lambda _unit: {**UNIT, **paths, **shown})
        return "\n".join(plan.describe(Configuration(), "flux.service", timeout))

    return make


def test_the_limits_of_a_broker_that_does_not_run_are_those_of_its_unit(at_rest, describe):
    text = at_rest(BROKER)
    assert "flux.service: no main process" in text
    assert "as its ExecStart= has them: cleanup 45s, shutdown 5m" in text
    assert "TimeoutStopSec=10m: covers it" in text
    steps = describe().splitlines()[1:]
    assert text.splitlines()[2:] == steps, "the plan is that of the running one"


def test_a_drop_in_of_the_unit_has_the_last_word(at_rest):
    text = at_rest(BROKER, "[Service]\nExecStart=\nExecStart=/usr/bin/flux broker -Sbroker.cleanup-timeout=1m\n")
    assert "cleanup 60s, shutdown none" in text
    assert "has no bound" in text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "systemd knows no file of flux.service"),
        ("[Service]\nExecStart=/bin/sleep 9\n", "its ExecStart= runs no broker"),
        ("no unit at all\n", "FragmentPath"),
    ],
)
def test_where_the_limits_are_not_known_that_is_told_and_what_is_left_for_them(at_rest, text, why):
    told = at_rest(text)
    assert "main's limits are not known" in told
    assert why in told
    assert "takes at most 2m29s\nTimeoutStopSec=10m: 7m31s are left for main's cleanup-timeout" in told
    assert "covers it" not in told
    assert "TOO SHORT" in at_rest(text, TimeoutStopUSec="2min")


def test_a_main_that_does_not_tell_its_limits_has_those_of_its_unit(describe, tmp_path):
    (tmp_path / "flux.service").write_text(BROKER)
    shown = {"FragmentPath": str(tmp_path / "flux.service")}
    assert "as its ExecStart= has them: cleanup 45s" in describe(look=Look("run", limits=None), **shown)


@pytest.mark.parametrize(
    ("text", "ns"),
    [("1min 30s", 90 * S), ("10min", 600 * S), ("500ms", S // 2), ("1h 5min", 3900 * S), ("", None), ("soon", None)],
)
def test_spans_of_systemd_are_read(text, ns):
    assert plan._systemd_span(text) == ns


def test_a_time_that_is_none_is_refused(describe):
    with pytest.raises(UsageError, match="--timeout-stop"):
        describe(timeout="soon")


def test_the_plan_of_any_process_is_short_and_nothing_is_done_to_it():
    with subprocess.Popen(["sleep", "60"]) as main:
        argv = [sys.executable, "-I", "-m", "brokerctl", "stop", "--dry-run", "--pid", str(main.pid)]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False)
        assert main.poll() is None
        main.kill()
    assert done.returncode == 0, done.stderr
    assert "a process of its own kind" in done.stdout


def test_a_unit_that_systemd_does_not_know_is_refused_where_nothing_else_is_given(describe):
    with pytest.raises(UsageError, match=r"--unit flux.service: systemd knows no such unit"):
        describe(LoadState="not-found")
    assert "TimeoutStopSec=20m" in describe(LoadState="not-found", timeout="20m")


def test_the_plan_for_a_pid_is_that_of_its_own_unit(monkeypatch):
    asked = []
    monkeypatch.setattr(plan, "_shown", lambda unit: asked.append(unit) or UNIT)
    monkeypatch.setattr(plan.target, "unit_of", lambda pid: {4711: "app.service"}.get(pid, ""))
    monkeypatch.setattr(plan.target, "take", lambda *_: None)
    for pid, unit in ((4711, ""), (4712, ""), (None, ""), (4711, "other.service")):
        plan.describe(Configuration(), unit, "20m", pid)
    assert asked == ["app.service", "flux.service", "flux.service", "other.service"]


def test_where_no_systemd_answers_that_is_told(monkeypatch):
    monkeypatch.setattr(plan, "_shown", lambda _unit: {})
    assert "main's limits are not known: no systemd answers here" in plan.describe(Configuration(), "", None)
