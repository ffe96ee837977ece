"""The chain: which limit acts first, under each clock that systemd has."""

import pytest

from brokerctl.durations import MINUTE, S
from brokerctl.lint import chain
from brokerctl.lint.subject import Subject
from brokerctl.model import bounds
from brokerctl.settings import StopSettings
from brokerctl.unit import Unit
from brokerctl.unit.syntax import parse
from tests.lint.conftest import FIXTURES

SLACK = bounds.SLACK_NS


def rows(*, limit="90", attributes="", extra="", notify="Type=notify"):
    text = f"[Service]\n{notify}\nTimeoutStopSec={limit}\nExecStart=/usr/bin/flux broker {attributes}\n{extra}"
    unit = Subject(Unit("flux.service", [parse(text.encode(), "flux.service")]))
    return {row.phase: row for row in chain.rows(unit)}


NOTIFY = "-Sbroker.sd-notify=1 -Sbroker.sd-stop-timeout={}"
LIMITS = "-Sbroker.cleanup-timeout={} -Sbroker.shutdown-timeout={} "


def test_a_phase_fits_while_the_clock_of_the_stop_still_runs():
    found = rows(limit="90", attributes=LIMITS.format(40, 40))
    assert [found[phase].verdict for phase in ("cleanup", "shutdown")] == ["fits", "fits"]
    assert found["cleanup"].outer_ns == 90 * S
    assert found["shutdown"].outer_ns == 90 * S - (40 * S + SLACK)
    assert found["shutdown"].over_ns == 80 * S + 2 * SLACK


def test_a_phase_that_ends_after_the_clock_is_cut_off():
    found = rows(limit="90", attributes=LIMITS.format(40, 60))
    assert found["shutdown"].verdict == "cut"
    assert found["shutdown"].outer == "TimeoutStopSec: SIGKILL"


def test_a_phase_that_is_no_longer_than_its_extension_fits_whatever_came_before():
    found = rows(limit="10", attributes=LIMITS.format(40, 40) + NOTIFY.format(60))
    assert [found[phase].verdict for phase in ("cleanup", "shutdown")] == ["fits", "fits"]
    found = rows(limit="10", attributes=LIMITS.format(40, 60) + NOTIFY.format(60))
    assert found["shutdown"].verdict == "cut"
    assert found["shutdown"].outer == "the broker's extension: SIGKILL"


def test_an_extension_that_systemd_does_not_hear_is_none():
    attributes = LIMITS.format(40, 40) + NOTIFY.format(60)
    assert rows(limit="10", attributes=attributes, notify="Type=simple")["cleanup"].outer_ns == 10 * S
    assert rows(limit="10", attributes=attributes, notify="NotifyAccess=main")["cleanup"].outer_ns == 60 * S


def test_a_phase_without_a_limit_is_cut_off_by_any_clock_and_by_none_without_one():
    assert rows(limit="1h")["cleanup"].verdict == "cut"
    found = rows(limit="infinity")["cleanup"]
    assert (found.verdict, found.outer_ns, found.outer) == ("open", None, "nobody")


def test_what_nothing_limits_is_ended_by_nobody():
    extra = "TimeoutStartSec=0\nExecStop=/usr/bin/ctl\nExecStopPost=/usr/bin/report\n"
    found = rows(limit="infinity", extra=extra)
    assert {found[phase].outer for phase in ("start", "cleanup", "stop-sigterm", "stop-post")} == {"nobody"}
    assert (found["reboot"].inner, found["reboot"].verdict) == ("nothing", "cut")


def test_rc3_of_flux_is_open_for_it_extends_the_deadline_as_it_goes_on():
    assert rows(attributes=LIMITS.format(1, 1) + NOTIFY.format(60))["finalize"].verdict == "open"


def test_under_a_wrapper_everything_has_to_fit_into_one_line_of_execstop():
    stop = "NotifyAccess=exec\nExecStop=+/usr/bin/python3 -I -m brokerctl stop\n"
    found = rows(limit="20min", attributes=LIMITS.format(45, "5m") + NOTIFY.format(90), extra=stop)
    defaults = StopSettings()
    ladder_ns = bounds.ladder_ns(defaults)
    asking_ns = bounds.stop_asking_ns(defaults)
    before_ns = asking_ns + found["site actions"].inner_ns
    assert found["asking"].inner_ns == asking_ns
    assert found["site actions"].inner_ns >= defaults.actions_timeout_ns + ladder_ns
    assert found["cleanup"].inner_ns == 45 * S + defaults.holders_after_ns + ladder_ns + SLACK
    assert found["cleanup"].outer_ns == 20 * MINUTE - before_ns
    assert found["finalize"].outer_ns is None
    assert found["finalize"].outer == "nobody, while it makes progress"
    assert all(row.verdict != "cut" for row in found.values())
    assert {"stop-sigterm", "reboot"} <= set(found)


def test_a_requested_stop_has_no_cleanup_timeout():
    found = rows(limit="90", attributes=LIMITS.format(45, 1), extra="ExecStop=/usr/bin/flux shutdown\n")
    assert found["cleanup"].inner_ns is None
    assert found["cleanup"].outer == "TimeoutStopSec: SIGTERM, SIGKILL"
    assert found["cleanup"].lost == "what is left of cleanup; the SIGTERM may hit rc3"


def test_the_limits_of_brokerctl_run_are_those_of_its_policy():
    text = "[Service]\nType=notify\nTimeoutStopSec=10min\nExecStart=/usr/bin/brokerctl run --config /not/here.toml\n"
    unit = Subject(Unit("x.service", [parse(text.encode(), "x.service")]))
    found = {row.phase: row for row in chain.rows(unit)}
    assert found["cleanup"].inner_ns == 57 * S + SLACK
    assert found["finalize"].inner_ns == 5 * MINUTE + 12 * S + SLACK


def test_attributes_are_read_through_a_shell_and_keep_their_places():
    path = FIXTURES.parent / "units" / "flux.service"
    unit = Subject(Unit("flux.service", [parse(path.read_bytes(), "flux.service")]))
    attribute = unit.broker.attribute("broker.shutdown-timeout")
    line = path.read_text().splitlines()[attribute.at.line - 1]
    assert line[attribute.at.column - 1 :].startswith("broker.shutdown-timeout=5m")
    assert unit.broker.config_path == "/etc/flux/system/conf.d"


@pytest.mark.parametrize(
    "words", ["-S broker.cleanup-timeout=9", "--setattr=broker.cleanup-timeout=9", "-Sbroker.cleanup-timeout=9"]
)
def test_an_attribute_may_be_spelt_in_every_way_that_flux_takes(words):
    assert rows(attributes=words)["cleanup"].inner_ns == 9 * S + SLACK


def test_attributes_of_flux_start_are_those_that_it_hands_on():
    text = "[Service]\nExecStart=/usr/bin/flux start -o,-Sbroker.cleanup-timeout=9\n"
    unit = Subject(Unit("x.service", [parse(text.encode(), "x.service")]))
    assert unit.broker.settings.cleanup_timeout_ns == 9 * S


def test_a_value_that_only_the_shell_knows_is_not_judged():
    unit = Subject(Unit("x.service", [parse(b"[Service]\nExecStart=/usr/bin/flux broker -Sbroker.quorum=${N}\n", "x")]))
    assert not unit.broker.wrong
