"""The report for people."""

import msgspec

from brokerctl.durations import MS, S
from brokerctl.logs.fluxlog import INFO, Entry
from brokerctl.report import text
from brokerctl.report.result import Told


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
    assert text.ending(msgspec.structs.replace(good, outcome="")) == "could not be run"
    alive = msgspec.structs.replace(good, exit_code=None, stop_ns=None)
    assert text.ending(msgspec.structs.replace(alive, outcome="stuck")).startswith("stuck: nothing can happen")
    assert text.ending(msgspec.structs.replace(alive, outcome="horizon")) == "not ended at the horizon"


def test_where_only_followers_have_not_ended_the_leaders_code_is_told_and_how_many_they_are(results):
    many = msgspec.structs.replace(results[0], size=3000, unended=1200)
    assert text.ending(many) == "exit code 0, 2.0s after the stop began; 1,200 ranks are frozen for good"
    assert text.ending(msgspec.structs.replace(many, unended=1)).endswith("; 1 rank is frozen for good")
    stuck = msgspec.structs.replace(many, outcome="stuck")
    assert text.ending(stuck) == "exit code 0, 2.0s after the stop began; 1,200 ranks are stuck"


def test_equal_entries_of_many_ranks_are_one_with_the_range_of_their_times():
    entry = Entry(INFO, "broker", 1, "shutdown: run->cleanup 1s")
    assert text.entry(Told(5 * S, entry, 5 * S + 2 * MS, "1-255")) == (
        "    5.000-5.002     broker.info[1-255]: shutdown: run->cleanup 1s"
    )
    assert text.entry(Told(5 * S, entry, 5 * S, "1")) == (
        "    5.000           broker.info[1]: shutdown: run->cleanup 1s"
    )


def test_a_large_run_says_what_was_not_looked_at_and_how_long_it_really_took(results):
    large = msgspec.structs.replace(
        results[0], size=16384, checks=9, unchecked=("well-formed",), elapsed_ns=2 * S, stopping_ns=1 * S
    )
    assert text.verdict(large).splitlines()[2:] == [
        "  9 of 9 expectations and invariants hold; not looked at: well-formed",
        "  16,384 ranks took 2.0s of real time, 1.0s of it the stop",
    ]
