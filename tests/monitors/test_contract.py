import pytest

from brokerctl.heartbeat import Heartbeat, S
from brokerctl.monitors.contract import EXTERNAL, Health, Tender
from brokerctl.monitors.kubernetes import KubernetesMonitor


class Scripted:
    """A monitor that tells what it is told to."""

    name = "scripted"

    def __init__(self, capabilities=frozenset()):
        self.capabilities = capabilities
        self.now = []
        self.stopped = []

    def look(self):
        return self.now

    def stop(self, worker):
        self.stopped.append(worker)
        return True


def health(condition, life="one", worker="w"):
    return Health(worker, condition, condition == "alive", life, condition)


@pytest.fixture
def scripted():
    return Scripted()


@pytest.fixture
def dead():
    return []


@pytest.fixture
def tender(scripted, dead):
    def see(*now):
        scripted.now = list(now)
        made.turn()

    made = Tender(scripted, lambda found: dead.append((found.worker, found.life, found.text)))
    return see


@pytest.mark.parametrize("condition", ["late", "swollen"])
def test_it_stops_once_what_nobody_else_would(tender, scripted, dead, condition):
    tender(health("alive"))
    for _ in range(3):
        tender(health(condition))
    assert scripted.stopped == ["w"]
    assert dead == []
    tender(health("gone"))
    tender(health("gone"))
    assert dead == [("w", "one", "gone")]


@pytest.mark.parametrize(
    ("condition", "capability"), [("late", "external-liveness"), ("swollen", "external-resource-limits")]
)
def test_it_leaves_to_others_what_they_do(condition, capability):
    scripted = Scripted(EXTERNAL - {capability})
    scripted.now = [health(condition)]
    Tender(scripted, lambda _health: None).turn()
    assert scripted.stopped == ["w"]
    scripted = Scripted(frozenset({capability}))
    scripted.now = [health(condition)]
    Tender(scripted, lambda _health: None).turn()
    assert scripted.stopped == []


def test_a_new_life_means_that_the_one_before_has_ended(tender, dead):
    tender(health("alive"))
    tender(health("alive", "two"))
    tender(health("gone", "two"))
    assert dead == [("w", "one", "another life has taken its place"), ("w", "two", "gone")]


def test_whoever_was_never_there_has_not_died(tender, dead):
    tender(health("gone", ""))
    assert dead == []


def test_a_file_that_vanishes_is_the_end_of_its_worker(tender, dead):
    tender(health("alive"))
    tender(health("gone", ""))
    tender(health("gone", ""))
    assert dead == [("w", "one", "gone")]


def test_a_new_life_is_stopped_again(tender, scripted):
    tender(health("late"))
    tender(health("late", "two"))
    assert scripted.stopped == ["w", "w"]


def test_in_a_pod_only_beats_count_unless_processes_are_shared(tmp_path):
    heart = Heartbeat(tmp_path / "w", limit_ns=60 * S)
    heart.ready()
    (tmp_path / "w").write_text((tmp_path / "w").read_text().replace("start_ticks=", "start_ticks=1"))
    assert [found.condition for found in KubernetesMonitor(tmp_path).look()] == ["alive"]
    assert [found.condition for found in KubernetesMonitor(tmp_path, shared_pids=True).look()] == ["gone"]
    assert KubernetesMonitor(tmp_path).stop("w") is False
    assert KubernetesMonitor(tmp_path).capabilities == EXTERNAL
    heart.close()
