"""Words that tests of the wrapper look at: what it told, what it asked with, and peers that hold SHUTDOWN."""

from __future__ import annotations

from brokerctl.durations import MINUTE, MS, S
from brokerctl.records import Log, Query
from brokerctl.records.stops import Holding, Limits, Look, Peers, ShedRank, Sheds
from tests.model.stopper.test_decisions import as_dict
from tests.stopping import Stop

FLUX = Limits(cleanup_timeout_ns=45 * S, shutdown_timeout_ns=5 * MINUTE)
WHOM = "main (pid 4711)"
ERR, WARNING, INFO, DEBUG = 3, 4, 6, 7


def told(stop: Stop) -> list[tuple[int, str]]:
    """The level and the words of each line; all are the wrapper's own, and what its list of site actions says."""
    lines = stop.sent(Log)
    assert {line.component for line in lines if ": not run: " not in line.text} <= {"stop"}
    return [(line.level, line.text) for line in lines]


def statuses(stop: Stop) -> list[str]:
    prefix = "brokerctl stop: "
    found = [text for _, text in stop.notified("STATUS")]
    assert all(text.startswith(prefix) for text in found)
    return [text.removeprefix(prefix) for text in found]


def looks(stop: Stop, **fields) -> None:
    """Answer each look as main would, but for these."""
    stop.answers["look"] = lambda _: Look(**{**as_dict(stop.look()), **fields})


def words_of(stop: Stop, what: str) -> tuple[str, ...]:
    return next(query.words for query in stop.sent(Query) if query.what == what)


HOLDING = Peers(
    "2 peers: picl[1,5]", (Holding(1, "picl1", status="degraded", severs="3-4"), Holding(0, "picl0"), Holding(5))
)


def held(stop: Stop) -> Stop:
    """Peers hold SHUTDOWN until they are shed; one of them can't be."""
    stop.answers["peers"] = lambda _: HOLDING if stop.main.frozen else Peers()
    stop.answers["shed"] = lambda query: (
        (stop.main.frozen.clear(), stop.after(MS, stop.settle))
        and Sheds((ShedRank(1, "picl1", severed="3-4", jobs=("f2", "f3")), ShedRank(5, error=f"not {query.words[0]}")))
    )
    return stop
