"""Inside of a pid namespace: a worker dies, and its pid is given to somebody innocent. Prints what became of that one.

With `broken` the guard is off: then the innocent must be hit, or this would show nothing.
"""

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

from brokerctl.durations import S
from brokerctl.heartbeat import Heartbeat
from brokerctl.kernel import pidfd
from brokerctl.monitors import process
from brokerctl.settings import Rung


def child(do):
    pid = os.fork()
    if pid == 0:
        do()
        os._exit(0)
    return pid


def work(file):
    heart = Heartbeat(file, limit_ns=60 * S)
    heart.ready()
    while True:
        heart.beat()
        time.sleep(0.01)


def sleep():
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    time.sleep(60)


def main(file, how):
    monitor = process.ProcessMonitor(ladder=(Rung(signal.SIGTERM, S), Rung(signal.SIGKILL, S)))
    worker = child(lambda: work(file))
    while not Path(file).exists() or "state=ready" not in Path(file).read_text():
        time.sleep(0.01)
    monitor.add(file, name="worker")
    met = how != "unmet"
    if met:
        print("before", monitor.look()[0].condition)
    os.kill(worker, signal.SIGKILL)
    os.waitpid(worker, 0)
    time.sleep(0.05)  # another clock tick: who is born now has another start
    Path("/proc/sys/kernel/ns_last_pid").write_text(str(worker - 1))
    innocent = child(sleep)
    print("reused", innocent == worker)
    if how == "broken":
        process._is_it = lambda _beat: True
        monitor._workers["worker"].fd = pidfd.open_pid(worker)
    found = monitor.look()[0] if how != "broken" else None
    if found is not None:
        print("after", found.condition, found.text)
    print("stopped", monitor.stop("worker"))
    time.sleep(0.2)
    print("innocent", "dead" if os.waitpid(innocent, os.WNOHANG)[0] else "alive")
    with contextlib.suppress(ProcessLookupError):
        os.kill(innocent, signal.SIGKILL)
    monitor.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
