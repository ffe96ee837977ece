"""The kill ladder: one rung after the other, each once; on the last one its signal again."""

from brokerctl.model.ladder import Ladder
from brokerctl.settings import Rung

HUP, TERM, KILL = Rung(1, 2), Rung(15, 5), Rung(9, 5)


def test_it_is_climbed_rung_by_rung_to_its_end():
    ladder = Ladder((HUP, TERM, KILL))
    assert [ladder.climb() for _ in range(5)] == [HUP, TERM, KILL, None, None]


def test_what_was_sent_is_known_at_each_rung():
    ladder = Ladder((HUP, TERM, KILL))
    seen = [ladder.sent()]
    while ladder.climb():
        seen.append(ladder.sent())
    assert seen == [(), (1,), (1, 15), (1, 15, 9)]


def test_who_hurries_goes_one_rung_further_and_on_the_last_one_sends_its_signal_again():
    ladder = Ladder((HUP, TERM))
    assert [ladder.hurry() for _ in range(4)] == [HUP, TERM, TERM, TERM]
    assert ladder.sent() == (1, 15)
