"""A main for tests of the core: `phased.py STATE`: writes its state there, and on SIGTERM walks through a stop.

A second SIGTERM in FINALIZE cuts it: it ends without `saved`.
"""

from __future__ import annotations

import os
import signal
import sys
import time

place = sys.argv[1]
terms = 0


def tell(state: str) -> None:
    with open(f"{place}.new", "w") as file:  # noqa: PTH123
        file.write(state)
    os.replace(f"{place}.new", place)  # noqa: PTH105


def heard(_signum, _frame) -> None:
    global terms  # noqa: PLW0603
    terms += 1


signal.signal(signal.SIGTERM, heard)
tell("run")
while not terms:
    time.sleep(0.01)
for state, lasts_s in (("cleanup", 1.5), ("shutdown", 0.5), ("finalize", 0.5)):  # a wrapper may begin in the first
    tell(state)
    ends = time.monotonic() + lasts_s
    while time.monotonic() < ends:
        time.sleep(0.01)
        if state == "finalize" and terms > 1:
            tell("cut")
            sys.exit(1)
tell(f"saved after {terms}")
