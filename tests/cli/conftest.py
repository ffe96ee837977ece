"""The fixture that starts brokers, and looks at what they left."""

import pytest

from brokerctl.kernel import proc
from tests.cli.outsider import PATIENCE_S, Broker, replays


@pytest.fixture
def start(tmp_path_factory):
    """Starts brokers; at its end each has ended, left nothing behind, and wrote a trace that replays."""
    folder = tmp_path_factory.mktemp("b")
    brokers = []

    def start_one(*words, **options):
        brokers.append(Broker(folder / str(len(brokers)), *words, **options))
        return brokers[-1]

    yield start_one
    problems = []
    for broker in brokers:
        if broker.process.poll() is None:
            problems.append(f"{broker.argv} still runs")
        if left := [proc.command(pid) for pid in broker.left()]:
            problems.append(f"left behind: {left}")
            broker.kill_left()
        broker.process.wait(PATIENCE_S)
        if (broker.rundir / "lock").exists() and broker.process.returncode >= 0:
            problems.append(f"{broker.rundir} is still there")
    assert not problems
    for broker in brokers:
        # One that was killed may have told half of what it did.
        if broker.process.returncode >= 0 and broker.lines():
            assert replays(broker.trace)
