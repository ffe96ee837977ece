import os
import signal
import statistics
import time

import pytest

from brokerctl.worlds.live.loop import READ, WRITE, Loop

# Python 3.12 warns of forks beside threads; the test runner may have some.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")

MS = 1_000_000
PATIENCE_NS = 20_000 * MS


@pytest.fixture
def loop():
    with Loop() as made:
        made.after(PATIENCE_NS, lambda: pytest.fail("the loop was never stopped"))
        yield made


@pytest.fixture
def pipe():
    reader, writer = os.pipe()
    yield reader, writer
    os.close(reader)
    os.close(writer)


def test_timers_fire_in_the_order_of_their_deadlines_and_equal_ones_as_armed(loop):
    seen = []
    now_ns = time.monotonic_ns()
    for name, delay_ms in (("c", 30), ("a", 10), ("b1", 20), ("b2", 20)):
        loop.at(now_ns + delay_ms * MS, lambda name=name: seen.append(name))
    loop.at(now_ns + 40 * MS, loop.stop)
    loop.run()
    assert seen == ["a", "b1", "b2", "c"]


def test_a_timer_is_never_early_and_rarely_late(loop):
    late_ns = []

    def again(due_ns, left):
        late_ns.append(time.monotonic_ns() - due_ns)
        if not left:
            loop.stop()
            return
        due_ns = time.monotonic_ns() + 3 * MS + left * 7919
        loop.at(due_ns, lambda: again(due_ns, left - 1))

    again(time.monotonic_ns(), 100)
    loop.run()
    assert min(late_ns) >= 0
    assert statistics.median(late_ns) < 5 * MS


def test_a_cancelled_timer_never_fires_not_even_when_it_is_due(loop):
    seen = []
    now_ns = time.monotonic_ns()
    victim = loop.at(now_ns + 1, lambda: seen.append("victim"))
    loop.at(now_ns, victim.cancel)
    loop.at(now_ns + 20 * MS, loop.stop)
    loop.run()
    assert not seen
    victim.cancel()  # again is no error


def test_cancelled_timers_do_not_pile_up(loop):
    for _ in range(10_000):
        loop.after(PATIENCE_NS, lambda: None).cancel()
    assert len(loop._heap) < 200
    assert loop.armed() == 1


def test_a_timer_that_arms_itself_for_now_does_not_starve_the_others(loop):
    turns = []

    def again():
        turns.append(1)
        loop.after(0, again)

    again()
    loop.after(20 * MS, loop.stop)
    loop.run()
    assert len(turns) > 1


def test_a_signal_arrives_as_a_callback_even_when_nothing_else_wakes_the_loop(loop):
    seen = []

    def got(signum):
        seen.append(signum)
        if len(seen) == 2:
            loop.stop()

    loop.ignore(signal.SIGPIPE)
    loop.handle((signal.SIGUSR1, signal.SIGUSR2))
    loop.on_signal = got
    sender = os.fork()
    if sender == 0:
        try:
            parent = os.getppid()
            for signum in (signal.SIGUSR1, signal.SIGUSR2):
                time.sleep(0.1)
                os.kill(parent, signum)
        finally:
            os._exit(0)
    loop.run()
    os.waitpid(sender, 0)
    assert seen == [signal.SIGUSR1, signal.SIGUSR2]


def test_a_signal_before_the_loop_runs_is_not_lost(loop):
    loop.handle((signal.SIGUSR1,))
    loop.on_signal = lambda _: loop.stop()
    os.kill(os.getpid(), signal.SIGUSR1)
    loop.run()


def test_thousands_of_signals_fill_nothing_up(loop):
    """The wake-up socket overflows; a signal of another number is delivered all the same."""
    seen = set()

    def got(signum):
        seen.add(signum)
        if signum == signal.SIGUSR2:
            loop.stop()

    loop.handle((signal.SIGUSR1, signal.SIGUSR2))
    loop.on_signal = got
    for _ in range(5000):
        os.kill(os.getpid(), signal.SIGUSR1)
    os.kill(os.getpid(), signal.SIGUSR2)
    loop.run()
    assert seen == {signal.SIGUSR1, signal.SIGUSR2}


def test_handlers_and_wakeup_are_put_back(loop):
    before = signal.getsignal(signal.SIGUSR1)
    with Loop() as inner:
        inner.handle((signal.SIGUSR1,))
        assert signal.getsignal(signal.SIGUSR1) != before
    assert signal.getsignal(signal.SIGUSR1) == before
    assert signal.set_wakeup_fd(loop._wakeup.fileno()) == loop._wakeup.fileno()


def test_settle_follows_every_callback(loop, pipe):
    story = []
    os.write(pipe[1], b"x")
    loop.watch(pipe[0], READ, lambda _: (story.append("read"), loop.unwatch(pipe[0]), loop.after(0, done)))
    loop.settle = lambda: story.append("settle")

    def done():
        story.append("timer")
        loop.stop()

    loop.run()
    assert story == ["settle", "read", "settle", "timer", "settle"]


def test_what_an_earlier_callback_of_the_turn_unwatched_is_not_called(loop, pipe):
    seen = []
    other = os.dup(pipe[0])
    os.write(pipe[1], b"x")

    def first(name, rival):
        seen.append(name)
        loop.unwatch(rival)
        loop.stop()

    loop.watch(pipe[0], READ, lambda _: first("a", other))
    loop.watch(other, READ, lambda _: first("b", pipe[0]))
    loop.run()
    os.close(other)
    assert len(seen) == 1


def test_nothing_is_called_after_stop(loop):
    seen = []
    loop.after(0, lambda: (seen.append("stop"), loop.stop()))
    loop.after(0, lambda: seen.append("late"))
    loop.run()
    assert seen == ["stop"]


def test_a_flood_of_input_delays_no_timer(loop, pipe):
    turns = []
    loop.watch(pipe[1], WRITE, lambda _: turns.append(1))
    loop.after(20 * MS, loop.stop)
    loop.run()
    assert len(turns) > 10
