"""The bench of the helper measures what it says: each of the three runs the epilog to its end."""

import pytest

from brokerctl.worlds.systemd.private import unsupported
from tests.bench import perilog
from tests.bench.measure import Options


def test_all_three_are_measured_and_the_goal_is_told():
    reason = unsupported()
    if reason:
        pytest.skip(f"no private systemd: {reason}")
    rows = perilog.measure(Options(runs=1))
    assert [row.what.rpartition(", ")[2] for row in rows] == [
        "systemctl start", "flux-run-epilog", "flux-run-epilog", "sh helper",
    ]  # fmt: skip
    assert all(row.value > 0 for row in rows if not row.goal)
    assert [row.goal for row in rows if row.goal] == [2.0]
