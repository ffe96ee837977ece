"""TAP, read back by an independent consumer (tappy)."""

import warnings

from tap.parser import Parser

from brokerctl.report import tap


def test_the_document_is_tap_14_with_a_plan(results):
    lines = tap.report(results).splitlines()
    assert lines[:3] == ["TAP version 14", "1..3", "ok 1 - good (sim, flux)"]
    assert "not ok 2 - bad\\#1 (sim, flux)" in lines
    assert "ok 3 - other (live, flux) # SKIP world live lacks ranks" in lines


def test_a_consumer_reads_status_skip_and_diagnostics(results):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tappy's own, about its YAML support
        parsed = [line for line in Parser().parse_text(tap.report(results)) if line.category == "test"]
    assert [line.ok for line in parsed] == [True, False, True]
    assert [line.number for line in parsed] == [1, 2, 3]
    assert [line.skip for line in parsed] == [False, False, True]
    assert "world live lacks ranks" in parsed[2].directive.reason


def test_diagnostics_are_yaml_that_says_what_failed_and_how_to_run_it_again(results):
    yaml = __import__("pytest").importorskip("yaml")
    report = tap.report(results)
    block = report[report.index("  ---\n") + 6 : report.index("  ...\n")]
    read = yaml.safe_load(block)
    assert read["ending"] == "exit code 129, 45s after the stop began"
    assert read["failures"][0] == "expect.exit: expected exit code 0, got 129"
    assert read["replay"] == "brokerctl simulate scenarios/bad#1.toml"


def test_a_document_without_results_is_an_empty_plan():
    assert tap.report([]) == "TAP version 14\n1..0\n"
