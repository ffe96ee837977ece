"""Ignores, the order of findings, and a broken command that silences the rest."""

from tests.lint.conftest import FIXTURES

NO_KILL = "[Service]\nExecStart=/usr/bin/program\nSendSIGKILL=no\n"


def test_a_comment_with_a_reason_takes_a_rule_out(judge):
    assert judge(NO_KILL) == ["no-sigkill"]
    assert judge("# brokerctl: ignore=no-sigkill it writes for hours\n" + NO_KILL) == []


def test_a_comment_in_a_drop_in_takes_a_rule_out_of_the_unit(judge, tmp_path):
    (tmp_path / "site.service.d").mkdir()
    (tmp_path / "site.service.d" / "x.conf").write_text("# brokerctl: ignore=no-sigkill it writes for hours\n[Unit]\n")
    assert judge(NO_KILL) == []


def test_a_comment_without_a_reason_takes_nothing_out(judge):
    assert judge("; brokerctl: ignore=no-sigkill\n" + NO_KILL) == ["ignore-comment", "no-sigkill"]


def test_a_comment_takes_out_one_rule_alone(judge):
    text = "# brokerctl: ignore=no-sigkill it writes for hours\n" + NO_KILL + "KillMode=none\n"
    assert judge(text) == ["killmode-leaves-survivors"]


def test_a_command_that_breaks_off_is_told_and_nothing_else_of_it(judge):
    text = (FIXTURES.parent / "units" / "flux.service").read_text()
    assert "chain-shutdown" in judge(text, "flux.service")
    broken = text.replace("    -Sbroker.quorum=1 \\\n", "    -Sbroker.quorum=1\n")
    assert judge(broken, "flux.service") == ["missing-backslash"]
    assert judge(text.replace("    -Sbroker.quorum=1 \\\n", "    -Sbroker.quorum=1 \\ \n"), "flux.service") == [
        "missing-backslash"
    ]
    assert judge(text.replace("    -Sbroker.quorum=1 \\\n", "\n"), "flux.service") == ["missing-backslash"]


def test_findings_come_in_the_order_of_the_lines(judge):
    text = "[Service]\nKillMode=none\nExecStart=/usr/bin/program\nSendSIGKILL=no\nTimeoutStopSec=0\n"
    assert judge(text) == ["killmode-leaves-survivors", "no-sigkill", "infinite-stop"]
