"""Results of every kind, some of them hostile to whoever reads them."""

import pytest

from brokerctl.durations import MS, S
from brokerctl.logs.fluxlog import ERR, INFO, Entry
from brokerctl.report.result import Delay, Failure, Result, Told

HOSTILE = "bell \x07 colour \x1b[31m nul \x00 <&>\"' ]]> \ud800 # SKIP ƒ39firM4HrF\\"


def result(name, **more):
    fields = {"path": f"scenarios/{name}.toml", "about": "x", "world": "sim", "policy": "flux", "outcome": "ended"}
    fields |= {"replay": f"brokerctl simulate scenarios/{name}.toml", "checks": 7, "elapsed_ns": 3 * MS}
    return Result(name=name, **(fields | more))


@pytest.fixture
def results():
    return [
        result("good", exit_code=0, stop_ns=2 * S),
        result(
            "bad#1",
            status="failed",
            exit_code=129,
            stop_ns=45 * S,
            failures=(Failure("expect.exit", "expected exit code 0, got 129"), Failure("x", HOSTILE, rank=3)),
            delays=(Delay("cleanup.3: flux queue idle --quiet", 44 * S, "rc=129"), Delay("rc3.0: x", 300 * MS)),
            story=(
                Told(0, Entry(INFO, "broker", 0, "shutdown: run->cleanup 1s")),
                Told(45 * S, Entry(ERR, "broker", 0, f"cleanup.0: {HOSTILE}\nsecond line")),
            ),
            untold=12,
        ),
        result("other", status="skipped", world="live", reason="world live lacks ranks", outcome="", checks=0),
    ]
