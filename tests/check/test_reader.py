"""Lines reach those who want their kind, and a world is asked for no others."""

from brokerctl.check.reader import Dispatch
from brokerctl.records import Ended, Exit, Line, Moved


def line(what):
    return Line(0, 0, 0, ">", what)


def test_each_line_goes_to_those_who_want_its_kind_in_their_order():
    seen = []
    dispatch = Dispatch(
        [
            (frozenset({Exit}), lambda one: seen.append(("exits", one.what))),
            (frozenset({Exit, Moved}), lambda one: seen.append(("both", one.what))),
        ]
    )
    exited, moved = Exit(0), Moved("event", "run", "cleanup", 0)
    for what in (exited, moved, Ended("rc1.0", "it", 0, "Exited", 0)):
        dispatch.see(line(what))
    assert seen == [("exits", exited), ("both", exited), ("both", moved)]
    assert dispatch.wants == {Exit, Moved}


def test_one_who_wants_every_line_makes_all_of_them_wanted():
    seen = []
    dispatch = Dispatch([(frozenset({Exit}), lambda _one: None), (None, seen.append)])
    assert dispatch.wants is None
    dispatch.see(line(Ended("rc1.0", "it", 0, "Exited", 0)))
    assert len(seen) == 1


def test_nobody_wants_nothing():
    assert Dispatch([]).wants == frozenset()
