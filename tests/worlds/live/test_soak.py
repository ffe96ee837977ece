"""Random rounds of real trees under faults; BROKERCTL_SOAK_ROUNDS sets how many (`make soak`: 200)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from brokerctl.durations import MINUTE
from brokerctl.records import Goodbye, Lost, Received, Start
from brokerctl.worlds.sim.world import SimWorld
from tests.worlds.live.soak import CELLS, HORIZON_NS, Round, broken

ROUNDS = int(os.environ.get("BROKERCTL_SOAK_ROUNDS", "30"))
FIRST = int(os.environ.get("BROKERCTL_SOAK_FIRST", "0"))
AT_ONCE = 2
# A round takes some 8 s, most of it waiting; one that hangs is ended by its horizon.
ROUND_LIMIT_S = 90
HOUR_NS = 60 * MINUTE
ROOT = Path(__file__).parents[3]


def test_a_table_of_faults_and_states_is_hit_in_every_cell():
    assert {(made.fault, made.state) for made in map(Round, range(ROUNDS))} == set(CELLS[:ROUNDS])
    assert len(CELLS) <= ROUNDS


@pytest.mark.slow
def test_random_rounds_hold_their_bounds_leave_nothing_and_exit_honestly():
    share = -(-ROUNDS // AT_ONCE)
    parts = [(FIRST + at, min(share, ROUNDS - at)) for at in range(0, ROUNDS, share)]
    players = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.worlds.live.soak", str(first), str(count)],
            cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for first, count in parts
    ]  # fmt: skip
    try:
        told = [player.communicate(timeout=share * ROUND_LIMIT_S)[0] for player in players]
    finally:
        for player in players:
            player.kill()
            player.wait()
    print(*told, sep="")
    assert [player.returncode for player in players] == [0] * len(players), "".join(told)
    assert "".join(told).count("held seed") == ROUNDS


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_the_same_rounds_hold_in_virtual_time_too(seed):
    played, lines = Round(seed), []
    resolved = played.resolved()
    outcome = SimWorld().run(resolved, lines.append, HORIZON_NS)
    assert broken(played, resolved, lines) == []
    assert outcome.kind == ("stuck" if played.froze(outcome) and played.victim == 0 else "ended")


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_under_flux_they_break_exactly_where_flux_has_no_bound(seed):
    played, lines = Round(seed), []
    outcome = SimWorld().run(played.resolved("flux"), lines.append, HOUR_NS)
    broken_rank = played.victim if played.fault != "cut" else -1
    left = {rank for rank in range(played.size) if rank not in outcome.exits} - {broken_rank}
    assert bool(left) == _has_no_bound(played, lines, outcome), (str(played), outcome.kind, left)
    for line in lines:
        # 86, 105: who has lost its parent notices nothing for heartbeat.timeout.
        if isinstance(line.what, Lost) and line.what.peer == played.parents()[line.rank]:
            assert line.what.why == "no heartbeat for 5m"
            assert line.t_ns >= 5 * MINUTE


def _has_no_bound(played, lines, outcome):
    """What FLUX.md says that nothing ever ends."""
    said_goodbye = any(
        isinstance(line.what, Received) and line.what.peer == played.victim and isinstance(line.what.message, Goodbye)
        for line in lines
        if line.rank == played.parents()[played.victim]
    )
    # 91: SHUTDOWN waits for a frozen child.
    frozen = played.froze(outcome) and played.victim > 0 and not said_goodbye
    # 27: an action gets one SIGHUP.
    deaf = played.ignores_hup and played.lasts is None and _started(lines, "rexec.cleanup.0")
    # 32: nothing ends rc3.
    saves = played.saves is None and _started(lines, "rc3.0")
    return frozen or deaf or saves


def _started(lines, run):
    return any(isinstance(line.what, Start) and line.what.run == run for line in lines)
