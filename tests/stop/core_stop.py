"""`brokerctl stop` around `phased.py`: `core_stop.py STATE HOW --pid PID …`; HOW breaks it, "" doesn't."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import msgspec

from brokerctl import cli
from brokerctl.durations import MS, S
from brokerctl.model.stopper import Stopper, watch
from brokerctl.records import Signal, SignalMain
from brokerctl.records.stops import Look, Report
from brokerctl.stop import core, protocol, target

state, how = Path(sys.argv[1]), sys.argv[2]
what, _, where = how.partition(":")


def helper(asked, answers, _aim):
    with os.fdopen(asked, "rb") as file:
        for line in file:
            question = protocol.question(line)
            if how in {"helper:dies", "raise:continued"}:
                os._exit(1)
            if what == "helper" and where == "hangs":
                time.sleep(60)
            answer = Look(state.read_text()) if question.ask == "look" else Report(("a line",) * 9)
            reply = b"nonsense\n" if what == "helper" else protocol.encode(protocol.Reply(question.id, answer))
            os.write(answers, reply)


handle, stop = Stopper.handle, core.stop


def broken(self, now_ns, event, out):
    handle(self, now_ns, event, out)
    continued = where == "continued" and SignalMain(signal.SIGCONT) in out
    told = where == "told" and isinstance(event, Signal)
    if what == "raise" and (continued or told or where in {"start", self.watch.state}):
        raise RuntimeError("broken for a test")


Stopper.handle = broken
if how:
    watch.LOOK_EVERY_NS = 100 * MS


def quick(aim, main, settings, **more):
    more.pop("helper").end()  # the one in its place is the test's
    if how:
        settings = msgspec.structs.replace(settings, ask_timeout_ns=500 * MS, ask_patience_ns=1 * S)
    return stop(aim, main, settings, **more, life=helper)


core.stop = quick
target.kind_of = lambda *_: "flux"
sys.exit(cli.main(["stop", *sys.argv[3:]]))
