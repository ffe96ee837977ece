"""When the journal of a life is read, and when journald is asked to catch up first."""

import json

import pytest

from brokerctl.stop.errands import Command, Said
from brokerctl.stop.journal import entries
from tests.stop.recordings import drive

RUNNING = "broker.info[0]: quorum-full: quorum->run 0.1s"
ENDED = "broker.info[0]: builtins-done: unload-builtins->exit 1.0ms"


def journald(*readings):
    """Answers as journalctl would, each reading with one more list of messages."""
    left = list(readings)

    def answer(words):
        if words[0] != "journalctl" or "--sync" in words:
            return ""
        return "".join(json.dumps({"MESSAGE": text, "PRIORITY": "6"}) + "\n" for text in left.pop(0))

    return answer


def syncs(asked):
    return sum("--sync" in command.argv for command in asked)


def test_where_a_broker_told_its_end_the_journal_is_read_once():
    (found, _), asked = drive(entries("1f"), journald([RUNNING, ENDED]))
    assert [entry.text for entry in found] == [RUNNING, ENDED]
    assert syncs(asked) == 0
    assert len(asked) == 1


@pytest.mark.parametrize(("manager", "first"), [(False, [RUNNING]), (False, []), (True, [RUNNING, ENDED])])
def test_where_something_may_be_missing_journald_catches_up_and_it_is_read_again(manager, first):
    (found, _), asked = drive(entries("1f", manager=manager), journald(first, [RUNNING, ENDED, "more"]))
    assert [entry.text for entry in found] == [RUNNING, ENDED, "more"]
    assert syncs(asked) == 1


def test_what_is_asked_beside_it_is_asked_once_and_at_the_same_time():
    errand = entries("1f", Command(["one"]), Command(["two"]))
    assert [command.argv[0] for command in next(errand)] == ["journalctl", "one", "two"]
    said = [Said(""), Said("1"), Said("2")]
    assert [command.argv for command in errand.send(said)] == [["journalctl", "--sync"]]
    assert len(errand.send([Said("")])) == 1
    with pytest.raises(StopIteration) as end:
        errand.send([Said("")])
    assert end.value.value == ([], said[1:])


def test_a_life_without_an_id_has_no_journal():
    (found, said), asked = drive(entries("", Command(["one"])), journald())
    assert (found, said, len(asked)) == ([], [Said("")], 1)
