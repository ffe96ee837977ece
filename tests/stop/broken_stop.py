"""`brokerctl stop` with a bug: `broken_stop.py PHASE --pid PID` raises as soon as main is seen in this phase."""

from __future__ import annotations

import sys

from brokerctl import cli
from brokerctl.model.stopper import Stopper

PHASE = sys.argv.pop(1)
handle = Stopper.handle


def broken(self, now_ns, event, out):
    handle(self, now_ns, event, out)
    if self.watch.state == PHASE:
        raise RuntimeError("broken for a test")


Stopper.handle = broken
sys.exit(cli.main(["stop", *sys.argv[1:]]))
