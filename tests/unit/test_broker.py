"""The broker in a unit's ExecStart=: which it is, what its attributes say, and where they stand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerctl.durations import S
from brokerctl.unit import broker
from brokerctl.unit.execline import commands
from brokerctl.unit.syntax import parse


def found(value):
    [setting] = parse(f"[Service]\nExecStart={value}\n".encode(), "x.service").settings
    return broker.find(commands(setting))


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("/usr/bin/flux broker -Sbroker.cleanup-timeout=45s", "flux"),
        ("/bin/bash -c 'XDG=1 exec flux broker --setattr broker.cleanup-timeout=45s'", "flux"),
        ("/usr/bin/flux start -o,-Sbroker.cleanup-timeout=45s", "flux"),
        ("/usr/bin/brokerctl run -S broker.cleanup-timeout=45s -- daemon -Sbroker.cleanup-timeout=9s", "brokerctl"),
    ],
)
def test_a_broker_is_found_with_its_attributes_and_their_places(value, kind):
    one = found(value)
    assert (one.kind, one.settings.cleanup_timeout_ns) == (kind, 45 * S)
    place = one.at("broker.cleanup-timeout")
    assert f"ExecStart={value}"[place.column - 1 :].startswith("broker.cleanup-timeout=45s")


def test_what_is_no_broker_is_none():
    for value in ("/bin/true", "/usr/bin/flux queue idle", "/usr/bin/brokerctl stop"):
        assert found(value) is None


def test_an_attribute_that_cannot_be_read_is_told_and_one_that_a_shell_fills_in_is_not():
    one = found("/usr/bin/flux broker -Sbroker.cleanup-timeout=soon -Sbroker.shutdown-timeout=$T")
    assert [attribute.name for attribute, _ in one.wrong] == ["broker.cleanup-timeout"]


@pytest.mark.parametrize("path", ["/nowhere", "x" * 300, "/" + "x/" * 3000, "/dev/zero", "/etc"])
def test_a_configuration_that_is_not_here_may_have_actions(path):
    one = found(f"/usr/bin/brokerctl run --config {path}")
    assert one.settings.cleanup
    assert one.settings.rc3


@given(st.text(alphabet="ab-S=. $%'\"o,09", max_size=40))
def test_any_words_are_a_broker_with_or_without_mistakes(words):
    text = words.replace("'", "").replace('"', "")
    for program in ("/usr/bin/flux broker", "/usr/bin/brokerctl run", "/usr/bin/brokerctl start"):
        found(f"{program} {text}")
