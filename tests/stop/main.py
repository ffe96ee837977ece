"""A main process that writes down its signals: `main.py FILE AFTER CODE` ends so long after SIGTERM (`never`)."""

from __future__ import annotations

import os
import signal
import sys
import time

place, after, code = sys.argv[1:]
ends: list[float] = []


def heard(signum, _frame):
    with open(place, "a") as file:  # noqa: PTH123
        file.write(f"{signal.Signals(signum).name[3:]}\n")
    if signum == signal.SIGTERM and after != "never":
        ends.append(time.monotonic() + float(after))


for each in (signal.SIGTERM, signal.SIGCONT, signal.SIGHUP, signal.SIGINT):
    signal.signal(each, heard)
with open(f"{place}.pid", "w") as file:  # noqa: PTH123
    file.write(str(os.getpid()))
while not ends or time.monotonic() < ends[0]:
    time.sleep(0.02)
sys.exit(int(code))
