"""The report for people."""

import msgspec

from brokerctl.report import text


def test_a_verdict_says_how_it_ended_who_held_it_up_and_what_failed(results):
    shown = text.verdict(results[1])
    assert shown.splitlines()[:5] == [
        "bad#1 (sim, flux): FAILED",
        "  exit code 129, 45s after the stop began",
        "  held up by cleanup.3: flux queue idle --quiet for 44s: rc=129",
        "        then rc3.0: x for 300ms",
        "  5 of 7 expectations and invariants hold",
    ]
    assert "  expect.exit: expected exit code 0, got 129\n" in shown
    assert "  x (rank 3): bell" in shown
    assert shown.endswith("  run it again: brokerctl simulate scenarios/bad#1.toml\n")


def test_a_story_has_times_in_seconds_and_names_what_is_left_out(results):
    lines = text.story(results[1]).splitlines()
    assert lines[0].strip() == "… 12 earlier lines"
    assert lines[1] == "    0.000 broker.info[0]: shutdown: run->cleanup 1s"
    assert lines[2].startswith("   45.000 broker.err[0]: cleanup.0: bell")
    assert lines[3] == "   45.000 broker.err[0]: second line"


def test_what_a_process_printed_commands_no_terminal(results):
    shown = text.report(results)
    assert shown.replace("\n", "").isprintable()
    assert "ƒ39firM4HrF" in shown
    shown.encode()


def test_colour_is_only_where_it_is_asked_for(results):
    assert "\x1b[" not in text.report(results)
    coloured = text.report(results, colour=True)
    assert "\x1b[31mFAILED" in coloured
    assert all(line.count("\x1b[0m") <= 1 for line in coloured.splitlines())
    assert all(line.endswith("\x1b[0m") or "\x1b[0m " in line for line in coloured.splitlines() if "\x1b[" in line)


def test_a_report_lists_all_tells_what_failed_and_counts(results):
    lines = text.report(results).splitlines()
    assert lines[0] == "ok       sim   good"
    assert lines[1] == "FAILED   sim   bad#1"
    assert lines[2] == "skipped  live  other: world live lacks ranks"
    assert lines[-1] == "1 passed, 1 failed, 1 skipped"


def test_each_way_to_end_has_its_words(results):
    good = results[0]
    assert text.ending(good) == "exit code 0, 2.0s after the stop began"
    assert text.ending(msgspec.structs.replace(good, stop_ns=None)) == "exit code 0"
    assert text.ending(msgspec.structs.replace(good, outcome="stuck")).startswith("stuck: nothing can happen")
    assert text.ending(msgspec.structs.replace(good, outcome="horizon")) == "not ended at the horizon"
    assert text.ending(msgspec.structs.replace(good, outcome="")) == "could not be run"
