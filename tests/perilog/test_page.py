"""What the page for administrators says is so."""

import re

from brokerctl.cli import units
from brokerctl.perilog import environment, failure, manager, settings, toml
from brokerctl.perilog.names import KINDS
from tests.console import ROOT

PAGE = (ROOT / "docs/perilog.md").read_text()
S = 1_000_000_000


def test_the_example_of_the_settings_can_be_read():
    text = re.search(r"```toml perilog.toml\n(.*?)```", PAGE, re.DOTALL)[1]
    for kind, table in toml.parse(text).items():
        chosen = settings.Settings(kind)
        for key, value in table.items():
            chosen.set(key, value)
    assert chosen.on_failure[1][0] == "logger"


def test_every_key_has_a_row_and_every_allowed_variable_is_named():
    rows = re.findall(r"^\| (`[a-z-]+`(?:, `[a-z-]+`)*) \|", PAGE, re.MULTILINE)
    assert {key for row in rows for key in re.findall(r"[a-z-]+", row)} == set(settings._KEYS)
    for name in (*environment.ALLOWED, *failure.PLACEHOLDERS):
        assert f"`{name}`" in PAGE


def test_the_limits_of_the_page_are_those_of_the_helper_and_the_units_and_nest():
    assert f"30 s, then SIGKILL, 5 s; then `on-failure`, {failure.LIMIT_NS // S} s" in PAGE
    assert (manager.STOP_PATIENCE_NS, manager.KILL_PATIENCE_NS) == (30 * S, 5 * S)
    assert 20 * S < manager.STOP_PATIENCE_NS
    assert manager.STOP_PATIENCE_NS + manager.KILL_PATIENCE_NS + failure.LIMIT_NS < 60 * S
    for kind in KINDS:
        text = units.files()[f"flux-{kind}@.service"]
        assert "TimeoutStopSec=20s\n" in text
        assert f"TimeoutStartSec={'28min' if kind == 'prolog' else 'infinity'}\n" in text
    assert settings.TIMEOUT_NS["prolog"] < 28 * 60 * S < 30 * 60 * S
