"""What docs/flux.md shows of the report and of the verdict of a stop of Flux is what is told of such stops."""

from __future__ import annotations

import re

from brokerctl.durations import MS, S
from brokerctl.ids import f58
from brokerctl.stop import flux, report, verdict
from brokerctl.stop.journal import Entry
from brokerctl.stop.report import After, Before, Facts
from brokerctl.stop.story import story
from tests import console
from tests.console import ROOT
from tests.stop.recordings import life

REPORT, VERDICT = (
    block.body for block in console.blocks((ROOT / "docs/flux.md").read_text()) if block.language == "text"
)
# In the order of the page: recorded endings of a real Flux.
ENDINGS = ("stopped", "cleanup-failed-behind-42", "cleanup-cut-off", "timed-out", "killed")
LONG, WEDGED = 73454603648, 73282879488
RUN = 16  # flux_job_state_t
JOURNAL = (
    (6, "broker.info[0]: shutdown: run->cleanup 300s"),
    (3, "broker.err[0]: cleanup.2: flux cancel --user=all --quiet --states RUN Hangup (rc=129) 0.3s"),
    (6, "broker.info[0]: cleanup-fail: cleanup->shutdown 2.0s"),
    (3, f"job-manager.err[0]: {f58(WEDGED)}: epilog: picl2 (rank 2): No route to host"),
    (3, f"job-manager.err[0]: housekeeping: picl2 (rank 2) {f58(WEDGED)}: No route to host"),
    (6, "broker.info[0]: children-complete: shutdown->finalize 62s"),
    (6, "broker.info[0]: rc3.0: flux modprobe rc3 Exited (rc=0) 0.8s"),
    (6, "broker.info[0]: rc3-success: finalize->goodbye 0.85s"),
)


def told(lines: list[str]) -> list[str]:
    return [re.sub(r"^<\d>", "", line) for line in lines]


def test_the_verdicts_are_those_of_recorded_endings():
    for line, name in zip(VERDICT.splitlines(), ENDINGS, strict=True):
        assert console.alike(line, verdict.verdict(*life(name)).text.replace("/flux-0/", "/flux/"))


def test_the_report_is_that_of_such_a_stop():
    jobs = [
        flux.Job(LONG, 1000, RUN, 1, "1", "long"),
        flux.Job(WEDGED, 1000, flux.STATE_CLEANUP, 3, "0-2", "wedged"),
    ]
    before = report.before(Before(jobs, {1000: "alice"}))
    lines, _ = report.after(
        After(
            Facts(66 * S, "exit", (("cleanup", 2 * S), ("shutdown", 62 * S), ("finalize", 850 * MS)), "2"),
            story([Entry("flux", level, text) for level, text in JOURNAL], 0),
            "exit 129", dumps=True, dump=("/var/lib/flux/dump/20261129_215640.tgz", 3277, True), unit="flux.service",
        )
    )  # fmt: skip
    shown = [line for line in REPORT.splitlines() if "picl2" not in line]  # the stopper's: tests/model/stopper
    assert told([*before, *lines]) == shown
